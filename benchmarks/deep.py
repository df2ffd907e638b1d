"""Deep networks: our optimisers by blocks and by layers against Adam, and what renewed statistics are worth.

- residual: the residual network of tests/torch/deep.py (two stages of two blocks) on 4,000 pictures of MNIST
  in half the resolution, 300 steps with batches of 50. Accuracy and log loss on 2,000 test pictures, of the
  last network and averaged over ten samples of the last 100 steps, with the running means of batch norms and
  renewed by 1,000 training pictures. Everything has its defaults, but for Adam's lr.
- language: the GPT-2 of tests/torch/deep.py (two layers, width 32) on text of log 2 = 0.693 nats a letter,
  200 steps with batches of 32; the loss on new text.
- frequency: `AdLaLa` by blocks with other ω and γ, on data that the tables above do not have, as defaults are
  chosen by it. Pictures: the residual network on 1,300 of the 8x8 digits of scikit-learn; a table: four
  residual blocks with layer norms on 3,000 rows of `make_classification` (20 columns, 4 classes); both 300
  steps with batches of 50, averaged over ten samples of the last 100 steps. Letters: that GPT-2 on text of
  another law. Log loss on new data.
- digits: `LOL` with two frictions on 1,300 of the 8x8 digits of scikit-learn, a network of two convolutions
  and two dense layers, 450 steps with batches of 32; accuracy on the other 497, averaged over the last 200
  steps.

    python benchmarks/deep.py [--part residual] [--seeds 5] [--results FILE]

MNIST is read as the tests do, from HEATBATH_DATA. What is in the file of results
(benchmarks/results/deep.json) is not computed again: delete it to measure anew.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

import heatbath.torch as ht
from heatbath._internal import atomic_write

HERE = Path(__file__).parent
RESULTS = HERE / "results"
TRAINED, TESTED, RENEWING = 4000, 2000, 1000
STEPS, BATCH, BURN_IN, THIN = 300, 50, 200, 10
KNOWN = 1300  # of the 8x8 digits: those to learn from

Make = Callable[[nn.Module], torch.optim.Optimizer]
Result = dict[str, Any]


def networks() -> Any:
    """Return the networks and data of the tests."""
    if str(HERE.parent) not in sys.path:
        sys.path.append(str(HERE.parent))
    from tests.torch import deep

    return deep


RESIDUAL: dict[str, Make] = {
    "Adam, lr 0.001": lambda model: torch.optim.Adam(model.parameters(), lr=0.001),
    "Adam, lr 0.003": lambda model: torch.optim.Adam(model.parameters(), lr=0.003),
    "`LOL`, blocks": lambda model: ht.LOL(model, parts="blocks"),
    "`AdLaLa`, blocks": lambda model: ht.AdLaLa(model, parts="blocks"),
    "`AdLaLa`, layers": lambda model: ht.AdLaLa(model),
}
COLUMNS = ("single, running means", "single, renewed", "averaged, running means", "averaged, renewed")
LANGUAGE: dict[str, Make] = {
    "AdamW, lr 0.001": lambda model: torch.optim.AdamW(model.parameters(), lr=0.001),
    "AdamW, lr 0.003": lambda model: torch.optim.AdamW(model.parameters(), lr=0.003),
    "`AdLaLa`, blocks": lambda model: ht.AdLaLa(model, parts="blocks"),
    "`AdLaLa`, blocks, tau=1e-6": lambda model: ht.AdLaLa(model, parts="blocks", tau=1e-6),
    "`AdLaLa`, layers, output=model.lm_head": lambda model: ht.AdLaLa(model, output=model.lm_head),
    "`LOL`, blocks": lambda model: ht.LOL(model, parts="blocks"),
}
FREQUENCY: dict[str, Make] = {
    f"ω = {omega:g}, γ = {gamma:g}": lambda model, omega=omega, gamma=gamma: ht.AdLaLa(
        model, parts="blocks", frequency=omega, damping=gamma
    )
    for omega in (0.1, 0.3, 1.0)
    for gamma in (0.1, 0.3, 1.0, 3.0)
}
DIGITS: dict[str, Make] = {
    "`LOL`, γ = 0.01": lambda model: ht.LOL(model, gamma=0.01),
    "`LOL`": lambda model: ht.LOL(model),
}


@cache
def pictures() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training and test pictures."""
    deep = networks()
    data = deep.digits("train", TRAINED), deep.digits("t10k", TESTED)
    if None in data:
        raise SystemExit("MNIST is not there: set HEATBATH_DATA to the folder that has mnist/")
    return data


def judged(p: Tensor, y: Tensor) -> list[float]:
    """Accuracy and log loss."""
    accuracy = float((p.argmax(1) == y).double().mean())
    return [accuracy, -float(p[range(len(y)), y].log().mean())]


def sampled(make: Make, model: nn.Module, x: Tensor, y: Tensor) -> ht.Samples:
    """Train a network, and have samples of its last steps."""
    optimizer = make(model)
    samples = ht.Samples(model, burn_in=BURN_IN, thin=THIN)
    for _ in range(STEPS):
        rows = torch.randint(0, len(x), (BATCH,))
        optimizer.zero_grad()
        cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
        samples.take()
    return samples


def residual(make: Make, seed: int) -> dict[str, list[float]]:
    """Train the residual network in the four ways of the columns."""
    (x, y), (x_test, y_test) = pictures()
    torch.manual_seed(seed)
    model = networks().ResNet()
    samples = sampled(make, model, x, y)
    found = {}

    def judge(column: str, of: Any) -> None:
        found[column] = judged(ht.predict(model, of, x_test, task="classes").mean, y_test)

    judge(COLUMNS[0], [model.state_dict()])
    judge(COLUMNS[2], samples)
    ht.renew_statistics(model, x[:RENEWING])
    judge(COLUMNS[1], [model.state_dict()])
    samples.renew(x[:RENEWING])
    judge(COLUMNS[3], samples)
    return found


def language(make: Make, seed: int, jumps: tuple[int, int] = (1, 2)) -> float:
    """Train the language model; return its loss on new text."""
    deep = networks()
    model, data, new = deep.gpt2(seed), deep.text(512, 0, jumps), deep.text(256, 1, jumps)
    optimizer = make(model)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(200):
        batch = data[torch.randint(0, len(data), (32,), generator=generator)]
        optimizer.zero_grad()
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(model.eval()(input_ids=new, labels=new).loss)


def digits_of_eight() -> tuple[Tensor, Tensor]:
    """Return the 8x8 digits of scikit-learn, shuffled with a fixed seed."""
    from sklearn.datasets import load_digits

    X, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(X.reshape(-1, 1, 8, 8) / 16, dtype=torch.float32)
    return x[order], torch.tensor(labels)[order]


class Block(nn.Module):
    """A layer norm, two dense layers and a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Add to what comes in."""
        return x + self.down(relu(self.up(self.norm(x))))


def elsewhere(make: Make, seed: int) -> dict[str, float]:
    """Log loss on what the other tables do not have."""
    from sklearn.datasets import make_classification

    x, y = digits_of_eight()
    torch.manual_seed(seed)
    model = networks().ResNet()
    samples = sampled(make, model, x[:KNOWN], y[:KNOWN])
    samples.renew(x[:KNOWN])
    found = {"pictures": judged(ht.predict(model, samples, x[KNOWN:], task="classes").mean, y[KNOWN:])[1]}
    X, labels = make_classification(
        4000, 20, n_informative=10, n_classes=4, n_clusters_per_class=3, random_state=seed
    )
    x, y = torch.tensor((X - X.mean(0)) / X.std(0), dtype=torch.float32), torch.tensor(labels)
    model = nn.Sequential(nn.Linear(20, 32), *(Block(32) for _ in range(4)), nn.Linear(32, 4))
    samples = sampled(make, model, x[:3000], y[:3000])
    found["a table"] = judged(ht.predict(model, samples, x[3000:], task="classes").mean, y[3000:])[1]
    return found | {"letters": language(make, seed, (3, 7))}


def small_digits(make: Make, seed: int) -> float:
    """Train the convolutional network on 8x8 digits; return its accuracy."""
    x, y = digits_of_eight()
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip
    optimizer, samples = make(model), ht.Samples(model, burn_in=250, thin=10)
    for _ in range(450):
        rows = torch.randint(0, KNOWN, (32,))
        optimizer.zero_grad()
        cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
        samples.take()
    return judged(ht.predict(model, samples, x[KNOWN:], task="classes").mean, y[KNOWN:])[0]


PARTS: dict[str, tuple[dict[str, Make], Callable[[Make, int], Any]]] = {
    "residual": (RESIDUAL, residual),
    "language": (LANGUAGE, language),
    "digits": (DIGITS, small_digits),
    "frequency": (FREQUENCY, elsewhere),
}


def spread(values: list[float]) -> str:
    """Return a mean ± the standard deviation."""
    deviation = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{deviation}"


def residual_table(known: Result) -> str:
    """Accuracy and log loss of both, in the four ways; means over runs ± standard deviations."""
    lines = [f"| | runs | {' | '.join(COLUMNS)} |", "|" + " --- |" * 6]
    for name, runs in known["residual"].items():
        cells = [
            ", ".join(spread([run[column][i] for run in runs.values()]) for i in (0, 1)) for column in COLUMNS
        ]
        lines.append(f"| {name} | {len(runs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def one_number(known: Result, part: str, what: str) -> str:
    """Return the range of a number over the runs."""
    lines = [f"| | runs | {what} | least to largest |", "| --- | --- | --- | --- |"]
    for name, runs in known[part].items():
        values = list(runs.values())
        least, most = min(values), max(values)
        lines.append(f"| {name} | {len(values)} | {np.mean(values):.3f} | {least:.3f} to {most:.3f} |")
    return "\n".join(lines)


def frequency_table(known: Result) -> str:
    """Log losses; means over runs ± standard deviations."""
    columns = ("pictures", "a table", "letters")
    lines = [f"| | runs | {' | '.join(columns)} |", "|" + " --- |" * 5]
    for name, runs in known["frequency"].items():
        cells = [spread([run[column] for run in runs.values()]) for column in columns]
        lines.append(f"| {name} | {len(runs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[Result], str]] = {
    "residual": residual_table,
    "language": lambda known: one_number(known, "language", "loss"),
    "frequency": frequency_table,
    "digits": lambda known: one_number(known, "digits", "accuracy"),
}


def main() -> None:
    """Measure what is not known yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS / "deep.json")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    known: Result = json.loads(given.results.read_text()) if given.results.exists() else {}
    for part in given.part or PARTS:
        makers, measure = PARTS[part]
        for seed in range(given.seeds):
            for name, make in makers.items():
                runs = known.setdefault(part, {}).setdefault(name, {})
                if str(seed) not in runs:
                    runs[str(seed)] = measure(make, seed)
                    atomic_write.write(given.results, json.dumps(known, indent=1, ensure_ascii=False) + "\n")
                    print(part, name, seed, runs[str(seed)], flush=True)
        print(TABLES[part](known), flush=True)


if __name__ == "__main__":
    main()
