"""Results of experiments that were made up, so that their claims hold or fail."""

import numpy as np
import xarray as xr

from heatbath import paper
from heatbath.paper.claims import FAILS, HOLDS

RUNS = 20


def around(value, width=0.004):
    """Return the values of some runs about a mean; other means have other noise."""
    seed = round(1e6 * abs(float(value)))
    return value + width * np.random.default_rng(seed).standard_normal(RUNS)


def methods(name="accuracy", steps=(100,), width=0.004, **values):
    """Return values (method, run, record) about means; a list has a mean for each record."""
    names = [key.replace("__", ", ").replace("_", " ") for key in values]
    data = [
        np.stack([around(v, width=width) for v in np.broadcast_to(value, len(steps))], axis=-1)
        for value in values.values()
    ]
    coords = {"method": names, "step": ("record", list(steps))}
    return xr.DataArray(np.array(data), dims=("method", "run", "record"), coords=coords, name=name)


def taus(**values):
    """Return accuracies (tau, run, record) about means, whose keys are such as t1e_5 for τ = 1e-5."""
    found = {float(key.removeprefix("t").replace("_", "-")): value for key, value in values.items()}
    data = np.stack([around(value)[:, None] for value in found.values()])
    return xr.Dataset({"accuracy": (("tau", "run", "record"), data)}, coords={"tau": list(found)})


def lines(**problems):
    """Return losses on lines with a bump, from its heights for AdLaLa and Adam by problem."""
    alpha = np.linspace(0, 1, 11)
    curves = np.array(
        [
            [
                [
                    1 - 0.9 * alpha + bump * 16 * (alpha * (1 - alpha)) ** 2 * (1 + 0.01 * k)
                    for k in range(RUNS)
                ]
                for bump in bumps
            ]
            for bumps in problems.values()
        ]
    )
    names = [{"mnist": "MNIST", "spiral": "1-turn spiral"}.get(name, name) for name in problems]
    coords = {"problem": names, "method": ["AdLaLa", "Adam"], "alpha": alpha}
    return xr.Dataset({"line": (("problem", "method", "run", "alpha"), curves)}, coords=coords)


def ends(apart=0.8, losses=(0.1, 0.1)):
    """Return lines on MNIST with the distance of their ends, and the losses there of AdLaLa and Adam."""
    data = lines(mnist=(0.0, 0.0))
    data["apart"] = (("problem", "run"), around(apart)[None])
    data["loss"] = (("problem", "method", "run"), np.stack([around(x) for x in losses])[None])
    return data


def one_line(adlala, adam, **accuracies):
    """Return lines of one problem with a bump for AdLaLa and one for Adam, and accuracies."""
    data = lines(mnist=(adlala, adam)).isel(problem=0, drop=True)
    if accuracies:
        data["accuracy"] = methods(**accuracies).isel(record=0)
    return data


def planes(name, bump, ridge=0.0):
    """Return surfaces that fall from the start, with a bump on the way or a ridge between the minima."""
    alpha, beta = np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 1, 9), indexing="ij")
    plane = 1 - 0.9 * alpha + bump * 4 * alpha * (1 - alpha) + ridge * 4 * beta * (1 - beta)
    run = "mnist_run" if name == "mnist" else "run"
    stacked = np.stack([plane * (1 + 0.01 * k) for k in range(4)])
    axis = np.linspace(0, 1, 9)
    return xr.Dataset({name: ((run, "alpha", "beta"), stacked)}, coords={"alpha": axis, "beta": axis})


def weights(accuracy=None, **shares):
    """Return accuracies, and shares of parameters at two records, by method."""
    found = {}
    if accuracy:
        found["accuracy"] = methods(**accuracy)
    for name, values in shares.items():
        found[name] = methods(name, steps=(0, 50), **values)
    return xr.Dataset(found)


def hundred(values=None, spread=None):
    """Return accuracies of 100 runs with these means, and these ranges from the worst to the best."""
    names = ("SGD", "Adam", "SGLD", "AdLaLa, γ = 0.5", "AdLaLa, γ = 10", "LOL")
    chosen = dict(zip(names, (values or {}), strict=False)) if isinstance(values, tuple) else {}
    spreads = dict.fromkeys(names, 0.01) | (spread or {})
    middle = {name: chosen.get(name, 0.8) for name in names}
    data = [
        [np.linspace(m - s / 2, m + s / 2, 100)]
        for m, s in zip(middle.values(), spreads.values(), strict=True)
    ]
    array = np.array(data).transpose(0, 2, 1)
    return xr.Dataset({"accuracy": (("method", "run", "record"), array)}, coords={"method": list(names)})


def robust(adam=(0.05, 0.05), own=(0.01, 0.01), means=(0.8, 0.9, 0.95, 0.95)):
    """Return accuracies from spreads of SGD and Adam, of LOL and AdLaLa, and from means of both by start."""
    spread = np.linspace(-1.7, 1.7, 100)
    table = {
        "SGD": 0.8 + adam[0] * spread,
        "Adam, Gaussian start": means[0] + adam[1] * spread,
        "Adam, torch's start": means[1] + adam[1] * spread,
        "LOL": 0.95 + own[0] * spread,
        "AdLaLa, Gaussian start": means[2] + own[1] * spread,
        "AdLaLa, torch's start": means[3] + own[1] * spread,
    }
    data = np.array(list(table.values()))[..., None]
    return xr.Dataset({"accuracy": (("method", "run", "record"), data)}, coords={"method": list(table)})


def noise_map(weak=0.5, band=(4e-3, 1e-2, 4e-2), cold=0.97, cool=0.97, hot=0.5, rest=0.6):
    """Return accuracies over τ₁ and σ_A for weak noise, in the band at each τ₁, and elsewhere."""
    sigma, tau = [0.0, 5e-4, 4e-3, 1e-2, 4e-2, 1e-1], [1e-6, 1e-4, 1e-2]
    rows = []
    for level in (cold, cool, hot):
        rows.append([around(weak if s < 1e-3 else level if s in band else rest) for s in sigma])
    return xr.Dataset(
        {"accuracy": (("tau1", "sigma", "run"), np.array(rows))}, coords={"tau1": tau, "sigma": sigma}
    )


def parts(**ratios):
    """Return temperatures of parts from their ratios to τ; keys are METHOD_PART."""
    names = [f"{key.split('_')[0]}: {key.split('_')[1]}" for key in ratios]
    heat = np.array([1e-4 * around(value) for value in ratios.values()])
    return xr.Dataset(
        {"temperature": (("part", "run"), heat), "tau": ("part", [1e-4] * len(names))}, coords={"part": names}
    )


def effects(early, late, method):
    """Return effects of which the outer third has this multiple of the inner third, early and late."""
    steps = [0, 1000, 5000, 10000]
    outer = np.stack([around(r) for r in (early, early, late, late)], axis=-1)
    inner = np.ones_like(outer)
    data = np.stack([inner, outer], axis=-1)[None]
    return xr.Dataset(
        {"effect": (("method", "run", "record", "where"), data)},
        coords={"method": [method], "step": ("record", steps), "where": ["inner", "outer"]},
    )


def pair(name="accuracy", **values):
    """Return a data set with one variable, about means by method."""
    return xr.Dataset({name: methods(name, **values)})


def rise(method, share, steps=40):
    """Return a test loss that falls and then rises by a share of its lowest value."""
    curve = np.concatenate([np.linspace(1, 0.5, steps // 2), np.linspace(0.5, 0.5 * (1 + share), steps // 2)])
    data = np.stack([curve * (1 + 0.001 * k) for k in range(RUNS)])[None]
    return xr.Dataset({"loss": (("method", "run", "record"), data)}, coords={"method": [method]})


def reaching(**steps):
    """Return accuracies that pass 90 % about a step, by method."""
    at = np.arange(0, 10000, 100)
    data = np.array([[np.where(at >= s + 10 * k, 0.95, 0.5) for k in range(RUNS)] for s in steps.values()])
    return xr.Dataset(
        {"accuracy": (("method", "run", "record"), data)},
        coords={"method": list(steps), "step": ("record", at)},
    )


def stepsizes(own, half, twice):
    """Return accuracies of Adam at the paper's stepsize, at half of it and at twice that."""
    data = pair(Adam=own, a=half, b=twice)
    return data.assign_coords(method=["Adam", "Adam, h = 0.005", "Adam, h = 0.02"])


def adams(end, early=None):
    """Return accuracies of Adam at the end, and at 40 % of the steps if they differ there."""
    return pair(steps=(20, 40, 100), Adam=(0.6, end if early is None else early, end))


NEAR = {"SGD": 0.9, "Adam": 0.8, "SGLD": 0.1, "AdLaLa, γ = 0.5": 0.1}


def near_zero(**values):
    """Return shares of parameters near zero by method, some of them replaced."""
    names = list(NEAR)
    data = [around(values.get(name.split(",")[0], NEAR[name]))[:, None] for name in names]
    return xr.Dataset({"near_zero": (("method", "run", "record"), np.array(data))}, coords={"method": names})


def check_every_claim(name, *cases):
    """Check that each claim of an experiment holds on the first results of a case and fails on the second."""
    claims = paper.find(name).claims
    assert len(cases) == len(claims)
    for claim, (true, false) in zip(claims, cases, strict=True):
        assert claim.check(true).verdict == HOLDS, claim.text
        assert claim.check(false).verdict == FAILS, claim.text
