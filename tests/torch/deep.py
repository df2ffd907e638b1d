"""Deep networks to try things out on, as people write them."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import avg_pool2d, relu


class Residual(nn.Module):
    """A block of two convolutions with batch norms, and a shortcut."""

    def __init__(self, before, after, stride=1):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.norm2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        same = before == after and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x):
        return relu(self.norm2(self.conv2(relu(self.norm1(self.conv1(x))))) + self.shortcut(x))


class ResNet(nn.Module):
    """A network of two stages of two residual blocks, for pictures of 14 x 14."""

    def __init__(self, width=8):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width)
        self.stage1 = nn.Sequential(Residual(width, width), Residual(width, width))
        self.stage2 = nn.Sequential(Residual(width, 2 * width, 2), Residual(2 * width, 2 * width))
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x):
        return self.head(self.stage2(self.stage1(relu(self.norm(self.stem(x))))).mean((2, 3)))


def digits(kind, count):
    """Return MNIST from HEATBATH_DATA (see conftest.py) at half the resolution, or None if it is missing."""
    folder = Path(os.environ.get("HEATBATH_DATA", "")) / "mnist"
    if not (folder / f"{kind}-images-idx3-ubyte.gz").is_file():
        return None
    with gzip.open(folder / f"{kind}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(16 + count * 784), np.uint8, offset=16)
    with gzip.open(folder / f"{kind}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(8 + count), np.uint8, offset=8)
    x = avg_pool2d(torch.tensor(pixels.reshape(-1, 1, 28, 28) / np.float32(255)), 2)
    return (x - 0.13) / 0.3, torch.tensor(labels.astype(np.int64))


def gpt2(seed=0, **options):
    """Return a small language model, made from a configuration."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=16, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **options,
    )  # fmt: skip
    torch.manual_seed(seed)
    return transformers.GPT2LMHeadModel(config)


def letter_sequences(count, seed, jumps=(1, 2)):
    """Return sequences in which every letter is one of the next two (or of other `jumps`).

    A letter has log 2 of entropy.
    """
    generator = torch.Generator().manual_seed(seed)
    start = torch.randint(0, 16, (count, 1), generator=generator)
    jump = torch.tensor(jumps)[torch.randint(0, 2, (count, 16), generator=generator)]
    return (start + jump.cumsum(1)) % 16
