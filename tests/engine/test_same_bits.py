"""A chain has the same bits whatever it is computed with: layout, neighbours, threads, calls, resumes."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

import heatbath as hb
from heatbath.datasets.tasks import TASKS
from heatbath.engine.batches import COMPARED, tabulate
from heatbath.engine.dense import GROUP_CHUNK
from heatbath.engine.dense_shape import VAST, Shape
from heatbath.engine.ensemble import Ensemble, advance, structure
from heatbath.engine.layouts import Alone, LaneGroup
from heatbath.engine.program import compile_program
from heatbath.engine.simd import lane_count
from heatbath.methods import known_methods
from heatbath.methods.presets import PRESETS
from heatbath.methods.schedules import Cyclical, Linear
from heatbath.models.dense import ACTIVATIONS
from tests.engine.test_ensemble import LADDER, ONE_GRADIENT, PARTITIONS, TWO_GRADIENTS
from tests.methods.contracts import example, variants

STATE = "theta", "p", "second", "xi", "rung", "died", "temperature"
NOTES = "loss", "accuracy", "temperature", "xi", "theta", "histogram", "samples", "average"
KINDS = np.float32, np.float64
CHAINS = 1, 7, 16, 17, 33
BATCHES = 1, 3, 4, 5, 20, COMPARED + 2
NETWORKS = [
    ((2, 20, 1), "relu", "binary"),
    ((2, 100, 1), "relu", "binary"),
    ((3, 7, 2), "tanh", "regression"),
    ((8, 50, 1), "relu", "regression"),
    ((4, 33, 17, 3), "relu", "classes"),
    ((5, 3), "identity", "classes"),
    ((2, 64, 64, 1), "tanh", "binary"),
]
STRANGE = [
    ((1, 1), "identity", "regression"),
    ((1, 1, 1), "tanh", "binary"),
    ((2, 1, 1), "relu", "binary"),
    ((2, 15, 1), "relu", "binary"),
    ((2, 17, 1), "relu", "binary"),
    ((2, 16, 16, 2), "relu", "classes"),
    ((15, 15, 15), "tanh", "regression"),
    ((16, 17, 31), "identity", "classes"),
    ((17, 16, 33, 1), "relu", "binary"),
    ((33, 31, 17), "tanh", "classes"),
    ((2, 1000, 1), "relu", "binary"),
    ((17, 900, 2), "tanh", "regression"),
    ((300, 17, 3), "relu", "classes"),
    ((127, 129, 2), "relu", "classes"),  # one weight short of BLAS
]


ADLALA = hb.AdLaLa()


@dataclass(frozen=True)
class Case:
    """A run: everything but how it is computed."""

    partition: hb.Partition | tuple[hb.Partition, ...] = ADLALA
    network: tuple[tuple[int, ...], str, str] = NETWORKS[0]
    kind: type = np.float32
    chains: int = 17
    batch: int = 5
    shuffled: bool = False
    data: int = 30
    tested: int = 6
    sets: int = 2
    steps: int = 6
    momenta: str = "zero"
    rotated: bool = True
    first: int = 0
    seed: int = 3
    scale: float = 1.0
    weighted: bool = False

    @property
    def shape(self):
        sizes, activation, task = self.network
        return Shape(sizes, ACTIVATIONS[activation].number, TASKS[task].number)

    @property
    def programs(self):
        layers = {
            f"layer{i}": (width * out, out)
            for i, (width, out) in enumerate(pairwise(self.network[0]), start=1)
        }
        chosen = self.partition if isinstance(self.partition, tuple) else (self.partition,)
        programs = [compile_program(partition, layers, self.rotated) for partition in chosen]
        assert len(set(map(structure, programs))) == 1
        return programs

    @property
    def problem(self):
        sizes, _, task = self.network
        rng = np.random.default_rng(1)
        X = rng.standard_normal((self.sets, self.data + self.tested, sizes[0])) * self.scale
        shape = (*X.shape[:2], 1 if task == "classes" else sizes[-1])
        if task == "regression":
            Y = rng.standard_normal(shape)
        else:
            Y = rng.integers(0, 2 if task == "binary" else sizes[-1], shape).astype(float)
        return X, Y

    @property
    def numbers(self):
        return self.first + np.arange(self.chains)

    def start(self, numbers):
        """Return parameters that depend on a chain's number only."""
        size = self.shape.parameters
        return hb.noise.normals(self.seed, hb.noise.START, 0, numbers, 0, 0, size).astype(
            self.kind
        ) * self.kind(0.5)

    def run(self, layout, chosen=slice(None), threads=1, cuts=None, start=None, between=None):
        """Run the chosen chains, in this order, with the points of a sweep in turn.

        `between` is called with the engine between two calls of `advance`.
        """
        numbers = self.numbers[chosen]
        programs, (X, Y) = self.programs, self.problem
        weights = np.random.default_rng(2).uniform(0.1, 2.0, X.shape[:2]) if self.weighted else None
        weights = None if weights is None else weights[:, : self.data]
        given = tabulate(X[:, : self.data], Y[:, : self.data], self.kind, weights)
        seen = tabulate(X[:, self.data :], Y[:, self.data :], self.kind)
        average = tabulate(X[:1, :9], Y[:1, :9, :0], self.kind)
        theta = self.start(numbers) if start is None else start[chosen]
        engine = Ensemble(
            programs, self.shape, theta, given, min(self.batch, self.data), shuffled=self.shuffled,
            momenta=self.momenta, seed=self.seed, number=numbers, point=numbers % len(programs),
            threads=threads, layout=layout,
        )  # fmt: skip
        records = tuple(range(0, self.steps + 1, 2))
        engine.take_notes(
            records, tuple(r % 4 == 0 for r in records), seen, weights=True, histogram=(-1.0, 1.0, 5),
            burn_in=1, thin=2, last=self.steps, samples=2, average=average,
        )  # fmt: skip
        for steps in cuts or (self.steps,):
            if between is not None and engine.step > 0:
                between(engine)
            engine.advance(steps)
        assert engine.step == self.steps
        return engine


def group(case):
    return LaneGroup(lane_count(case.kind))


def results(engine):
    """Return everything that a chain leaves behind, by name; the first index is the chain."""
    named = {name: getattr(engine.chains, name) for name in STATE}
    return named | {f"notes: {name}": getattr(engine.notes, name) for name in NOTES}


def assert_same_bits(one, other, chosen=slice(None)):
    """Check that bits are equal, the signs of zeros too; one NaN is like another."""
    one, other = ({name: a for name, a in results(e).items()} for e in (one, other))
    for name in one:
        a, b = one[name], other[name][chosen]
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        whole = f"u{a.dtype.itemsize}"
        same = np.ascontiguousarray(a).view(whole) == np.ascontiguousarray(b).view(whole)
        if a.dtype.kind == "f":
            same |= np.isnan(a) & np.isnan(b)
        where = np.argwhere(~same)[:3].tolist()
        assert same.all(), (
            f"{name} differs {(~same).sum()} times, as at {where}: {a[~same][:3]}, {b[~same][:3]}"
        )


def assert_same_in_both_layouts(case):
    """Check that chains have the same bits alone, in groups, and in an ensemble of their own."""
    alone, grouped = case.run(Alone()), case.run(group(case))
    assert_same_bits(alone, grouped)
    for chain in {0, case.chains // 2, case.chains - 1}:
        assert_same_bits(case.run(Alone(), [chain]), grouped, [chain])
        assert_same_bits(case.run(group(case), [chain]), alone, [chain])
    return grouped


def has_moved(engine, case):
    """Return True if the parameters have changed since the start."""
    return not np.array_equal(engine.chains.theta, case.start(case.numbers))


# The controls


def test_a_bit_would_be_seen():
    case = Case(chains=3)
    one, other = case.run(Alone()), case.run(Alone())
    assert_same_bits(one, other)
    for name, array in results(one).items():
        if not array.size:
            continue
        kept = array.copy()
        flat = array.reshape(-1)
        place = np.flatnonzero(~np.isnan(flat))[-1]
        flat[place : place + 1].view(f"u{array.dtype.itemsize}")[:] ^= 1
        with pytest.raises(AssertionError, match=f"{name} differs"):
            assert_same_bits(one, other)
        array[...] = kept
    assert_same_bits(one, other)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 4}, {"kind": np.float64}, {"batch": 4}, {"shuffled": True}, {"sets": 1}, {"scale": 2.0},
        {"momenta": "thermal"}, {"first": 2**26}, {"partition": hb.AdLaLa(weight_decay=0.1)},
    ],
    ids=str,
)  # fmt: skip
def test_what_makes_another_run_is_seen(change):
    case = Case(chains=3)
    with pytest.raises(AssertionError):
        assert_same_bits(case.run(Alone()), replace(case, **change).run(Alone()))


# Methods

METHODS = {
    **PARTITIONS,
    **{
        f"{word} as written": hb.Partition(hb.Langevin(0.5, 1e-3, word), 0.1)
        for word in (*TWO_GRADIENTS, *ONE_GRADIENT)
    },
    **{
        f"{name} {number}": hb.Partition(variant, 0.05)
        for name, kind in known_methods().items()
        for number, variant in enumerate(variants(example(kind)))
    },
    **{
        f"{name} with a prior": preset(
            0.1, weight_decay=0.01, **({"gamma": 1.0, "tau": 1e-3} if name == "LaLa" else {})
        )
        for name, preset in PRESETS.items()
    },
    "everything at once": hb.Partition(
        {
            0: hb.AdaptiveLangevin(
                Cyclical(1e-3, 1e-4, 3), 0.01, 0.1, "BAFEFAB", weight_decay=Linear(0.1, 0.0, 5)
            ),
            "output": hb.Langevin(Linear(0.1, 1.0, 4), 1e-3, "ABOBA"),
            "rest": hb.Adam(weight_decay=0.01),
        },
        Linear(0.1, 0.05, 4),
    ),
    "tempered adaptively": hb.Partition(hb.AdaptiveLangevin(LADDER, 0.01, 0.1, thermostat="tensor"), 0.1),
}  # fmt: skip


VARIED = {
    "kind": KINDS,
    "chains": CHAINS,
    "batch": BATCHES,
    "data": (0, 1, 150),  # more than the batch
    "shuffled": (False, True),
    "sets": (1, 2, 3),
    "momenta": ("zero", "thermal"),
    "tested": (0, 6, 19),
    "first": (0, 1000),
}
PAIRS = [(one, other) for one in VARIED for other in VARIED if one < other]


def pairs_of(chosen):
    return {(one, other, chosen[one], chosen[other]) for one, other in PAIRS}


def draw_choices(count):
    """Yield a number of choices of everything but the method.

    Some are drawn at random; the one with most pairs that are new is taken each time.
    """
    rng, seen = np.random.default_rng(0), set()
    for _ in range(count):
        tried = [{name: v[rng.integers(len(v))] for name, v in VARIED.items()} for _ in range(50)]
        best = max(tried, key=lambda chosen: len(pairs_of(chosen) - seen))
        seen |= pairs_of(best)
        yield best


def cases():
    """Return every method with one choice of everything else."""
    for i, ((name, partition), chosen) in enumerate(
        zip(METHODS.items(), draw_choices(len(METHODS)), strict=True)
    ):
        parts = partition.methods
        fewest = 3 if "rest" in parts else 2 if 0 in parts or "output" in parts else 1
        most = 2 if 1 in parts else 9
        networks = [network for network in NETWORKS if fewest < len(network[0]) <= most + 1]
        more = {"data": chosen["batch"] + chosen["data"], "rotated": "as written" not in name}
        yield pytest.param(Case(partition, networks[i % len(networks)], **chosen | more), id=name)


@pytest.mark.parametrize("case", list(cases()))
def test_every_method_has_the_same_bits_in_both_layouts(case):
    engine = assert_same_in_both_layouts(case)
    assert has_moved(engine, case) == any(method.moves for method in case.partition.methods.values())


def test_the_cases_have_every_pair_of_choices():
    seen = set().union(*map(pairs_of, draw_choices(len(METHODS))))
    assert len(seen) == sum(len(VARIED[one]) * len(VARIED[other]) for one, other in PAIRS)
    assert {parameter.values[0].network for parameter in cases()} == set(NETWORKS)


# Networks and batches


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", [*NETWORKS, *STRANGE], ids=str)
def test_every_network_has_the_same_bits_in_both_layouts(network, kind):
    """Batches around the chunks of a group, which alone are one."""
    partition = hb.Partition(hb.AdaptiveLangevin(1e-3, 0.01, 0.1, thermostat="tensor"), 0.1)
    for i, batch in enumerate((1, GROUP_CHUNK, GROUP_CHUNK + 1, 29)):
        case = Case(
            partition, network, kind, chains=(3, lane_count(kind) + 1)[i % 2], batch=batch, data=29,
            shuffled=i == 1, steps=4,
        )  # fmt: skip
        assert has_moved(assert_same_in_both_layouts(case), case)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", NETWORKS)
def test_data_with_weights_have_the_same_bits_in_both_layouts(network, kind):
    adaptive = hb.Partition(hb.AdaptiveLangevin(1e-3, 0.01, 0.1), 0.1)
    for batch in (5, 30):
        assert_same_in_both_layouts(Case(adaptive, network, kind, 3, batch, weighted=True))


def test_very_wide_layers_are_computed_alone_and_do_not_depend_on_neighbours_threads_or_calls():
    for sizes in ((2, VAST // 128, 128, 1), (128, 128), (17, VAST // 16, 3)):
        case = Case(
            hb.Partition(hb.AdaptiveLangevin(1e-3, 0.01, 0.1), 0.1), (sizes, "relu", "regression"), chains=7
        )
        assert case.shape.uses_blas
        whole = case.run(None)
        assert not isinstance(whole.layout, LaneGroup)
        assert_same_bits(whole, case.run(None, threads=2, cuts=(1, 3, 2)))
        assert_same_bits(case.run(None, [5, 2]), whole, [5, 2])


# Threads and calls

FEW = [
    "AdLaLa",
    "all on schedules",
    "tempered at the kick with a scheduled prior",
    "Adam",
    "changes on the way",
    "OBABO",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FEW)
def test_bits_do_not_depend_on_threads_or_on_how_the_steps_are_cut(name, kind):
    for i, network in enumerate((NETWORKS[0], NETWORKS[6])):
        case = Case(PARTITIONS[name], network, kind, chains=33, shuffled=i == 0, steps=12)
        for layout in (Alone(), group(case)):
            whole = case.run(layout)
            for threads, cuts in ((1, (1,) * 12), (2, (12,)), (2, (5, 1, 0, 6)), (3, (11, 1))):
                assert_same_bits(whole, case.run(layout, threads=threads, cuts=cuts))


def test_bits_do_not_depend_on_where_coefficients_are_tabulated_anew(monkeypatch):
    case = Case(PARTITIONS["all on schedules"], chains=5, steps=20)
    whole = case.run(Alone())
    monkeypatch.setattr("heatbath.engine.ensemble.SCHEDULED_STEPS", 3)
    for layout in (Alone(), group(case)):
        assert_same_bits(whole, case.run(layout, cuts=(7, 13)))


def test_no_steps_change_nothing():
    case = Case(chains=5)
    for layout in (Alone(), group(case)):
        engine = replace(case, steps=0).run(layout)
        np.testing.assert_array_equal(engine.chains.theta, case.start(case.numbers))
        assert (engine.chains.p == 0).all()
        engine.prepare()
        np.testing.assert_array_equal(engine.chains.theta, case.start(case.numbers))


def test_ensembles_that_advance_together_do_not_meet():
    cases = [Case(PARTITIONS[name], chains=n) for name, n in (("AdLaLa", 18), ("SGLD", 3), ("Adam", 1))]
    expected = [case.run(Alone()) for case in cases]
    engines = [
        replace(c, steps=0).run(l) for c, l in zip(cases, (group(cases[0]), Alone(), None), strict=True)
    ]
    for engine, right in zip(engines, expected, strict=True):
        engine.threads, engine.notes = 2, right.notes._replace(
            **{name: np.full_like(getattr(right.notes, name), 0) for name in NOTES}
        )  # fmt: skip
    advance(engines, 6)
    for engine, right in zip(engines, expected, strict=True):
        for name in STATE:
            np.testing.assert_array_equal(getattr(engine.chains, name), getattr(right.chains, name))


# Other chains


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["AdLaLa", "tempered", "Adam", "SGLD"])
def test_bits_do_not_depend_on_which_chains_there_are_or_on_their_order(name, kind):
    case = Case(PARTITIONS[name], NETWORKS[4] if name == "tempered" else NETWORKS[0], kind, chains=33, sets=3)
    whole = case.run(Alone())
    orders = np.random.default_rng(1).permutation(33)
    for chosen in (orders, orders[:7], orders[::-1][:16], np.arange(17), [32], np.repeat([4, 9], 10)):
        for layout in (Alone(), group(case)):
            assert_same_bits(case.run(layout, chosen), whole, chosen)


@pytest.mark.parametrize("first", [2**26 - 3, 2**26, 2**32 - 40])
def test_bits_do_not_depend_on_the_layout_that_is_chosen_for_large_numbers_of_chains(first):
    case = Case(chains=33, first=first, sets=3)
    whole = case.run(Alone())
    chosen = case.run(None)
    assert isinstance(chosen.layout, Alone) == (first == 2**26 - 3)
    assert_same_bits(whole, chosen)
    assert_same_bits(case.run(group(case), slice(3, 30)), whole, slice(3, 30))


WIDER = ((3, 5, 7), "tanh", "regression")  # at its end: what is left over of a vector is then read
WRONG = np.nan, np.inf, -np.inf, 1e30, 1e38


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", [*NETWORKS, *STRANGE[:10], STRANGE[11], WIDER], ids=str)
def test_a_chain_does_not_notice_others_that_diverge(network, kind):
    """That holds also for a chain computed after them in the same memory, and for one in the same vector."""
    partition = hb.Partition(hb.AdaptiveLangevin(1e-3, 0.01, 0.1), 0.1)
    case = Case(partition, network, kind, chains=18, batch=9)
    well = np.arange(18) % 3 == 1
    kept = case.run(Alone(), np.flatnonzero(well))
    assert (kept.chains.died < 0).all()
    for i, wrong in enumerate(WRONG):
        start = case.start(case.numbers)
        start[~well, i % 2 :: 3 if i % 2 else 1] = wrong
        for layout in (Alone(), group(case)):
            engine = case.run(layout, start=start, cuts=((6,), (2, 4))[i % 2])
            assert_same_bits(kept, engine, well)
            assert i or (engine.chains.died[~well] >= 0).any() or network[1] == "relu"


@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_does_not_find_the_losses_that_others_have_left(kind):
    """Other chains diverge between the first step of a call and a record, so their losses are not numbers.

    The chain after them has noted none yet. Its layers leave parts of vectors as they are.
    """
    case = Case(hb.Partition(hb.Langevin(0.5, 1e-3), 0.1), ((3, 4, 5, 7), "tanh", "regression"), kind, 18, 9)
    well = np.arange(18) % 3 == 1

    def throw(engine):
        engine.chains.p[~well] = np.inf

    kept = case.run(Alone(), np.flatnonzero(well), cuts=(3, 3))
    for layout in (Alone(), group(case)):
        engine = case.run(layout, cuts=(3, 3), between=throw)
        assert (engine.chains.died[~well] == 4).all()
        assert_same_bits(kept, engine, well)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", [*NETWORKS, *STRANGE[:10]], ids=str)
def test_a_chain_that_diverges_has_the_same_bits_in_both_layouts(network, kind):
    partition = hb.Partition(hb.SGD(), 0.1)
    case = Case(partition, network, kind, chains=lane_count(kind) + 2, batch=9)
    start = case.start(case.numbers)
    for chain in range(case.chains - 1):
        start[chain, chain :: 1 + chain % 5] *= kind(10.0 ** (2 * chain))
    one, other = (case.run(layout, start=start) for layout in (Alone(), group(case)))
    assert_same_bits(one, other)
    assert_same_bits(one, case.run(group(case), start=start, cuts=(1, 2, 3)))


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_the_layout_at_huge_inputs(kind):
    for network in (*NETWORKS, STRANGE[8]):
        for scale in (1e10, 1e30):
            case = Case(PARTITIONS["SGD"], network, kind, chains=5, batch=9, scale=scale)
            assert_same_bits(case.run(Alone()), case.run(group(case)))


# Sweeps

SWEEPS = {
    "Langevin": tuple(
        hb.Partition(hb.Langevin(gamma, tau, weight_decay=decay), h)
        for gamma, tau, decay, h in ((0.5, 1e-3, 0.0, 0.1), (0.0, 1e-2, 0.1, 0.05), (2.0, 0.0, 0.01, 0.2))
    ),
    "AdLaLa": tuple(
        hb.AdLaLa(h, tau, sigma, epsilon, xi=xi)
        for h, tau, sigma, epsilon, xi in (
            (0.1, 1e-3, 0.01, 0.1, 0.0), (0.05, 0.0, 0.0, 0.2, 1.0), (0.1, 1e-2, 0.1, 0.0, -1.0)
        )
    ),
    "Adam": tuple(hb.Partition(hb.Adam(b, 0.9, weight_decay=b / 10), 0.01 + b / 9) for b in (0.0, 0.5, 0.9)),
    "SGLD": tuple(hb.Partition(hb.SGLD(sigma, sigma / 2), 0.1) for sigma in (0.0, 0.1, 0.2)),
    "schedules": tuple(
        hb.Partition(hb.Langevin(0.5, Linear(tau, 0.0, n)), Cyclical(0.1, 0.01, n))
        for tau, n in ((1e-3, 3), (1e-2, 5))
    ),
    "tempered": tuple(hb.Partition(hb.Langevin(gamma, LADDER), 0.1) for gamma in (0.1, 1.0, 5.0)),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SWEEPS)
def test_points_of_a_sweep_in_one_group_have_the_bits_of_each_by_itself(name, kind):
    points = SWEEPS[name]
    case = Case(points, kind=kind, chains=18, steps=8)
    grouped = assert_same_in_both_layouts(case)
    for layout in (Alone(), group(case)):
        assert_same_bits(case.run(layout, cuts=(3, 5)), grouped)
    for k, partition in enumerate(points):
        own = np.arange(k, 18, len(points))
        assert_same_bits(replace(case, partition=partition).run(Alone(), own), grouped, own)


# Runs


def trained(chains, steps=24, partition=None, **options):
    problem = hb.datasets.spirals(turns=1, n_train=40, n_test=20, seed=3)
    options = {
        "record": 6, "seed": 2, "weights": True, "histogram": (-1.0, 1.0, 4), "samples": 6, "thin": 2,
        "threads": 1, "average": [[0.1, 0.2], [0.3, -0.4]],
    } | options  # fmt: skip
    return hb.train(problem, hb.MLP((20,)), partition or hb.AdLaLa(h=0.1), steps, 10, chains, **options)


RUNS = [hb.AdLaLa(h=0.1), PARTITIONS["tempered"], PARTITIONS["Adam"], PARTITIONS["all on schedules"]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("number", range(4))
def test_the_chains_of_a_run_do_not_depend_on_how_many_there_are(number, dtype):
    whole = trained(33, partition=RUNS[number], dtype=dtype, shuffled=number % 2 == 0)
    for chains in (1, 3, 7, 16, 17):
        few = trained(
            chains, partition=RUNS[number], dtype=dtype, shuffled=number % 2 == 0, threads=1 + chains % 2
        )
        assert few.data.identical(whole.data.isel(chain=slice(chains)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("number", range(4))
def test_a_run_that_is_saved_loaded_and_resumed_is_the_run_itself(number, dtype, tmp_path):
    options = {"partition": RUNS[number], "dtype": dtype, "momenta": "thermal", "record": [0, 5, 11, 24]}
    options |= {"samples": None, "burn_in": 4, "thin": 2}
    for chains in (2, 18):
        whole = trained(chains, **options)
        part = trained(chains, 11, **options | {"record": [0, 5, 11]})
        part.save(tmp_path / "run.nc")
        rest = hb.load(tmp_path / "run.nc").resume(13, record=[24], threads=2)
        for name in (
            "theta",
            "p",
            "second",
            "rung",
            "died",
            "xi_now",
            "average",
            "deviations",
            "loss",
            "weights",
        ):
            if name in whole.data:
                np.testing.assert_array_equal(rest.data[name], whole.data[name], err_msg=name)


def test_a_sweep_has_the_bits_of_its_runs():
    problem = hb.datasets.spirals(turns=1, n_train=40, n_test=20, seed=3)
    taus = [1e-4, 1e-2, 1e-3]
    swept = hb.sweep(
        problem, hb.MLP((20,)), hb.AdLaLa(h=0.1, tau=taus), 24, 10, 7, record=4, seed=2, threads=2
    )
    for tau in taus:
        one = hb.train(
            problem, hb.MLP((20,)), hb.AdLaLa(h=0.1, tau=tau), 24, 10, 7, record=4, seed=2, threads=1
        )
        for name in ("theta", "p"):
            np.testing.assert_array_equal(getattr(swept.select(tau=tau), name), getattr(one, name))


# What cannot be


@pytest.mark.parametrize(
    "network", [((3, 20, 1), "relu", "binary"), ((5, 10, 10, 3), "relu", "classes")], ids=str
)
def test_a_chain_whose_parameters_are_not_numbers_is_stopped(network):
    case = Case(PARTITIONS["SGD"], network, chains=3)
    start = case.start(case.numbers)
    start[1, 3] = np.nan
    for layout in (Alone(), group(case)):
        assert list(case.run(layout, start=start).chains.died >= 0) == [False, True, False]


@pytest.mark.parametrize(
    ("layout", "change"),
    [
        (LaneGroup(16), {"first": 2**26 - 1}),
        (LaneGroup(16), {"network": ((2, 128, 128, 1), "tanh", "binary")}),
        (Alone(), {"network": ((2, 128, 128, 1), "tanh", "binary")}),
    ],
    ids=str,
)
def test_a_layout_that_cannot_be_is_refused(layout, change):
    with pytest.raises(ValueError, match="layout"):
        replace(Case(chains=3), **change).run(layout)
