import copy
import math
import pickle

import numpy as np
import pytest

import heatbath as hb
from heatbath.methods.partition import Part
from heatbath.methods.schedules import Cyclical, Linear, SimulatedTempering

SHALLOW = {"fc1": (20, 10), "fc2": (10, 1)}
DEEP = {"fc1": (20, 10), "fc2": (100, 10), "fc3": (30, 3), "fc4": (3, 1)}
LANGEVIN = hb.Langevin(gamma=1, tau=1e-4)
ADL = hb.AdaptiveLangevin(tau=1e-4, sigma=0.01, epsilon=0.1)


def names(partition, layers):
    return {part.name: part.layers for part in partition.parts(layers)}


def test_one_method_for_all_is_one_part():
    (part,) = hb.Partition(ADL, h=0.1).parts(SHALLOW)
    assert part == Part(
        "all", "all", ADL, ("fc1", "fc2"), (range(0, 20), range(20, 30), range(30, 40), range(40, 41))
    )
    assert part.size == 41


def test_hidden_is_one_part_for_each_hidden_layer():
    partition = hb.Partition({"hidden": ADL, "output": LANGEVIN}, h=0.1)
    assert names(partition, SHALLOW) == {"hidden": ("fc1",), "output": ("fc2",)}
    assert names(partition, DEEP) == {
        "hidden1": ("fc1",),
        "hidden2": ("fc2",),
        "hidden3": ("fc3",),
        "output": ("fc4",),
    }
    hidden2 = partition.parts(DEEP)[1]
    assert hidden2.tensors == (range(30, 130), range(130, 140))


def test_a_tuple_joins_layers_into_one_part():
    partition = hb.Partition({("hidden",): ADL, "output": LANGEVIN}, h=0.1)
    assert names(partition, DEEP) == {"hidden": ("fc1", "fc2", "fc3"), "output": ("fc4",)}
    partition = hb.Partition({("fc1", 2): ADL, ("fc2", "output"): LANGEVIN}, h=0.1)
    assert names(partition, DEEP) == {"fc1+fc3": ("fc1", "fc3"), "fc2+output": ("fc2", "fc4")}


def test_a_tuple_may_hold_the_rest_and_is_in_the_order_of_the_network():
    (part,) = hb.Partition({("fc2", "rest"): ADL}, h=0.1).parts(DEEP)
    assert (part.name, part.layers) == ("fc2+rest", tuple(DEEP))
    (part,) = hb.Partition({("rest", "fc2"): ADL}, h=0.1).parts(DEEP)
    assert (part.name, part.layers) == ("rest+fc2", tuple(DEEP))
    first, second = hb.Partition({(2, 0): ADL, "rest": ADL}, h=0.1).parts(DEEP)[:2]
    assert first.layers == ("fc1", "fc3")
    assert first.tensors == (range(0, 20), range(20, 30), range(140, 170), range(170, 173))
    assert second.name == "rest1"


def test_a_part_knows_the_key_that_made_it():
    keys = [part.key for part in hb.AdLaLa().parts(DEEP)]
    assert keys == ["hidden", "hidden", "hidden", "output"]


def test_a_layer_may_be_called_all():
    (part,) = hb.Partition(ADL, h=0.1).parts({"all": (3,), "fc": (2,)})
    assert part.layers == ("all", "fc")


def test_layers_by_name_index_and_rest():
    partition = hb.Partition({"fc3": ADL, np.int64(0): hb.Frozen(), "rest": LANGEVIN}, h=0.1)
    assert names(partition, DEEP) == {"fc1": ("fc1",), "rest1": ("fc2",), "fc3": ("fc3",), "rest2": ("fc4",)}
    assert names(hb.Partition({-1: ADL, ("rest",): LANGEVIN}, h=0.1), DEEP) == {
        "rest": ("fc1", "fc2", "fc3"),
        "fc4": ("fc4",),
    }
    everything_named = hb.Partition({"hidden": ADL, "output": LANGEVIN, "rest": hb.Frozen()}, h=0.1)
    assert list(names(everything_named, SHALLOW)) == ["hidden", "output"]


def test_the_order_of_the_parts_is_the_networks_and_not_the_mappings():
    one = hb.Partition({"hidden": ADL, "output": LANGEVIN}, h=0.1)
    other = hb.Partition({"output": LANGEVIN, "hidden": ADL}, h=0.1)
    assert one == other
    assert hash(one) == hash(other)
    assert one.parts(DEEP) == other.parts(DEEP)


def test_every_parameter_is_in_exactly_one_part():
    for partition in (hb.AdLaLa(), hb.Partition({(0, 2): ADL, "rest": LANGEVIN}, h=1)):
        elements = [e for part in partition.parts(DEEP) for span in part.tensors for e in span]
        assert sorted(elements) == list(range(177))


@pytest.mark.parametrize(
    ("methods", "layers", "message"),
    [
        ({"hidden": ADL}, SHALLOW, r"no method for layer 'fc2': name it, or add 'rest'"),
        ({"fc9": ADL, "rest": ADL}, SHALLOW, r"there is no layer 'fc9': accepted are 'fc1', 'fc2'"),
        ({2: ADL, "rest": ADL}, SHALLOW, r"there is no layer 2: this network has 2, 'fc1', 'fc2'"),
        ({-3: ADL, "rest": ADL}, SHALLOW, r"there is no layer -3"),
        (
            {"hidden": ADL, "fc1": LANGEVIN, "output": ADL},
            SHALLOW,
            r"'fc1' is assigned twice, by 'fc1' and by 'hidden'",
        ),
        ({("fc1", 0): ADL, "rest": ADL}, SHALLOW, r"'fc1' is assigned twice"),
        ({"all": ADL, "output": ADL}, SHALLOW, r"'fc2' is assigned twice"),
        (
            {"hidden": ADL, "output": ADL},
            {"fc": (10, 1)},
            r"'hidden' selects no layer: this network has only 'fc'",
        ),
        (
            {"output": ADL, "rest": ADL},
            {"output": (3,), "fc": (4,)},
            r"'output' is a rule, which here selects 'fc', and also",
        ),
        (
            {"hidden": ADL, -1: ADL},
            {"a": (3,), "b": (3,), "hidden1": (4,)},
            r"two parts would be called 'hidden1'",
        ),
        ({"all": ADL}, {}, r"at least one layer"),
        ({"all": ADL}, {"fc": ()}, r"layer 'fc' must have the sizes of its tensors, such as"),
        ({"all": ADL}, {"fc": 5}, r"layer 'fc' must have the sizes of its tensors, such as"),
        ({"all": ADL}, {"fc": (0,)}, r"layer 'fc': the size of a tensor must be a whole number >= 1, got 0"),
    ],
)
def test_unassigned_unknown_and_doubly_assigned_layers_are_named(methods, layers, message):
    partition = hb.Partition(methods, h=0.1)
    with pytest.raises(ValueError, match=message):
        partition.parts(layers)


@pytest.mark.parametrize("bad", [0, -0.1, math.nan, math.inf, [], Linear(0.1, 0.0, 10)])
def test_h_must_be_positive(bad):
    with pytest.raises(ValueError, match="Partition: h"):
        hb.Partition(LANGEVIN, h=bad)


def test_h_may_be_a_schedule():
    assert hb.Partition(LANGEVIN, h=Cyclical(0.1, 0.0, 100)).h == Cyclical(0.1, 0.0, 100)


def test_different_lists_for_one_coefficient_are_axes_named_by_their_parts():
    partition = hb.LaLa(0.1, gamma=1, tau=[1e-4, 1e-3], tau_output=[0, 1e-5])
    assert partition.axes() == {"hidden.tau": (1e-4, 1e-3), "output.tau": (0, 1e-5)}
    partition = hb.Partition({(0, "fc3"): hb.SGLD([0.1, 0.2]), "rest": hb.SGLD([0.3])}, h=0.1)
    assert partition.axes() == {"0+fc3.sigma": (0.1, 0.2), "rest.sigma": (0.3,)}


@pytest.mark.parametrize(
    "methods", [{}, {"hidden": "AdL"}, {True: ADL}, {1.5: ADL}, {(): ADL}, {((0, 1), 2): ADL}, None]
)
def test_what_is_not_a_partition_is_refused(methods):
    with pytest.raises((TypeError, ValueError), match="Partition: "):
        hb.Partition(methods, h=0.1)


def test_words_may_differ_only_while_each_needs_one_gradient():
    two = hb.Langevin(1, 1e-4, "BAOBA")
    assert hb.Partition({"hidden": hb.Langevin(1, 1e-4, "ABOBA"), "output": ADL}, h=0.1)
    assert hb.Partition({"hidden": two, "output": hb.Langevin(2, 1e-5, "BAOBA")}, h=0.1)
    assert hb.Partition({"hidden": two, "output": hb.Frozen()}, h=0.1)
    for other in (LANGEVIN, ADL, hb.SGD()):
        with pytest.raises(
            ValueError, match=r"'BAOBA' needs 2 gradients per step, so all parts must share that word"
        ):
            hb.Partition({"hidden": two, "output": other}, h=0.1)


def test_tempered_parts_share_one_ladder():
    one, other = SimulatedTempering((1e-4, 2e-4)), SimulatedTempering((1e-4, 3e-4))
    assert hb.LaLa(0.1, 1.0, one)
    with pytest.raises(ValueError, match="must have the same SimulatedTempering"):
        hb.LaLa(0.1, 1.0, one, tau_output=other)


def test_a_partition_is_a_value():
    partition = hb.AdLaLa()
    assert pickle.loads(pickle.dumps(partition)) == partition == copy.deepcopy(partition)
    assert partition != hb.AdLaLa(h=0.1)
    with pytest.raises(AttributeError):
        partition.h = 0.2
    partition.methods["hidden"] = hb.SGD()
    assert partition == hb.AdLaLa()
    assert pickle.dumps(partition) == pickle.dumps(copy.deepcopy(partition))  # without what is cached
    assert repr(hb.Partition(hb.SGD(), h=0.1)) == "Partition(SGD(), h=0.1)"
    assert "'output': Langevin(gamma=0.1" in repr(partition)
