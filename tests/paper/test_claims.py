"""Claims that can be true or false, and their verdicts."""

import numpy as np
import pytest
import xarray as xr

from heatbath import paper as experiments
from heatbath.diagnostics.statistics import Measured, student
from heatbath.paper import claims
from heatbath.paper.claims import FAILS, HOLDS, IN_PART
from heatbath.paper.histograms import PAPER

RUNS = 20


RNG = np.random.default_rng(0)


def around(value, shape=(RUNS,), width=0.004):
    """Values over runs about a mean."""
    noise = RNG.standard_normal((*shape[:-1], shape[-1])) if shape else 0.0
    return value + width * noise


def methods(name="accuracy", steps=(100,), width=0.004, **values):
    """Method x run x record: a number, or one for each record."""
    names = [key.replace("__", ", ").replace("_", " ") for key in values]
    data = [
        np.stack([around(v, width=width) for v in np.broadcast_to(value, len(steps))], axis=-1)
        for value in values.values()
    ]
    coords = {"method": names, "step": ("record", list(steps))}
    return xr.DataArray(np.array(data), dims=("method", "run", "record"), coords=coords, name=name)


def taus(**values):
    """τ x run x record, from the accuracies by τ."""
    found = {float(key.removeprefix("t").replace("_", "-")): value for key, value in values.items()}
    data = np.stack([around(value)[:, None] for value in found.values()])
    return xr.Dataset({"accuracy": (("tau", "run", "record"), data)}, coords={"tau": list(found)})


def lines(**problems):
    """Lines with a bump of some height, by problem and method."""
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
    data = lines(mnist=(0.0, 0.0))
    data["apart"] = (("problem", "run"), around(apart)[None])
    data["loss"] = (("problem", "method", "run"), np.stack([around(x) for x in losses])[None])
    return data


def one_line(adlala, adam, **accuracies):
    data = lines(mnist=(adlala, adam)).isel(problem=0, drop=True)
    if accuracies:
        data["accuracy"] = methods(**accuracies).isel(record=0)
    return data


def planes(name, bump, ridge=0.0):
    """Surfaces that fall from the start, with a bump on the way or a ridge between the minima."""
    alpha, beta = np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 1, 9), indexing="ij")
    plane = 1 - 0.9 * alpha + bump * 4 * alpha * (1 - alpha) + ridge * 4 * beta * (1 - beta)
    run = "mnist_run" if name == "mnist" else "run"
    stacked = np.stack([plane * (1 + 0.01 * k) for k in range(4)])
    axis = np.linspace(0, 1, 9)
    return xr.Dataset({name: ((run, "alpha", "beta"), stacked)}, coords={"alpha": axis, "beta": axis})


def weights(accuracy=None, **shares):
    """Accuracies and a share of excited or near-zero parameters."""
    found = {}
    if accuracy:
        found["accuracy"] = methods(**accuracy)
    for name, values in shares.items():
        found[name] = methods(name, steps=(0, 50), **values)
    return xr.Dataset(found)


def hundred(values=None, spread=None):
    """Over 100 runs: means, and from the worst to the best."""
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
    """Standard deviations of SGD and Adam and of AdLaLa and LOL, and means of Adam and AdLaLa by start."""
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
    """The map over τ₁ and σ_A."""
    sigma, tau = [0.0, 5e-4, 4e-3, 1e-2, 4e-2, 1e-1], [1e-6, 1e-4, 1e-2]
    rows = []
    for level in (cold, cool, hot):
        rows.append([around(weak if s < 1e-3 else level if s in band else rest) for s in sigma])
    return xr.Dataset(
        {"accuracy": (("tau1", "sigma", "run"), np.array(rows))}, coords={"tau1": tau, "sigma": sigma}
    )


def parts(**ratios):
    """Temperatures over τ of parts."""
    names = [f"{key.split('_')[0]}: {key.split('_')[1]}" for key in ratios]
    heat = np.array([1e-4 * around(value) for value in ratios.values()])
    return xr.Dataset(
        {"temperature": (("part", "run"), heat), "tau": ("part", [1e-4] * len(names))}, coords={"part": names}
    )


def effects(early, late, method):
    """Outer over inner, early and late."""
    steps = [0, 1000, 5000, 10000]
    outer = np.stack([around(r) for r in (early, early, late, late)], axis=-1)
    inner = np.ones_like(outer)
    data = np.stack([inner, outer], axis=-1)[None]
    return xr.Dataset(
        {"effect": (("method", "run", "record", "where"), data)},
        coords={"method": [method], "step": ("record", steps), "where": ["inner", "outer"]},
    )


def pair(name="accuracy", **values):
    return xr.Dataset({name: methods(name, **values)})


def rise(method, share, steps=40):
    """A test loss that falls and then rises by a share."""
    curve = np.concatenate([np.linspace(1, 0.5, steps // 2), np.linspace(0.5, 0.5 * (1 + share), steps // 2)])
    data = np.stack([curve * (1 + 0.001 * k) for k in range(RUNS)])[None]
    return xr.Dataset({"loss": (("method", "run", "record"), data)}, coords={"method": [method]})


def reaching(**steps):
    """Accuracies that pass 90 % at a step."""
    at = np.arange(0, 10000, 100)
    data = np.array([[np.where(at >= s + 10 * k, 0.95, 0.5) for k in range(RUNS)] for s in steps.values()])
    return xr.Dataset(
        {"accuracy": (("method", "run", "record"), data)},
        coords={"method": list(steps), "step": ("record", at)},
    )


def stepsizes(own, half, twice):
    """Adam at three stepsizes."""
    data = pair(Adam=own, a=half, b=twice)
    return data.assign_coords(method=["Adam", "Adam, h = 0.005", "Adam, h = 0.02"])


def adams(end, early=None):
    """Adam's curve: its accuracy at 40 % of the steps and at the end."""
    return pair(steps=(20, 40, 100), Adam=(0.6, end if early is None else early, end))


EXCITED = {"SGD": 0.1, "Adam": 0.2, "SGLD": 0.9, "AdLaLa": 0.9}


NEAR = {"SGD": 0.9, "Adam": 0.8, "SGLD": 0.1, "AdLaLa, γ = 0.5": 0.1}


def near_zero(**values):
    names = list(NEAR)
    data = [around(values.get(name.split(",")[0], NEAR[name]))[:, None] for name in names]
    return xr.Dataset({"near_zero": (("method", "run", "record"), np.array(data))}, coords={"method": names})


TURNS = {
    turns: [
        *((pair(**{name: value}), pair(**{name: value - 0.2})) for name, value in paper.items()),
        (weights(excited=EXCITED), weights(excited=EXCITED | {"SGD": 0.9, "Adam": 0.9})),
    ]
    for turns, paper in PAPER.items()
}


MEANS = (0.79, 0.837, 0.78, 0.934, 0.855)


# For every claim, in order, results that make it true and results that make it false
MADE_UP = {
    "temperature": [
        (taus(t1e_8=0.5, t1e_7=0.6, t1e_6=0.7, t1e_5=0.8), taus(t1e_8=0.8, t1e_7=0.7, t1e_6=0.6, t1e_5=0.5)),
        (taus(t1e_5=0.9, t1e_2=0.5), taus(t1e_5=0.5, t1e_2=0.9)),
    ],
    "data": [],
    "line-mnist": [
        (lines(mnist=(0.0, 0.0)), lines(mnist=(2.0, 2.0))),
        (lines(spiral=(0.0, 0.0)), lines(spiral=(2.0, 2.0))),
        (ends(apart=0.8), ends(apart=0.01)),
        (ends(losses=(0.1, 0.1)), ends(losses=(0.5, 0.1))),
    ],
    "line-spiral": [
        (one_line(2.0, 1.0), one_line(0.0, 0.0)),
        (one_line(2.0, 1.0), one_line(1.0, 2.0)),
        (one_line(1.0, 1.0, AdLaLa=0.985, Adam=0.9), one_line(1.0, 1.0, AdLaLa=0.7, Adam=0.9)),
        (one_line(1.0, 1.0, AdLaLa=0.985, Adam=0.925), one_line(1.0, 1.0, AdLaLa=0.7, Adam=0.7)),
    ],
    "surface": [
        (planes("mnist", 0.0), planes("mnist", 1.0)),
        (planes("spiral", 0.0, 0.5), planes("spiral", 0.0, 0.0)),
    ],
    "weights-2turn": TURNS[2],
    "weights-4turn": TURNS[4],
    "weights-100runs": [
        *((hundred(MEANS), hundred(tuple(m - 0.2 for m in MEANS))) for _ in MEANS),
        (near_zero(), near_zero(SGD=0.05, Adam=0.05)),
        (hundred(spread={"Adam": 0.35}), hundred(spread={"Adam": 0.05})),
        (hundred(spread={"LOL": 0.1}), hundred(spread={"LOL": 0.5})),
        (hundred(spread={"Adam": 0.35, "LOL": 0.1}), hundred(spread={"AdLaLa, γ = 0.5": 0.5})),
    ],
    "classifiers": [
        (pair(AdLaLa=0.9, Adam=0.8), pair(AdLaLa=0.8, Adam=0.9)),
        (pair("loss", AdLaLa=0.1, Adam=0.2), pair("loss", AdLaLa=0.2, Adam=0.1)),
        (pair("roughness", AdLaLa=0.1, Adam=0.2), pair("roughness", AdLaLa=0.2, Adam=0.1)),
    ],
    "compare-4turn": [
        (pair(AdLaLa=0.9, SGLD_h=0.8), pair(AdLaLa=0.8, SGLD_h=0.9)),
        (pair(AdLaLa=0.9, Adam_h=0.8), pair(AdLaLa=0.8, Adam_h=0.9)),
    ],
    "compare-trig-6": [
        (reaching(AdLaLa=1000, Adam=2900), reaching(AdLaLa=2900, Adam=1000)),
        (reaching(LOL=1000, Adam=2000), reaching(LOL=2900, Adam=1000)),
        (stepsizes(0.9, 0.8, 0.8), stepsizes(0.8, 0.9, 0.8)),
    ],
    "compare-trig-10": [
        (adams(0.73), adams(0.95)),
        (adams(0.73, 0.73), adams(0.73, 0.6)),
        (pair(LOL=0.9, Adam=0.8), pair(LOL=0.7, Adam=0.8)),
        (pair(AdLaLa=0.9, Adam=0.8), pair(AdLaLa=0.7, Adam=0.8)),
        (
            pair(SGLD=0.6, Adam=0.8, LOL=0.8, AdLaLa=0.8),
            pair(SGLD=0.9, Adam=0.8, LOL=0.8, AdLaLa=0.8),
        ),
    ],
    "overfitting": [
        *((rise(name, 0.3), rise(name, 0.0)) for name in ("SGD", "Adam")),
        *((rise(name, 0.0), rise(name, 0.3)) for name in ("LOL", "AdLaLa")),
    ],
    "robustness": [
        (robust(), robust(adam=(0.005, 0.005), own=(0.05, 0.05))),
        (robust(), robust(adam=(0.005, 0.005), own=(0.05, 0.05))),
        (robust(), robust(means=(0.9, 0.9, 0.8, 0.95))),
    ],
    "driving-noise": [
        (noise_map(), noise_map(weak=0.9)),
        (noise_map(), noise_map(band=(), rest=0.5)),
        (noise_map(), noise_map(cool=0.6)),
        (noise_map(), noise_map(hot=0.97)),
    ],
    "lol-temperature": [
        (taus(t0=0.7, t1e_5=0.9, t1e_3=0.5), taus(t0=0.9, t1e_5=0.7, t1e_3=0.5)),
        (taus(t0=0.7, t1e_5=0.9, t1e_3=0.5), taus(t0=0.5, t1e_5=0.7, t1e_3=0.9)),
        (taus(t1e_3=0.5), taus(t1e_3=0.9)),
    ],
    "equipartition": [
        (parts(AdLaLa_hidden=1.05, AdLaLa_output=1.2), parts(AdLaLa_hidden=9.0, AdLaLa_output=20.0)),
        (parts(LOL_hidden=1.05, LOL_output=1.2), parts(LOL_hidden=9.0, LOL_output=0.01)),
    ],
    "points": [
        (effects(2.0, 0.8, "SGD"), effects(0.5, 0.8, "SGD")),
        (effects(2.0, 0.8, "SGD"), effects(0.9, 0.1, "SGD")),
        (effects(1.05, 1.0, "AdLaLa"), effects(3.0, 1.0, "AdLaLa")),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", experiments.NAMES)
def test_every_claim_can_hold_and_fail(name):
    claims = experiments.find(name).claims
    cases = MADE_UP[name]
    assert len(cases) == len(claims)
    for claim, (true, false) in zip(claims, cases, strict=True):
        assert claim.check(true).verdict == HOLDS, claim.text
        assert claim.check(false).verdict == FAILS, claim.text


def test_experiments_have_the_names_under_which_they_are_listed():
    assert [experiments.find(name).name for name in experiments.NAMES] == list(experiments.NAMES)
    with pytest.raises(ValueError, match="there is no experiment 'nothing': accepted are temperature, "):
        experiments.find("nothing")


@pytest.mark.parametrize(
    ("measured", "above", "below"),
    [
        (Measured(2.0, 1.5, 2.5), HOLDS, FAILS),
        (Measured(1.2, 0.8, 1.6), IN_PART, IN_PART),
        (Measured(0.8, 0.4, 1.2), IN_PART, IN_PART),
        (Measured(0.5, 0.4, 0.6), FAILS, HOLDS),
        (Measured(np.nan, np.nan, np.nan), FAILS, FAILS),
        (Measured(2.0, np.nan, np.nan), HOLDS, FAILS),
    ],
)
def test_a_limit_within_the_interval_is_passed_in_part(measured, above, below):
    assert claims.judge_above(measured, 1.0) == above
    assert claims.judge_below(measured, 1.0) == below


def test_one_run_of_the_paper_agrees_within_our_range_and_a_mean_within_our_interval():
    values = np.linspace(0.6, 0.8, 50)
    assert claims.compare_with_paper(values, 0.78, single=True).verdict == HOLDS
    assert claims.compare_with_paper(values, 0.76, single=False).verdict == IN_PART
    assert claims.compare_with_paper(values, 0.705, single=False).verdict == HOLDS
    assert claims.compare_with_paper(values, 0.84, single=True).verdict == IN_PART
    assert claims.compare_with_paper(values, 0.9, single=True).verdict == FAILS
    assert claims.compare_with_paper([0.2, 0.9], 0.55, single=False).verdict == IN_PART  # too vague to agree


def test_an_interval_is_wider_for_the_best_of_several():
    """Of seven that are equal, the best is taken for better in a twentieth of all cases at most."""
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(1000):
        runs = rng.standard_normal((8, 7))
        best = runs[:, runs.mean(axis=0).argmax()]
        hits += claims.judge_above(student(best - rng.standard_normal(8), of=7)) == HOLDS
    assert hits / 1000 < 0.05


@pytest.mark.parametrize(
    ("accuracies", "verdict"),
    [
        ((0.5, 0.6, 0.7, 0.8), HOLDS),
        ((0.5, 0.9, 0.7, 0.8), IN_PART),
        ((0.9, 0.7, 0.7, 0.7), FAILS),
        ((0.9, 0.75, 0.75, 0.6), FAILS),
    ],
)
def test_the_ends_decide_whether_accuracy_rises_with_temperature(accuracies, verdict):
    data = taus(**dict(zip(("t1e_8", "t1e_7", "t1e_6", "t1e_5"), accuracies, strict=True)))
    assert experiments.find("temperature").claims[0].check(data).verdict == verdict
