"""What every method must do, those of others too: one function for each claim, which takes a method.

`test_contracts.py` runs them over all methods that are registered, `test_outside.py` over one that is not in
the package.
"""

import json
import math
import pickle
from dataclasses import fields, replace
from inspect import signature

import numpy as np
import pytest

import heatbath as hb
from heatbath.methods import Method, coefficients
from heatbath.methods.schedules import Linear, Piecewise
from tests.engine import test_ensemble
from tests.optional import optional

ht = optional("heatbath.torch")
test_optimizer = optional("tests.torch.optim.test_optimizer")

NETWORK = hb.MLP((4,), activation="tanh")
LAYERS = {"first": (4, 2), "last": (2, 1)}


def example(kind: type[Method], **chosen: object) -> Method:
    """Return a method of this kind, with a prior and coefficients in the middle of what is accepted.

    Coefficients that take the place of others are left out.
    """
    given = {}
    for f in fields(kind):
        accepted = f.metadata.get("accepted")
        if accepted is not None and f.name not in ("xi", "frequency", "damping"):
            given[f.name] = 0.5 if math.isfinite(accepted.high) or f.name == "gamma" else 0.02
    return kind(**{**given, **chosen})


def variants(method: Method) -> list[Method]:
    """Return the method, and copies of it with every other choice or coefficient that it has."""
    found = [method]
    if instead := method.idle & set(coefficients(type(method))):
        found.append(replace(method, **dict.fromkeys(instead, 0.5)))
    for f in fields(method):
        others = f.metadata.get("choices", ())[1:]
        found += [replace(method, **{f.name: other}) for other in others]
    return found


def problem():
    return hb.datasets.spirals(turns=1, n_train=40, n_test=20, seed=3)


def gradient(theta, batch):
    return np.sin(theta) + 0.5 * theta + 0.3 * np.cos(batch + theta)


def train(method, steps=40, h=0.05, **options):
    partition = method if isinstance(method, hb.Partition) else hb.Partition(method, h)
    options = {"record": 4, "seed": 2, "dtype": "float64", "threads": 1} | options
    return hb.train(problem(), NETWORK, partition, steps, 10, 2, **options)


def check_same_runs(one: hb.Run, two: hb.Run) -> None:
    """Check that two runs have the same steps and data."""
    assert one.step == two.step
    assert one.data.identical(two.data)


# The claims


def is_a_frozen_value(method):
    copy = pickle.loads(pickle.dumps(method))
    assert copy == method
    assert hash(copy) == hash(method)
    assert copy is not method
    with pytest.raises(AttributeError):
        method.weight_decay = 1.0


def refuses_bad_coefficients_by_name(method):
    for name in coefficients(type(method)):
        label = f"{type(method).__name__}: {name}"
        left_out = [] if name == method.thermal and method.may_leave_temperature else [None]
        for bad in ("1", True, 1j, {"tau": 1}, *left_out):
            with pytest.raises(TypeError, match=rf"{label} must be a number \(.*\), a schedule, or a list"):
                replace(method, **{name: bad})
        for bad in (math.nan, -math.inf, [], [0.5, math.nan]):
            with pytest.raises(ValueError, match=label):
                replace(method, **{name: bad})


def goes_on_from_its_state_in_the_reference(method):
    start = np.linspace(-1, 1, 27).reshape(3, 9)
    partition = hb.Partition(method, 0.1)
    whole, first = (hb.Reference(gradient, start, partition, LAYERS, seed=3) for _ in range(2))
    whole.advance(12)
    first.advance(5)
    rest = hb.Reference(gradient, first.state, partition, LAYERS, seed=3)
    rest.advance(7)
    for name in ("theta", "p", "second"):
        np.testing.assert_array_equal(getattr(rest.state, name), getattr(whole.state, name))
    for name, xi in whole.state.xi.items():
        np.testing.assert_array_equal(rest.state.xi[name], xi)
    assert method.moves == bool(np.any(whole.state.theta != start))


def has_a_prior_that_acts(method):
    if not method.has_prior:
        return
    start = np.linspace(-1, 1, 27).reshape(3, 9)
    ends = []
    for decay in (0.0, 0.3):
        chains = hb.Reference(gradient, start, hb.Partition(method.with_prior(decay), 0.1), LAYERS, seed=3)
        chains.advance(5)
        ends.append(chains.state.theta)
    assert np.abs(ends[0] - ends[1]).max() > 1e-4


def is_followed_by_the_engine(method):
    for variant in variants(method):
        engine, reference = test_ensemble.runs(hb.Partition(variant, 0.05))
        test_ensemble.assert_same_trajectory(engine, reference)


def is_followed_by_the_engine_on_schedules(method):
    values = {name: getattr(method, name) for name in coefficients(type(method))}
    changing = {
        n: Linear(v, 0.9 * v, 60) for n, v in values.items() if isinstance(v, float) and math.isfinite(v)
    }
    partition = hb.Partition(replace(method, **changing), Piecewise([0.05, Linear(0.04, 0.03, 90)], [30]))
    test_ensemble.assert_same_trajectory(*test_ensemble.runs(partition), steps=100)


def is_followed_in_float32(method):
    engine, reference = test_ensemble.runs(hb.Partition(method, 0.05), dtype=np.float32)
    engine.advance(1)
    reference.advance(1)
    np.testing.assert_allclose(engine.chains.theta, reference.state.theta, rtol=0, atol=1e-5)


def is_followed_by_both_ways_of_torch(method):
    for variant in variants(method):
        if variant.seen_at_kick:
            continue  # the letters before the kick are missing from an optimiser's first step
        for fused in (True, False):
            partition, model = hb.Partition(variant, 0.05), test_optimizer.network()
            optimizer = test_optimizer.by_layer(model, partition, seed=5, fused=fused)
            expected = test_optimizer.advance_reference(partition, 100, seed=5)
            assert test_optimizer.difference_after(100, model, optimizer, expected) < 1e-10
            (group,) = optimizer.param_groups
            for xi in expected.xi.values():
                np.testing.assert_allclose(np.ravel(group["xi"]), xi[0], rtol=1e-9, atol=1e-12)


def is_a_class_of_torch_with_the_same_arguments(method):
    pytest.importorskip("torch")
    kind = getattr(ht, type(method).__name__)
    ours, theirs = signature(type(method)).parameters, signature(kind).parameters
    assert list(theirs)[:2] == ["params", "lr"]
    assert {name: p.default for name, p in ours.items()} == {
        name: p.default for name, p in theirs.items() if name in ours
    }
    model = test_optimizer.network()
    given = {f.name: getattr(method, f.name) for f in fields(method)}
    optimizer = kind(model, 0.05, **given, seed=5)
    before = test_optimizer.vector(model)
    optimizer.step(test_optimizer.closure_of(model, optimizer))
    assert bool(np.any(test_optimizer.vector(model) != before)) == method.moves


def survives_a_state_dict_of_torch(method):
    kind = getattr(ht, type(method).__name__)
    given = {f.name: getattr(method, f.name) for f in fields(method)}
    models = [test_optimizer.network(), test_optimizer.network()]
    whole, first = (kind(model, 0.05, **given, seed=5) for model in models)
    for model, optimizer in zip(models, (whole, first), strict=True):
        for _ in range(3):
            optimizer.step(test_optimizer.closure_of(model, optimizer))
    rest = kind(models[1], 0.05, **given, seed=5)
    rest.load_state_dict(first.state_dict())
    for model, optimizer in zip(models, (whole, rest), strict=True):
        for _ in range(3):
            optimizer.step(test_optimizer.closure_of(model, optimizer))
    np.testing.assert_array_equal(test_optimizer.vector(models[0]), test_optimizer.vector(models[1]))


def is_swept_point_by_point(method):
    names = [n for n in coefficients(type(method)) if isinstance(getattr(method, n), float)]
    if not names:
        return
    name = names[0]
    values = [getattr(method, name), 0.5 * getattr(method, name)]
    grid = hb.Partition(replace(method, **{name: values}), 0.05)
    sweep = hb.sweep(problem(), NETWORK, grid, 40, 10, record=4, seed=2, dtype="float64", threads=1)
    for value in values:
        one = train(replace(method, **{name: value}), start=None)
        np.testing.assert_array_equal(sweep.select(**{name: value}).theta, one.theta[:1])


def is_saved_loaded_resumed_and_replayed(method, tmp_path):
    whole = train(method, 40)
    part = train(method, 25, record=[10, 25])
    part.save(tmp_path / "run.nc")
    loaded = hb.load(tmp_path / "run.nc")
    check_same_runs(loaded, part)
    assert loaded.partition == part.partition
    resumed = loaded.resume(15)
    for name in ("theta", "p"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name))
    check_same_runs(resumed.replay(), resumed)


def is_resumed_with_other_coefficients_and_replayed(method, tmp_path):
    names = [n for n in coefficients(type(method)) if isinstance(getattr(method, n), float)]
    changed = replace(method, **{n: 0.9 * getattr(method, n) for n in names})
    run = train(method, 20).resume(20, hb.Partition(changed, 0.04))
    run.save(tmp_path / "run.nc")
    check_same_runs(hb.load(tmp_path / "run.nc").replay(), run)
    if method.moves:
        assert np.any(run.theta != train(method, 20).resume(20).theta)


def is_known_to_the_command_line(method, tmp_path, capsys, monkeypatch):
    from heatbath.cli import main
    from heatbath.cli.report import figures

    monkeypatch.setattr(figures, "draw_figures", lambda *arguments: [])
    monkeypatch.chdir(tmp_path)
    text = ",".join(
        f"{f.name}={getattr(method, f.name)}" for f in fields(method) if getattr(method, f.name) != f.default
    )
    spelled = f"{type(method).title.lower()}:h=0.05,{text}"
    told = [
        "train", "--problem", "spirals", "--turns", "1", "--n-train", "40", "--n-test", "20",
        "--problem-seed", "3", "--hidden", "4", "--activation", "tanh", "--method", spelled,
        "--steps", "40", "--batch", "10", "--chains", "2", "--seed", "2", "--record", "4",
        "--dtype", "float64", "--out", "run", "--json",
    ]  # fmt: skip
    with pytest.raises(SystemExit) as end:
        main(told)
    output = capsys.readouterr()
    assert end.value.code == 0, output.err
    assert json.loads(output.out)["rows"]
    np.testing.assert_array_equal(hb.load("run/run.nc").theta, train(method).theta)


def runs_beside_every_other_method(method):
    others = [hb.Langevin(0.5, 1e-3), hb.AdaptiveLangevin(), hb.Adam(), hb.Frozen()]
    for other in others:
        partition = hb.Partition({"hidden": method, "output": other}, 0.05)
        test_ensemble.assert_same_trajectory(*test_ensemble.runs(partition), steps=50)


CONTRACTS = [
    is_a_frozen_value,
    refuses_bad_coefficients_by_name,
    goes_on_from_its_state_in_the_reference,
    has_a_prior_that_acts,
    is_followed_by_the_engine,
    is_followed_by_the_engine_on_schedules,
    is_followed_in_float32,
    is_followed_by_both_ways_of_torch,
    is_a_class_of_torch_with_the_same_arguments,
    survives_a_state_dict_of_torch,
    is_swept_point_by_point,
    is_saved_loaded_resumed_and_replayed,
    is_resumed_with_other_coefficients_and_replayed,
    is_known_to_the_command_line,
    runs_beside_every_other_method,
]
