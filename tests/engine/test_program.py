"""Programs have one gradient per step, as few passes as possible, and compiled code reads them as arrays."""

import pytest

import heatbath as hb
from heatbath.engine.program import (
    EVALUATE,
    FRICTION,
    GRADIENT,
    MOVE_ON_LADDER,
    NOTHING,
    SEGMENT,
    TEMPER,
    Control,
    compile_program,
    encode,
)
from heatbath.methods.operations import READ, THERMOSTAT, A, B, F, S
from heatbath.models.dense import MLP

LAYERS = MLP((20,)).layers(2, 1)


def program(method, **options):
    return compile_program(hb.Partition(method, 0.1), LAYERS, **options)


def operations(stage):
    return [operation.kind for operation in stage.all_operations()]


def test_baoab_is_one_stage_with_its_kicks_merged():
    (stage,) = program(hb.Langevin(0.5, 1e-3, "BAOAB")).steps
    assert stage.kind == GRADIENT
    assert operations(stage) == [B, A, READ, S, A]
    closing, opening = stage.passes[0].operations[0].terms
    assert (closing.offset, closing.fraction, opening.offset, opening.fraction) == (-1, 0.5, 0, 0.5)


def test_a_word_seen_at_the_kick_has_a_prelude_and_opens_the_next_step_early():
    seen = program(hb.Langevin(0.5, 1e-3, "ABOBA"))
    assert [stage.kind for stage in seen.prelude] == [NOTHING]
    assert operations(seen.prelude[0]) == [A]
    (stage,) = seen.steps
    assert {term.offset for operation in stage.all_operations() for term in operation.terms} == {0, 1}


def test_a_thermostat_ends_a_pass_and_a_stop_stands_between_two_words():
    adaptive = program(hb.AdaptiveLangevin(1e-3, 0.01, 0.1, "BAFEFAB"), stops=True)
    assert [[len(p.operations), len(p.friction_operations)] for p in adaptive.steps[0].passes] == [
        [3, 1],
        [2, 0],
    ]
    assert [stage.kind for stage in adaptive.between] == [GRADIENT, TEMPER]
    assert operations(adaptive.between[0]) == [B]
    assert operations(adaptive.between[1]) == [B, A, F, THERMOSTAT, F, A]


def test_each_tensor_is_a_unit_if_it_has_a_thermostat_of_its_own_and_otherwise_each_part():
    per_part = program(hb.AdaptiveLangevin(1e-3, 0.01, 0.1))
    per_tensor = program(hb.AdaptiveLangevin(1e-3, 0.01, 0.1, thermostat="tensor"))
    assert [unit.ranges for unit in per_part.units] == [(range(81),)]
    assert [unit.size for unit in per_tensor.units] == [40, 20, 20, 1]


def test_controls_point_at_their_operations():
    encoded = encode(program(hb.AdaptiveLangevin(1e-3, 0.01, 0.1, "BAFEFAB"), stops=True).between)
    assert [Control(*row) for row in encoded.controls.tolist()] == [
        Control(EVALUATE, 0, 0, 0, 0, 0),
        Control(SEGMENT, 0, 0, 1, 0, 0),
        Control(MOVE_ON_LADDER, 0, 1, 1, 0, 0),
        Control(SEGMENT, 0, 1, 4, 0, 1),
        Control(FRICTION, 0, 4, 5, 0, 0),
        Control(SEGMENT, 0, 5, 7, 0, 1),
    ]
    assert encoded.operations[:, 0].tolist() == [B, B, A, F, THERMOSTAT, F, A]


def test_only_a_shared_word_is_run_as_written():
    layers = MLP((20,)).layers(2, 1)
    for partition in (hb.AdLaLa(), hb.Partition({"hidden": hb.SGD(), "output": hb.Adam()}, 0.1)):
        with pytest.raises(ValueError, match="rotated=False runs the one word that all parts share"):
            compile_program(partition, layers, rotated=False)


def test_programs_that_differ_in_their_coefficients_share_their_stages():
    program_of = {tau: program(hb.Langevin(1.0, tau)) for tau in (0.1, 0.2)}
    assert program_of[0.1].steps is program_of[0.2].steps
    assert program_of[0.1].encoded is program_of[0.2].encoded
    assert program_of[0.1].units != program_of[0.2].units
    assert program_of[0.1].steps is not program(hb.Langevin(1.0, 0.1, "OBABO")).steps
