"""The loss on lines and surfaces, and the barriers there."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
import xarray as xr
from scipy.ndimage import label

import heatbath as hb
from heatbath import landscape
from heatbath.landscape import barrier, line, line_torch, saddle, surface, surface_torch
from tests.runs import SMALL, SPIRALS

ALPHAS = np.linspace(0, 1, 7)
BETAS = np.linspace(0, 1, 4)
FINE = np.linspace(0, 1, 101)


def problem_of(task, inputs, rows=300, draws=2, seed=1):
    """Random data, more than the engine takes in one pass."""
    rng = np.random.default_rng(seed)
    columns = 3 if task == "regression" else 1
    X = rng.standard_normal((2, draws, rows, inputs))
    Y = rng.standard_normal((2, draws, rows, columns))
    if task != "regression":
        Y = rng.integers(0, 2 if task == "binary" else 3, Y.shape).astype(float)
    names = ("no", "yes") if task == "binary" else ("a", "b", "c")
    features = tuple(f"x{i}" for i in range(inputs))
    return hb.datasets.Problem("random", task, X[0], Y[0], X[1], Y[1], features, names)


def thetas(problem, network, count, kind=np.float64):
    starts = network.start(problem.inputs, problem.outputs, np.arange(count), seed=3)
    return list((3 * starts).astype(kind))


def said(problem, network, theta, split="test", draw=0):
    """Loss and accuracy by the definition, in NumPy."""
    X, Y = getattr(problem, f"X_{split}")[draw], getattr(problem, f"Y_{split}")[draw]
    z = network.forward(theta, X, problem.outputs)
    if problem.task == "regression":
        return 0.5 * np.sum((z - Y) ** 2) / len(Y), np.nan
    if problem.task == "binary":
        z = np.hstack([np.zeros_like(z), z])
    labels = Y[:, 0].astype(int)
    log = z - np.logaddexp.reduce(z, axis=1, keepdims=True)
    return -log[np.arange(len(z)), labels].mean(), (z.argmax(axis=1) == labels).mean()


CASES = [
    ("binary", 2, hb.Dense((20,))),
    ("binary", 3, hb.Dense(())),
    ("classes", 40, hb.Dense((30,), "tanh")),
    ("classes", 2, hb.Dense((20, 40, 5))),
    ("regression", 20, hb.Dense((33, 18), "tanh")),
    ("regression", 17, hb.Dense((), "identity")),
]


@pytest.mark.parametrize(("task", "inputs", "network"), CASES)
@pytest.mark.parametrize(("kind", "error"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_a_line_has_the_losses_of_its_definition(task, inputs, network, kind, error):
    problem = problem_of(task, inputs)
    a, b = thetas(problem, network, 2, kind)
    alphas = [-0.3, 0.0, 0.4, 1.0, 1.2]
    told = line(problem, network, a, b, alphas, "train", draw=1)
    assert told["loss"].dims == told["accuracy"].dims == ("alpha",)
    for alpha in alphas:
        loss, accuracy = said(problem, network, (1 - alpha) * np.float64(a) + alpha * b, "train", draw=1)
        here = told.sel(alpha=alpha)
        assert float(here["loss"]) == pytest.approx(loss, rel=error)
        room = 0 if kind is np.float64 else 1 / 300  # a datum on the boundary
        assert float(here["accuracy"]) == pytest.approx(accuracy, abs=room, nan_ok=True)


@pytest.mark.parametrize(("task", "inputs", "network"), CASES)
@pytest.mark.parametrize(("kind", "error"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_a_surface_has_the_losses_of_its_definition(task, inputs, network, kind, error):
    problem = problem_of(task, inputs)
    start, a, b = thetas(problem, network, 3, kind)
    told = surface(problem, network, start, a, b, ALPHAS, BETAS)
    assert told["loss"].dims == ("alpha", "beta")
    start, a, b = (np.float64(theta) for theta in (start, a, b))
    for alpha in ALPHAS[::2]:
        first, second = alpha * (a - start) + start, alpha * (b - start) + start
        for beta in BETAS:
            loss, _ = said(problem, network, beta * first + (1 - beta) * second)
            assert float(told["loss"].sel(alpha=alpha, beta=beta)) == pytest.approx(loss, rel=error)


def test_the_corners_of_a_surface_are_the_start_and_the_minima():
    start, a, b = thetas(SPIRALS, SMALL, 3)
    loss = surface(SPIRALS, SMALL, start, a, b, ALPHAS, BETAS)["loss"]
    assert (loss.sel(alpha=0) == loss.sel(alpha=0, beta=0)).all()
    assert float(loss.sel(alpha=0, beta=1)) == pytest.approx(said(SPIRALS, SMALL, start)[0], rel=1e-12)
    assert float(loss.sel(alpha=1, beta=1)) == pytest.approx(said(SPIRALS, SMALL, a)[0], rel=1e-12)
    assert float(loss.sel(alpha=1, beta=0)) == pytest.approx(said(SPIRALS, SMALL, b)[0], rel=1e-12)
    across = line(SPIRALS, SMALL, b, a, BETAS)["loss"]
    np.testing.assert_allclose(loss.sel(alpha=1), across, rtol=1e-12)


def test_float32_parameters_are_evaluated_in_float32_and_others_in_float64():
    a, b = thetas(SPIRALS, SMALL, 2, np.float32)
    single = line(SPIRALS, SMALL, a, b, ALPHAS)["loss"].values
    double = line(SPIRALS, SMALL, a.astype(float), b, ALPHAS)["loss"].values
    assert not np.array_equal(single, double)
    np.testing.assert_allclose(single, double, rtol=1e-5)


def trained(**options):
    problem = hb.datasets.spirals(turns=2, n_train=100, n_test=100, draws=2)
    return hb.train(problem, SMALL, hb.AdLaLa(h=0.25), steps=200, batch=20, chains=4, **options)


def test_a_run_s_chains_have_lines_that_end_in_its_records_each_on_its_own_data():
    run = trained(samples=3, burn_in=100)
    start = SMALL.start(2, 1, run.data["repeat"].values, seed=0).astype(np.float32)
    for split in ("train", "test"):
        told = line(run.problem, SMALL, start, run.data["theta"], [0, 0.5, 1], split, run.data["draw"])
        assert told["loss"].dims == ("chain", "alpha")
        assert told["draw"].values.tolist() == [0, 1, 0, 1]
        end = told.sel(alpha=1)
        np.testing.assert_allclose(end["loss"], run.loss(split).isel(record=-1), rtol=1e-5)
        np.testing.assert_allclose(end["accuracy"], run.accuracy(split).isel(record=-1), atol=0.011)
    told = line(run.problem, SMALL, run.data["theta"], run.data["samples"], ALPHAS, draw=run.data["draw"])
    assert told["loss"].dims == ("chain", "sample", "alpha")
    one = line(run.problem, SMALL, run.theta[3], run.data["samples"].values[3, 1], ALPHAS, draw=1)
    assert np.array_equal(told["loss"].isel(chain=3, sample=1), one["loss"])


def test_two_methods_of_a_comparison_are_the_ends_of_lines_by_chain():
    methods = {"AdLaLa": hb.AdLaLa(h=0.25), "Adam": hb.Partition(hb.Adam(), h=0.005)}
    both = hb.compare(SPIRALS, SMALL, methods, steps=20, batch=20, chains=3)
    one, two = (both.select(method=name).data["theta"] for name in methods)
    told = line(SPIRALS, SMALL, one, two, ALPHAS)
    assert told["loss"].dims == ("chain", "alpha")
    own = line(SPIRALS, SMALL, one.values[2], two.values[2], ALPHAS)
    assert np.array_equal(told["loss"].isel(chain=2), own["loss"])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_many_pairs_at_once_are_as_one_by_one_bit_for_bit(kind):
    problem = problem_of("classes", 40)
    network = hb.Dense((30,))
    start, *ends = thetas(problem, network, 7, kind)
    a, b = np.array(ends[:3]), np.array(ends[3:])
    draws = [1, 0, 1]
    lines = line(problem, network, a, b, ALPHAS, draw=draws)
    surfaces = surface(problem, network, start, a, b, ALPHAS, BETAS, draw=draws)
    assert surfaces["loss"].dims == ("chain", "alpha", "beta")
    for chain, draw in enumerate(draws):
        own = line(problem, network, a[chain], b[chain], ALPHAS, draw=draw)
        assert lines.isel(chain=chain).equals(own)
        own = surface(problem, network, start, a[chain], b[chain], ALPHAS, BETAS, draw=draw)
        assert surfaces.isel(chain=chain).equals(own)
    assert not np.array_equal(lines["loss"][0], line(problem, network, a[0], b[0], ALPHAS)["loss"])


@pytest.mark.parametrize(("inputs", "hidden"), [(40, (30,)), (2, (20, 20))])
def test_the_number_of_threads_does_not_matter_nor_how_the_work_is_cut(inputs, hidden, monkeypatch):
    problem = problem_of("classes", inputs)
    network = hb.Dense(hidden)
    corners = thetas(problem, network, 3, np.float32)
    one = surface(problem, network, *corners, ALPHAS, BETAS, threads=1)
    for threads in (2, 3):
        assert surface(problem, network, *corners, ALPHAS, BETAS, threads=threads).identical(one)
    monkeypatch.setattr(landscape.dense, "PATIENCE", 0.0)
    assert surface(problem, network, *corners, ALPHAS, BETAS, threads=3).identical(one)


def test_a_pair_with_a_diverged_chain_has_nan_and_the_others_do_not():
    a, b, c = thetas(SPIRALS, SMALL, 3)
    for wrong in (np.nan, np.inf):
        lost = b.copy()
        lost[5] = wrong
        told = line(SPIRALS, SMALL, a, np.array([c, lost]), ALPHAS)
        assert told.isel(chain=1)["loss"].isnull().all()
        assert told.isel(chain=1)["accuracy"].isnull().all()
        assert told.isel(chain=0).equals(line(SPIRALS, SMALL, a, c, ALPHAS))


def test_ctrl_c_stops_between_two_calls(monkeypatch):
    calls = []

    def spread(work, count, threads):
        calls.append(count)
        work(0, count)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(landscape.dense, "spread", spread)
    monkeypatch.setattr(landscape.dense, "PATIENCE", 0.0)  # as if each call took very long
    with pytest.raises(KeyboardInterrupt):
        line(SPIRALS, SMALL, *thetas(SPIRALS, SMALL, 2), np.linspace(0, 1, 50), threads=2)
    assert calls == [2, 2, 2]


def test_blas_has_one_thread_from_the_first_call_of_a_process_on():
    code = """
import numpy as np
from threadpoolctl import threadpool_info
import heatbath as hb
from heatbath import landscape

def spread(work, count, threads):
    work(0, count)  # whatever it needs is loaded now
    used = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
    assert used and set(used) == {1}, used
    print("checked")

landscape.dense.spread = spread
rng = np.random.default_rng(0)
problem = hb.datasets.from_arrays(rng.standard_normal((50, 40)), rng.integers(0, 2, 50))
network = hb.Dense((30, 30))
landscape.line(problem, network, *network.start(40, 1, [0, 1], 0), [0, 1], "train")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "checked" in done.stdout


# Barriers


def curve_of(function, alphas=FINE):
    return xr.DataArray(function(alphas), {"alpha": alphas}, "alpha", "loss")


@pytest.mark.parametrize(
    "function", [lambda a: (a - 0.3) ** 2, lambda a: 1 - a, lambda a: a**3, lambda a: 0 * a + 2.0]
)
def test_there_is_no_barrier_on_a_convex_or_monotone_curve(function):
    assert float(barrier(curve_of(function))["height"]) == 0


def test_the_barrier_of_a_double_well_is_that_of_its_top():
    tilted = curve_of(lambda a: ((2 * a - 1) ** 2 - 1) ** 2 + 0.5 * (a == 1) - 0.25 * (a == 0))
    told = barrier(tilted)
    expected = {"loss": 1.0, "alpha": 0.5, "from_a": 1.25, "from_b": 0.5, "height": 0.5}
    assert {name: float(told[name]) for name in told} == pytest.approx(expected)
    assert barrier(tilted.to_dataset()).identical(told)


def test_what_lies_beyond_the_ends_is_no_barrier():
    alphas = np.arange(-0.3, 1.35, 0.1)  # 0 is not exactly among them
    assert 0 not in alphas
    told = barrier(curve_of(lambda a: (a - 0.5) ** 4, alphas))
    assert float(told["height"]) == pytest.approx(0)
    assert float(told["loss"]) == pytest.approx(0.5**4)


def test_barriers_keep_other_dimensions_and_a_loss_that_is_no_number_is_infinitely_high():
    curve = xr.concat([curve_of(lambda a, k=k: k * a * (1 - a)) for k in (1, 4, 4, 4)], dim="chain").copy()
    curve = curve.assign_coords(chain=[5, 6, 7, 8])
    curve[2, 20] = np.nan
    curve[3, 100] = np.nan
    told = barrier(curve)
    np.testing.assert_allclose(told["height"], [0.25, 1.0, np.inf, np.nan])
    np.testing.assert_allclose(told["alpha"], [0.5, 0.5, 0.2, np.nan])
    assert told["chain"].values.tolist() == [5, 6, 7, 8]


def surface_of(function, points=41):
    axis = np.linspace(0, 1, points)
    alpha, beta = np.meshgrid(axis, axis, indexing="ij")
    return xr.DataArray(function(alpha, beta), {"alpha": axis, "beta": axis}, ("alpha", "beta"), "loss")


def test_a_bowl_and_a_valley_have_no_pass_above_the_minima():
    bowl = surface_of(lambda a, b: (a - 1) ** 2 + (b - 0.4) ** 2)
    around = surface_of(lambda a, b: ((1 - a) ** 2 + (2 * b - 1) ** 2 - 1) ** 2)  # low on half a circle
    fine = surface_of(lambda a, b: np.abs(a - 0.5) < 0.3)  # a ridge that need not be crossed
    for loss in (bowl, fine):
        assert float(saddle(loss)["height"]) == 0
    assert float(barrier(around.sel(alpha=1, drop=True).rename(beta="alpha"))["height"]) == 1
    assert float(saddle(around)["height"]) < 0.05


def test_the_pass_of_a_double_well_is_where_it_is_lowest():
    loss = surface_of(
        lambda a, b: ((2 * b - 1) ** 2 - 1) ** 2 * (1 + 4 * (a - 0.75) ** 2) + 0.3 * b * (a == 1)
    )
    told = saddle(loss)
    expected = {"loss": 1, "alpha": 0.75, "beta": 0.5, "height": 0.7, "from_a": 0.7, "from_b": 1}
    assert {name: float(told[name]) for name in told} == pytest.approx(expected)
    assert saddle(loss.T).identical(told)
    assert float(barrier(loss.sel(alpha=1, drop=True).rename(beta="alpha"))["height"]) > float(told["height"])


def test_the_pass_is_the_lowest_level_at_which_the_minima_are_connected():
    """Against connected components, on random grids, many at once."""
    rng = np.random.default_rng(0)
    loss = surface_of(lambda a, b: 0 * a, points=9).expand_dims(draw=200).copy()
    loss.values[:] = rng.random(loss.shape)
    told = saddle(loss)
    for draw, values in enumerate(loss.values):
        for level in np.sort(values, axis=None):
            parts, _ = label(values <= level)
            if parts[-1, -1] == parts[-1, 0] != 0:
                break
        here = told.isel(draw=draw)
        assert float(here["loss"]) == level
        assert float(loss.isel(draw=draw).sel(alpha=here["alpha"], beta=here["beta"])) == level
        assert float(here["height"]) == level - max(values[-1, -1], values[-1, 0])
        assert float(here["from_a"]) == level - values[-1, -1]
        assert float(here["from_b"]) == level - values[-1, 0]


def test_there_is_no_way_through_what_is_not_a_number():
    loss = surface_of(lambda a, b: np.where(np.abs(b - 0.5) < 0.01, np.nan, 1.0))
    assert float(saddle(loss)["height"]) == np.inf
    loss.loc[{"alpha": 0.5}] = 3.0
    assert float(saddle(loss)["height"]) == 2
    loss.loc[{"alpha": 1, "beta": 0}] = np.nan
    assert all(np.isnan(value) for value in saddle(loss).values())


# Torch


def model_of(theta, problem, network):
    return network.to_torch(theta, problem.inputs, problem.outputs)


@pytest.mark.parametrize(("kind", "error"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_a_torch_module_has_the_losses_of_the_same_dense_network(kind, error):
    start, a, b = thetas(SPIRALS, SMALL, 3, kind)
    x, y = (torch.as_tensor(v[0].astype(kind)) for v in (SPIRALS.X_test, SPIRALS.Y_test))

    def loss_function(model):
        return torch.nn.functional.binary_cross_entropy_with_logits(model(x), y)

    states = [model_of(theta, SPIRALS, SMALL).state_dict() for theta in (start, a, b)]
    model = model_of(start, SPIRALS, SMALL)
    told = line_torch(model, loss_function, *states[:2], ALPHAS)
    own = line(SPIRALS, SMALL, start, a, ALPHAS)
    np.testing.assert_allclose(told["loss"], own["loss"], rtol=error)
    assert told["loss"].dims == ("alpha",)
    told = surface_torch(model, loss_function, *states, ALPHAS, BETAS)
    own = surface(SPIRALS, SMALL, start, a, b, ALPHAS, BETAS)
    np.testing.assert_allclose(told["loss"], own["loss"], rtol=error)
    assert told["loss"].coords.identical(own["loss"].coords)


class Tied(torch.nn.Module):
    """Two layers with one weight, a recurrent one, a BatchNorm and a buffer that is no part of the state."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.recurrent = torch.nn.LSTM(3, 3, batch_first=True)
        self.norm = torch.nn.BatchNorm1d(3)
        self.register_buffer("calls", torch.zeros(1), persistent=False)

    def forward(self, x):
        self.calls = self.calls + 1
        return self.recurrent(self.norm(self.second(torch.tanh(self.first(x)))))[0]


X = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(20, 3)


def tied(seed):
    torch.manual_seed(seed)
    model = Tied().double()
    model(2 * X + seed)  # so that its statistics are its own
    return model


def squares(model):
    return model(X).square().sum()


def test_only_parameters_are_mixed_and_buffers_are_those_of_the_first_state():
    a, b = tied(1), tied(2)
    model = tied(3).eval()
    told = line_torch(model, squares, a.state_dict(), b.state_dict(), [0, 0.3, 1])["loss"]
    for alpha in (0, 0.3, 1):
        mixture = tied(4).eval()
        mixture.load_state_dict(a.state_dict())  # with its buffers
        with torch.no_grad():
            for p, one, two in zip(*(m.parameters() for m in (mixture, a, b)), strict=True):
                p.copy_((1 - alpha) * one + alpha * two)
            assert float(told.sel(alpha=alpha)) == pytest.approx(squares(mixture).item(), rel=1e-12)
    parameters = [dict(m.named_parameters()) for m in (a, b)]
    own = line_torch(model, squares, *parameters, [0, 0.3, 1])["loss"]  # no buffers: the model's own
    model.load_state_dict(parameters[0], strict=False)
    assert float(own.sel(alpha=0)) == squares(model).item() != float(told.sel(alpha=0))


def test_buffers_that_were_one_tensor_are_one_at_every_point():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2))
    model[2].running_mean = model[1].running_mean
    shared = model[1].running_mean
    seen = []

    def loss_function(model):
        assert model[2].running_mean is model[1].running_mean is not shared
        seen.append(model[2].running_mean)
        return 0.0

    line_torch(model, loss_function, model.state_dict(), model.state_dict(), [0, 1])
    assert model[2].running_mean is model[1].running_mean is shared
    assert len(seen) == 2


def test_half_precision_is_rounded_once():
    torch.manual_seed(0)
    model = torch.nn.Linear(1000, 1).to(torch.bfloat16)
    states = [{name: torch.randn_like(v) for name, v in model.state_dict().items()} for _ in range(2)]
    seen = []

    def loss_function(model):
        seen.append(model.weight.clone())
        return 0.0

    line_torch(model, loss_function, *states, [0.37])
    one, two = (state["weight"].double() for state in states)
    assert (seen[0] == (0.63 * one + 0.37 * two).bfloat16()).float().mean() > 0.999


def everything(model):
    """All that must be as it was: the tensors themselves, where their values lie, and the values."""
    tensors = [*model.parameters(), *model.buffers()]
    return (
        [(id(t), t.data_ptr(), t.requires_grad, id(t.grad)) for t in tensors],
        [t.tolist() for t in tensors],
        [None if t.grad is None else t.grad.tolist() for t in tensors],
        [module.training for module in model.modules()],
    )


def meddling(model):
    """A loss that changes all it can."""
    model.train()
    model(3 * X)
    model.norm.eval()
    with torch.enable_grad():
        loss = squares(model)
        loss.backward()
    model.first.bias.add_(1.0)
    model.first.bias.requires_grad_(False)
    model.norm.running_mean.fill_(7.0)
    return loss


class Stop(Exception):
    pass


@pytest.mark.parametrize("ending", [None, Stop, KeyboardInterrupt])
def test_the_model_is_as_it_was_whatever_happens(ending):
    a, b, model = tied(1), tied(2), tied(3)
    model.recurrent.eval()
    squares(model).backward()
    model.first.bias.grad = None
    model.second.bias.requires_grad_(False)
    states = [a.state_dict(), b.state_dict()]
    kept = [{name: v.clone() for name, v in state.items()} for state in states]
    before = everything(model)
    calls = []

    def loss_function(given):
        loss = meddling(given)
        calls.append(loss.item())
        if len(calls) == 4 and ending:
            raise ending
        return loss

    if ending:
        with pytest.raises(ending):
            line_torch(model, loss_function, *states, ALPHAS)
    else:
        line_torch(model, loss_function, *states, ALPHAS)
    assert everything(model) == before
    for state, values in zip(states, kept, strict=True):
        assert all(torch.equal(state[name], values[name]) for name in values)


def test_a_graph_that_was_there_before_does_not_notice():
    model = tied(3)
    pending = squares(model)
    versions = [t._version for t in (*model.parameters(), *model.buffers())]
    line_torch(model, squares, tied(1).state_dict(), tied(2).state_dict(), ALPHAS)
    assert [t._version for t in (*model.parameters(), *model.buffers())] == versions
    pending.backward()
    again = tied(3)
    squares(again).backward()
    assert all(
        torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), again.parameters(), strict=True)
    )


def test_a_model_may_be_its_own_end():
    model, other = tied(1).eval(), tied(2)
    before = everything(model)
    told = line_torch(model, squares, model.state_dict(), other.state_dict(), [0, 1])["loss"]
    assert float(told[0]) == squares(model).item()
    model.calls = tied(1).calls
    assert everything(model)[1] == before[1]


def test_no_point_depends_on_what_the_loss_did_at_another():
    a, b, model = tied(1), tied(2), tied(3)
    states = a.state_dict(), b.state_dict()
    told = line_torch(model, meddling, *states, ALPHAS)["loss"]
    alone = [line_torch(model, meddling, *states, [alpha])["loss"].item() for alpha in ALPHAS]
    assert told.values.tolist() == alone


def test_no_graph_is_made():
    made = []

    def loss_function(model):
        made.append(squares(model))
        return made[-1]

    line_torch(tied(0), loss_function, tied(1).state_dict(), tied(2).state_dict(), ALPHAS)
    assert len(made) == len(ALPHAS)
    assert not any(loss.requires_grad for loss in made)


class Pressing(torch.nn.Linear):
    """A module that presses Ctrl-C in the middle of being restored."""

    armed = False

    def __setattr__(self, name, value):
        if name == "training" and Pressing.armed:
            Pressing.armed = False
            os.kill(os.getpid(), signal.SIGINT)
        super().__setattr__(name, value)


def test_ctrl_c_while_the_model_is_restored_waits_for_it():
    model = torch.nn.Sequential(Pressing(2, 2), torch.nn.Dropout())
    states = [{name: torch.randn_like(v) for name, v in model.state_dict().items()} for _ in range(2)]
    before = everything(model)
    points = []

    def loss_function(model):
        points.append(1)
        model[1].training = False
        Pressing.armed = len(points) == 2
        return 0.0

    with pytest.raises(KeyboardInterrupt):
        line_torch(model, loss_function, *states, ALPHAS)
    assert len(points) == 2
    assert everything(model) == before


# Errors


def test_what_cannot_be_is_refused():
    a, b = thetas(SPIRALS, SMALL, 2)
    for alphas in ([], [0, 0], [1, 0], [0, np.nan], 0.5, ["x"]):
        with pytest.raises(ValueError, match="alphas must be"):
            line(SPIRALS, SMALL, a, b, alphas)
    with pytest.raises(ValueError, match="betas must be one or more increasing numbers"):
        surface(SPIRALS, SMALL, a, a, b, ALPHAS, [1, 0.5])
    with pytest.raises(ValueError, match="split must be one of 'train', 'test', got 'validation'"):
        line(SPIRALS, SMALL, a, b, ALPHAS, "validation")
    for wrong in (a[:-1], a[None, None], 3.0, ["x"] * 81, a * 1j, xr.DataArray(a, dims="x")):
        with pytest.raises(ValueError, match=r"θ must be numbers with shape \(81,\) or \(chains, 81\)"):
            line(SPIRALS, SMALL, a, wrong, ALPHAS)
    with pytest.raises(ValueError, match="do not fit together"):
        line(SPIRALS, SMALL, np.array([a, b]), np.array([a, b, b]), ALPHAS)
    labelled = [
        xr.DataArray([a, b], {"chain": chains}, ("chain", "parameter")) for chains in ([0, 1], [1, 2])
    ]
    with pytest.raises(ValueError, match="do not fit together"):
        line(SPIRALS, SMALL, *labelled, ALPHAS)
    for draw in (1, -1, 0.0, [[0]], "x", True):
        with pytest.raises(ValueError, match="draw must be the number of a data set, 0 to 0"):
            line(SPIRALS, SMALL, a, b, ALPHAS, draw=draw)
    with pytest.raises(TypeError, match="a Problem and a Dense network are needed"):
        line(SMALL, SPIRALS, a, b, ALPHAS)
    with pytest.raises(ValueError, match="threads must be"):
        line(SPIRALS, SMALL, a, b, ALPHAS, threads=0)
    bare = hb.datasets.spirals(n_train=10, n_test=0)
    with pytest.raises(ValueError, match="there are no test data: say split='train'"):
        line(bare, SMALL, a, b, ALPHAS)


def test_a_barrier_needs_both_ends_and_their_labels():
    with pytest.raises(ValueError, match="alpha must have both ends, 0 and 1"):
        barrier(curve_of(lambda a: a, np.linspace(0.1, 1, 5)))
    with pytest.raises(ValueError, match="beta must have both ends, 0 and 1"):
        saddle(surface_of(lambda a, b: a).isel(beta=slice(1, None)))
    for wrong in (3.0, np.ones(3), xr.DataArray(np.ones(3), dims="alpha"), xr.Dataset()):
        with pytest.raises(TypeError, match="the loss must be labelled by alpha, as what `line`"):
            barrier(wrong)
    with pytest.raises(TypeError, match="the loss must be labelled by alpha and beta"):
        saddle(curve_of(lambda a: a))


def test_states_and_losses_that_cannot_be_are_refused():
    model, state = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1).state_dict()
    for wrong, what in (
        ({"weight": state["weight"]}, r"state_b is not a state of this model: it lacks \['bias'\]"),
        ({**state, "other": state["bias"]}, r"\['other'\] are not in the model"),
        ({**state, "bias": torch.zeros(2)}, r"\['bias'\] are not in the model or have another shape"),
        ({**state, "bias": None}, r"it lacks \['bias'\]"),
    ):
        with pytest.raises(ValueError, match=what):
            line_torch(model, squares, state, wrong, ALPHAS)
    with pytest.raises(TypeError, match="state_a must be a state_dict, names with tensors, got Linear"):
        surface_torch(model, squares, state, model, state, ALPHAS, BETAS)
    with pytest.raises(TypeError, match="a torch module and a function of it are needed"):
        line_torch(state, squares, state, state, ALPHAS)
    for loss in (torch.zeros(3), None, "x"):
        with pytest.raises(TypeError, match="loss_function must return one number"):
            line_torch(model, lambda model, loss=loss: loss, state, state, ALPHAS)
