"""A plain PyTorch loop in TensorBoard: the loss, and the temperature of every part, which is to be near τ.

MLflow and Weights & Biases are in `heatbath.trackers` as well. Needs the extras torch and tensorboard.
"""

import argparse
import time
from collections.abc import Callable

import torch

import heatbath as hb
from heatbath.torch import AdLaLa

EVERY = 50  # steps that a point is a mean of


def train(track: Callable[[hb.Progress], None], steps: int, seed: int = 0) -> None:
    """Train a network on the 4-turn spiral, and tell how it goes."""
    problem = hb.datasets.spirals(turns=4)
    x, y = (torch.as_tensor(a[0], dtype=torch.float32) for a in (problem.X_train, problem.Y_train))
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(2, 100), torch.nn.ReLU(), torch.nn.Linear(100, 1))
    optimizer = AdLaLa(model, lr=0.25, gamma=0.1, epsilon=0.05, seed=seed)
    begin, total = time.perf_counter(), torch.zeros(())
    for step in range(1, steps + 1):
        batch = torch.randint(0, len(x), (20,))
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x[batch]), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.detach()
        if step % EVERY == 0:
            heat = {part: read.value for part, read in optimizer.temperature().items()}
            track(hb.Progress(step, steps, time.perf_counter() - begin, float(total) / EVERY, heat))
            optimizer.forget_past()
            total.zero_()


def main() -> None:
    """Train, and say where to look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--folder", default="runs/adlala")
    given = parser.parse_args()
    with hb.trackers.tensorboard(given.folder) as track:
        train(track, given.steps)
    print(f"look at it with: tensorboard --logdir {given.folder}")


if __name__ == "__main__":
    main()
