"""Arguments that no plan can be made of are refused before anything runs."""

import numpy as np
import pytest

import heatbath as hb
from tests.runs import SMALL, SPIRALS, short_run


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be a whole number >= 1 and < 1099511627776, got 0"),
        ({"steps": 1.5}, "steps must be a whole number"),
        ({"chains": 0}, "chains must be a whole number >= 1, got 0"),
        (
            {"batch": 201},
            r"batch \(of 200 training examples\) must be a whole number >= 1 and < 201, got 201",
        ),
        ({"batch": 0}, "batch"),
        ({"record": 0}, "record must be a whole number >= 1"),
        ({"record": [5, 300]}, "record: a step must be a whole number >= 0 and < 121, got 300"),
        ({"seed": -1}, "seed"),
        ({"threads": 0}, "threads must be a whole number >= 1"),
        ({"momenta": "hot"}, "momenta must be one of 'zero', 'thermal'"),
        ({"dtype": "float16"}, "dtype must be one of 'float32', 'float64'"),
        ({"histogram": (0, 1)}, r"histogram must be \(low, high, bins\)"),
        ({"histogram": (1, 0, 5)}, "low must be below high"),
        ({"losses_every": 0}, "losses_every must be a whole number >= 1"),
        ({"start": np.zeros(5)}, r"start must have shape \(81,\) or \(3, 81\), got \(5,\)"),
        ({"start": np.full(81, np.nan)}, "start holds values that are not finite"),
        (
            {"partition": hb.AdLaLa(tau=[1e-4, 1e-3])},
            "train needs one value of tau: several are the axes of a sweep",
        ),
        ({"partition": hb.Partition({"fc9": hb.SGD(), "rest": hb.SGD()}, 0.1)}, "there is no layer 'fc9'"),
        ({"partition": hb.SGD()}, r"a method needs a stepsize: say Partition\(SGD\(\), h=0.1\)"),
        ({"record": []}, "record must be a number of records or a list of steps, got an empty one"),
        ({"samples": 3, "burn_in": ""}, "burn_in must be a whole number >= 0"),
        ({"samples": 3, "burn_in": 0.0}, "burn_in must be a whole number >= 0"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        short_run(**options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: hb.sweep(SPIRALS, SMALL, hb.LOL(), 10, 20),
            "a sweep needs several values of some coefficient",
        ),
        (
            lambda: hb.sweep(SPIRALS, SMALL, hb.LOL(tau=[0.0]), 10, 20, recrod=3),
            "no option recrod; accepted: .*seed",
        ),
        (lambda: hb.sweep(SPIRALS, SMALL, hb.LOL(tau=[0.0]), 10, 20, keep=True), "no option keep"),
        (lambda: hb.compare(SPIRALS, SMALL, hb.LOL(), 10, 20), "compare needs a dict of partitions by name"),
        (lambda: hb.compare(SPIRALS, SMALL, {}, 10, 20), "compare needs a dict"),
        (
            lambda: hb.compare(SPIRALS, SMALL, {1: hb.LOL()}, 10, 20),
            "compare needs a dict of partitions by name",
        ),
        (
            lambda: hb.sweep(SPIRALS, SMALL, {"a": hb.LOL()}, 10, 20),
            "partition must be a Partition, got {'a'",
        ),
        (
            lambda: hb.train(SPIRALS, SMALL, {"a": hb.LOL()}, 10, 20),
            "partition must be a Partition, got {'a'",
        ),
        (lambda: hb.train(SPIRALS, SMALL, hb.LOL(), 10, 20, progress=5), "progress must be a function"),
        (
            lambda: hb.train(SPIRALS, SMALL, hb.LOL(), 10, 20, checkpoint=5),
            "checkpoint must be a path",
        ),
        (
            lambda: hb.train(SPIRALS, SMALL, hb.LOL(), 10, 20, start=["a"]),
            "start must be an array of numbers",
        ),
        (
            lambda: hb.train(SPIRALS, SMALL, hb.LOL(), 10, 20, average="a"),
            "average must be an array of numbers",
        ),
        (lambda: hb.compare(SPIRALS, SMALL, {"a": 3}, 10, 20), "partition must be a Partition, got 3"),
        (
            lambda: hb.compare(SPIRALS, SMALL, {"a": hb.LOL(tau=[0.0])}, 10, 20),
            r"compare \(a\) needs one value of tau",
        ),
    ],
)
def test_arguments_that_are_no_sweep_or_comparison_are_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
