"""AdLaLa in place of Adam, in a plain PyTorch loop on the 4-turn spiral: two lines change."""

import argparse

import torch

import heatbath as hb
from heatbath.torch import AdLaLa


def train(make: str, steps: int, seed: int = 0) -> float:
    """Train with "Adam" or "AdLaLa"; return the test accuracy in percent."""
    problem = hb.datasets.spirals(turns=4)
    x, y = (torch.as_tensor(a[0], dtype=torch.float32) for a in (problem.X_train, problem.Y_train))
    x_test, y_test = (torch.as_tensor(a[0], dtype=torch.float32) for a in (problem.X_test, problem.Y_test))
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(2, 100), torch.nn.ReLU(), torch.nn.Linear(100, 1))
    optimizer: torch.optim.Optimizer
    if make == "Adam":
        optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    else:
        optimizer = AdLaLa(model, lr=0.25, gamma=0.1, epsilon=0.05, seed=seed)
    for _ in range(steps):
        batch = torch.randint(0, len(x), (20,))
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x[batch]), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        return float(100 * ((model(x_test) > 0) == (y_test > 0.5)).float().mean())


def main() -> None:
    """Print the accuracy of both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40_000)
    steps = parser.parse_args().steps
    for name in ("Adam", "AdLaLa"):
        print(f"{name:7} {train(name, steps):5.1f} % of the test data, after {steps:,} steps")


if __name__ == "__main__":
    main()
