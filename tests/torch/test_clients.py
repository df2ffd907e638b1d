"""The optimisers in other people's training loops; what is not installed is skipped."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import heatbath as hb
from heatbath.torch import AdLaLa, Langevin

RINGS = hb.datasets.rings(gap=1.0, pinch=0.5, n_train=400, n_test=200)
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # warnings of other libraries


def classifier():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 30), torch.nn.Tanh(), torch.nn.Linear(30, 1))


def test_a_plain_loop():
    example = Path(__file__).parent.parent.parent / "examples" / "plain_loop.py"
    command = [sys.executable, str(example), "--steps", "100"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(Adam|AdLaLa) +[\d.]+ %", done.stdout, flags=re.MULTILINE) == ["Adam", "AdLaLa"]


def test_lightning(tmp_path):
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = classifier()

        def training_step(self, batch, _):
            x, y = batch
            return torch.nn.functional.binary_cross_entropy_with_logits(self.model(x), y)

        def configure_optimizers(self):
            optimizer = AdLaLa(self.model, lr=0.2)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 40, 0.5)]

    x, y = (torch.as_tensor(a[0]).float() for a in (RINGS.X_train, RINGS.Y_train))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=20, shuffle=True)
    module = Module()
    trainer = lightning.Trainer(
        max_epochs=60, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, loader)
    x, y = (torch.as_tensor(a[0]).float() for a in (RINGS.X_test, RINGS.Y_test))
    assert ((module.model(x) > 0) == (y > 0.5)).float().mean() > 0.95
    (group, *_) = module.optimizers().optimizer.param_groups
    assert group["step"] == 60 * 20
    assert group["lr"] == pytest.approx(0.1)


def test_skorch_with_cross_validation():
    skorch = pytest.importorskip("skorch")
    model_selection = pytest.importorskip("sklearn.model_selection")

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = classifier()

        def forward(self, x):
            return self.layers(x)[:, 0]

    net = skorch.NeuralNetBinaryClassifier(
        Network, optimizer=Langevin, optimizer__gamma=0.5, optimizer__tau=1e-4, lr=0.2, max_epochs=30,
        batch_size=20, iterator_train__shuffle=True, verbose=0, train_split=None,
    )  # fmt: skip
    X, y = RINGS.X_train[0].astype(np.float32), RINGS.Y_train[0, :, 0].astype(np.float32)
    scores = model_selection.cross_val_score(net, X, y, cv=3, scoring="accuracy")
    assert scores.mean() > 0.95
    parts = [("layers.2.*", {"part": "output"}), ("*", {"part": "hidden"})]
    net = skorch.NeuralNetBinaryClassifier(
        Network, optimizer=AdLaLa, optimizer__param_groups=parts, lr=0.2, max_epochs=10, batch_size=20,
        iterator_train__shuffle=True, verbose=0, train_split=None,
    )  # fmt: skip
    assert (net.fit(X, y).predict(X) == y).mean() > 0.8
    methods = {group["part"]: group["method"] for group in net.optimizer_.param_groups}
    assert methods == {"output": "Langevin", "hidden": "AdaptiveLangevin"}
    assert net.optimizer_.param_groups[0]["params"][-1].shape == (1, 30)
    with pytest.raises(ValueError, match='a group needs a "part"'):
        skorch.NeuralNetBinaryClassifier(Network, optimizer=AdLaLa, verbose=0).fit(X, y)


@pytest.mark.parametrize(("by_the_trainer", "epochs"), [(False, 40), (True, 10)])
def test_the_hugging_face_trainer_on_a_small_transformer(tmp_path, by_the_trainer, epochs):
    """The optimiser is given to the Trainer, or made by it.

    The test makes the text: after "a" comes "b", after "b" comes "c", and so on.
    """
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.GPT2Config(
        vocab_size=8, n_positions=16, n_embd=16, n_layer=1, n_head=2, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config)
    starts = torch.randint(0, 8, (64,), generator=torch.Generator().manual_seed(1))
    text = [(torch.arange(16) + int(start)) % 8 for start in starts]
    data = [{"input_ids": tokens, "labels": tokens} for tokens in text]
    made = {"lr": 0.1, "tau": 1e-6, "sigma": 1e-3, "output": model.lm_head}
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=epochs, per_device_train_batch_size=16, use_cpu=True,
        save_steps=4 * epochs, report_to=[], disable_tqdm=True, seed=0, logging_strategy="no",
        lr_scheduler_type="constant",
    )  # fmt: skip
    if by_the_trainer:  # of groups with decay and without
        trainer = transformers.Trainer(
            model=model, args=arguments, train_dataset=data, optimizer_cls_and_kwargs=(AdLaLa, made)
        )
    else:
        optimizer = AdLaLa(model, **made)
        schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
        trainer = transformers.Trainer(
            model=model, args=arguments, train_dataset=data, optimizers=(optimizer, schedule)
        )
    before = float(model(input_ids=text[0][None], labels=text[0][None]).loss)
    trainer.train()
    after = float(model(input_ids=text[0][None], labels=text[0][None]).loss)
    assert before == pytest.approx(np.log(8), abs=0.3)
    assert after < (0.9 if by_the_trainer else 0.5) * before
    groups = trainer.optimizer.optimizer.param_groups
    assert groups[0]["step"] == 4 * epochs
    assert (len(groups) == 3) == by_the_trainer  # hidden with decay, output with decay, hidden without
    saved = torch.load(next(tmp_path.glob("checkpoint-*/optimizer.pt")), weights_only=True)
    assert saved["param_groups"][0]["method"] == "AdaptiveLangevin"
