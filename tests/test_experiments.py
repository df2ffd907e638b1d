"""The paper's experiments: claims that can be true or false, results that are kept, a report."""

import json
import os
import re
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import heatbath as hb
from heatbath import experiments
from heatbath.cli import app
from heatbath.experiments import base, common, report, runner
from heatbath.experiments.base import FAILS, HOLDS, IN_PART, Mean
from heatbath.experiments.weights import PAPER

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
def test_every_claim_can_be_true_and_false(name):
    claims = experiments.find(name).claims
    cases = MADE_UP[name]
    assert len(cases) == len(claims)
    for claim, (true, false) in zip(claims, cases, strict=True):
        assert claim.check(true).verdict == HOLDS, claim.text
        assert claim.check(false).verdict == FAILS, claim.text


def test_names_are_those_of_the_modules():
    assert [experiments.find(name).name for name in experiments.NAMES] == list(experiments.NAMES)
    with pytest.raises(ValueError, match="there is no experiment 'nothing': accepted are temperature, "):
        experiments.find("nothing")


# Verdicts


@pytest.mark.parametrize(
    ("measured", "above", "below"),
    [
        (Mean(2.0, 1.5, 2.5), HOLDS, FAILS),
        (Mean(1.2, 0.8, 1.6), IN_PART, IN_PART),
        (Mean(0.8, 0.4, 1.2), IN_PART, IN_PART),
        (Mean(0.5, 0.4, 0.6), FAILS, HOLDS),
        (Mean(np.nan, np.nan, np.nan), FAILS, FAILS),
        (Mean(2.0, np.nan, np.nan), HOLDS, FAILS),
    ],
)
def test_a_limit_is_passed_in_part_where_the_interval_does_not_decide(measured, above, below):
    assert base.above(measured, 1.0) == above
    assert base.below(measured, 1.0) == below


def test_means_have_students_interval():
    found = base.mean([1.0, 2.0, 3.0])
    assert found == pytest.approx((2.0, 2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), rel=1e-6)
    assert base.mean([5.0]).told() == "5.0"
    assert base.mean([0.5, 0.5]).percent() == "50.0 % (50.0 to 50.0)"


def test_a_bootstrap_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        found = base.bootstrap(lambda x: float(x.mean()), rng.standard_normal(60), repeats=300)
        hits += found.low < 0 < found.high
    assert 0.89 <= hits / 200 <= 0.99


def test_one_run_of_the_paper_agrees_within_our_range_and_a_mean_within_our_interval():
    values = np.linspace(0.6, 0.8, 50)
    assert base.agrees(values, 0.78, single=True).verdict == HOLDS
    assert base.agrees(values, 0.76, single=False).verdict == IN_PART
    assert base.agrees(values, 0.705, single=False).verdict == HOLDS
    assert base.agrees(values, 0.84, single=True).verdict == IN_PART
    assert base.agrees(values, 0.9, single=True).verdict == FAILS
    assert base.agrees([0.2, 0.9], 0.55, single=False).verdict == IN_PART  # too vague to agree


def test_an_interval_is_wider_for_the_best_of_several():
    """Of seven that are equal, the best is taken for better in a twentieth of all cases at most."""
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(1000):
        runs = rng.standard_normal((8, 7))
        best = runs[:, runs.mean(axis=0).argmax()]
        hits += base.above(base.mean(best - rng.standard_normal(8), of=7)) == HOLDS
    assert hits / 1000 < 0.05


def test_runs_with_the_same_starts_are_resampled_together():
    common = np.random.default_rng(0).standard_normal(40)
    paired = base.bootstrap(lambda a, b: float(a.mean() - b.mean()), common + 1, common)
    alone = base.bootstrap(lambda a, b: float(a.mean() - b.mean()), common + 1, common, paired=False)
    assert paired.high - paired.low < 1e-9 < 0.3 < alone.high - alone.low


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


def test_the_closest_reading_is_told_with_how_often_it_is():
    rng = np.random.default_rng(0)
    values = 0.7 + 0.1 * rng.standard_normal((3, 1, 30))
    values[1] += 0.2
    data = xr.Dataset(
        {"readings": (("reading", "reading_method", "reading_run"), values)},
        coords={"reading": ["a", "b", "c"], "reading_method": ["Adam"]},
    )
    table = common.readings_table(data, {"Adam": 0.7})
    often = {row[0]: float(row[-1].removesuffix(" %")) for row in table.rows[1:]}
    assert often["b"] == 0
    assert often["a"] + often["c"] == pytest.approx(100, abs=1)
    assert min(often["a"], often["c"]) > 5


# Data


def test_axes_become_dimensions():
    """Methods and runs where `select` finds them."""
    from heatbath.experiments.common import by_axes, scores

    run = hb.sweep(
        hb.datasets.spirals(n_train=50, n_test=50), hb.Dense((5,)),
        hb.AdLaLa(tau=[1e-5, 1e-4], sigma=[0.0, 0.1]),
        steps=20, batch=5, chains=3, record=[10, 20],
    )  # fmt: skip
    found = scores(run)["accuracy"]
    assert found.dims == ("tau", "sigma", "run", "record")
    own = run.select(tau=1e-4, sigma=0.0).accuracy()
    assert np.array_equal(found.sel(tau=1e-4, sigma=0.0), own)
    theta = by_axes(run, run.data["theta"])
    assert np.array_equal(theta.sel(tau=1e-5, sigma=0.1), run.select(tau=1e-5, sigma=0.1).theta)


def test_single_data_move_the_weights_by_their_gradient():
    torch = pytest.importorskip("torch")
    from heatbath.experiments.points import effects as norms

    network = hb.Dense((7,))
    theta = network.start(2, 1, [0], 3)[0]
    X, y = np.random.default_rng(0).standard_normal((4, 2)), np.array([0.0, 1.0, 1.0, 0.0])
    model = network.to_torch(theta, 2, 1)
    for i, found in enumerate(norms(theta, X, y, 7)):
        model.zero_grad()
        loss = torch.nn.BCEWithLogitsLoss()
        loss(model(torch.tensor(X[i : i + 1]))[:, 0], torch.tensor(y[i : i + 1])).backward()
        gradient = torch.cat([p.grad.ravel() for p in model.parameters()])
        assert found == pytest.approx(gradient.norm().item(), rel=1e-10)


# Running and reporting

FAST = ("data", "line-spiral", "points")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("reproduction")
    done = CliRunner().invoke(app, ["reproduce", *FAST, "--quick", "--folder", str(place)])
    assert done.exit_code == 0, done.output
    return place / "quick"


def test_results_are_kept_and_not_made_again(folder, monkeypatch):
    """Only where settings or code have changed."""
    assert all(
        (folder / name / file).exists() for name in FAST for file in ("data.nc", "picture.png", "picture.svg")
    )
    before = {name: (folder / name / "data.nc").read_bytes() for name in FAST}
    done = CliRunner().invoke(app, ["reproduce", *FAST, "--quick", "--folder", str(folder.parent)])
    assert done.exit_code == 0, done.output
    assert {name: (folder / name / "data.nc").read_bytes() for name in FAST} == before
    experiment = experiments.find("points")
    assert runner.finished(experiment, folder / "points", quick=True) is not None
    assert runner.finished(experiment, folder / "points", quick=False) is None
    monkeypatch.setitem(experiment.quick, "runs", 3)
    assert runner.finished(experiment, folder / "points", quick=True) is None


def test_results_that_were_read_again_say_the_same(folder):
    experiment = experiments.find("line-spiral")
    fresh = experiment.run(base.Settings(**experiment.chosen(True)), None)
    kept = runner.finished(experiment, folder / "line-spiral", quick=True)
    assert [claim.check(fresh) for claim in experiment.claims] == kept.findings


def test_the_summary_has_every_claim_with_its_verdict(folder):
    told = json.loads((folder / "points" / "result.json").read_text())
    assert [claim["claim"] for claim in told["claims"]] == [c.text for c in experiments.find("points").claims]
    assert {claim["verdict"] for claim in told["claims"]} <= {HOLDS, IN_PART, FAILS}
    assert told["settings"]["runs"] == "2"
    assert told["quick"] is True


def test_the_report_is_one_file_with_all_in_it(folder):
    page = (folder / "report.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert page.count('src="data:image/png;base64,') == len(FAST)
    for name in FAST:
        experiment = experiments.find(name)
        assert all(page.count(report.escape(claim.text)) == 2 for claim in experiment.claims)
    assert "Quick runs" in page


def test_only_the_report_can_be_written_again(folder, tmp_path):
    (folder / "report.html").unlink()
    docs = tmp_path / "docs"
    arguments = [
        "reproduce",
        *FAST,
        "--quick",
        "--folder",
        str(folder.parent),
        "--only-report",
        "--docs",
        str(docs),
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert (folder / "report.html").exists()
    page = (docs / "reproduction.md").read_text()
    assert all(
        f"reproduction/{name}.png" in page and (docs / f"reproduction/{name}.png").exists() for name in FAST
    )


def test_what_cannot_be_run_is_said_in_one_line(tmp_path, monkeypatch):
    missing = CliRunner().invoke(app, ["reproduce", "nothing"])
    assert missing.exit_code == 2
    assert missing.stderr.startswith("heatbath: there is no experiment nothing: accepted are temperature, ")
    empty = CliRunner().invoke(app, ["reproduce", "--only-report", "--folder", str(tmp_path / "none")])
    assert empty.exit_code == 2
    assert "nothing is finished" in empty.stderr
    monkeypatch.setenv("HEATBATH_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("heatbath.datasets.digits.MIRRORS", ("http://127.0.0.1:9",))
    done = CliRunner().invoke(app, ["reproduce", "line-mnist", "data", "--quick", "--folder", str(tmp_path)])
    assert done.exit_code == 1
    assert "line-mnist was not run" in done.output
    assert "line-mnist was not run" in (tmp_path / "quick" / "report.html").read_text()
    (tmp_path / "file").write_text("")
    wrong = CliRunner().invoke(app, ["reproduce", "data", "--folder", str(tmp_path / "file")])
    assert wrong.exit_code == 2
    assert wrong.stderr.count("\n") == 1


def test_a_damaged_result_is_made_again_and_kept_aside(tmp_path):
    place = tmp_path / "quick" / "data"
    for damage in (None, b"nothing"):
        if damage:
            (place / "data.nc").write_bytes(damage)
        done = CliRunner().invoke(app, ["reproduce", "data", "--quick", "--folder", str(tmp_path)])
        assert done.exit_code == 0, done.output
    assert runner.finished(experiments.find("data"), place, quick=True)
    assert (place / "damaged-data.nc").read_bytes() == b"nothing"


def test_the_report_has_all_that_is_finished_and_names_what_is_not(folder):
    done = CliRunner().invoke(app, ["reproduce", "data", "--quick", "--folder", str(folder.parent)])
    assert done.exit_code == 0
    page = (folder / "report.html").read_text()
    assert page.count('src="data:image/png;base64,') == len(FAST)
    assert page.count("was not run") == len(experiments.NAMES) - len(FAST)


def test_code_that_results_depend_on_is_in_the_fingerprint(monkeypatch):
    experiment = experiments.find("points")
    before = runner.fingerprint(experiment, True)
    monkeypatch.setattr(runner, "_library", lambda: "another library")
    other = runner.fingerprint(experiment, True)
    assert other != before
    monkeypatch.setattr(runner, "_source", lambda module: module)
    assert runner.fingerprint(experiment, True) not in (before, other)


def test_the_list_has_all_names_and_claims():
    done = CliRunner().invoke(app, ["reproduce", "--list"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert all(name in done.output for name in experiments.NAMES)


def test_ctrl_c_ends_all_and_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(s, tell):
        raise KeyboardInterrupt

    experiment = experiments.find("points")
    monkeypatch.setattr("heatbath.experiments.points.EXPERIMENT", replace(experiment, run=interrupted))
    done = CliRunner().invoke(app, ["reproduce", "data", "points", "--quick", "--folder", str(tmp_path)])
    assert done.exit_code == 130
    assert "go on with: heatbath" in done.output
    assert (tmp_path / "quick" / "data" / "data.nc").exists()
    assert not (tmp_path / "quick" / "points" / "data.nc").exists()


def test_a_run_that_ctrl_c_cut_short_is_no_result():
    from heatbath.experiments.common import complete

    run = hb.train(hb.datasets.spirals(n_train=50), hb.Dense((5,)), hb.LOL(), steps=10, batch=5)
    assert complete(run) is run
    longer = hb.Run(run.plan.extended(10, 10, None), run.step, run.data)
    with pytest.raises(KeyboardInterrupt):
        complete(longer)


@pytest.mark.parametrize("name", [name for name in experiments.NAMES if name not in FAST])
def test_every_experiment_runs_quickly(name, tmp_path):
    """From its settings to claims, tables and a picture."""
    if name in ("line-mnist", "surface") and "HEATBATH_DATA" not in os.environ:
        pytest.skip("MNIST is not here: set HEATBATH_DATA")
    (result,) = runner.reproduce([name], tmp_path, quick=True, again=False, tell=lambda name: None)
    assert isinstance(result, runner.Result), result
    assert all(found.ours and found.verdict in report.MARKS for found in result.findings)
    assert all(len(row) == len(table.columns) for table in result.tables for row in table.rows)
    assert result.picture.stat().st_size > 5000
