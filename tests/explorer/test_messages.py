"""Messages between the page and the server, checked without either."""

import json
import math
import struct

import numpy as np
import pytest

from heatbath.explorer.messages import (
    MAX_LENGTH,
    MAX_SETUP_LENGTH,
    find_message_id,
    format_frame,
    format_message,
    parse_message,
    round_for_display,
)
from heatbath.explorer.settings import SettingsError


def test_the_id_of_a_message_is_found_only_at_its_ends():
    for text in (
        '{"type":"step","id":7,"steps":0}',
        '{"id": 7, "type": "none", ' + "x" * MAX_SETUP_LENGTH,
        '{"type":"setup","settings":"' + "y" * MAX_SETUP_LENGTH + '","id":7}',
        ' { "type" : "x" , "id" : 7 } ',
    ):
        assert find_message_id(text) == 7, text[:40]
    for text in (
        b'{"id":7}', "", "7", '{"type":"setup","settings":{"a":1,"id":7}}', '{"id":true}', '{"id":7.5,"a":1}',
        '{"id":"7"}', '{"id":-7}', '[{"a":1,"id":7}]', '{"a":",\\"id\\":7}', '{"id":' + "7" * 400 + "}",
    ):  # fmt: skip
        assert find_message_id(text) is None, text[:40]


def test_all_errors_of_a_message_are_reported_together():
    with pytest.raises(SettingsError) as caught:
        parse_message('{"type":"heat","run":"C","on":1,"colour":"red","id":"x"}')
    assert [error.field for error in caught.value.errors] == ["heat", "id", "run", "on"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{}", "text is needed, got bytes"),
        ("[1]", "a JSON object is needed"),
        ('{"type":"speed","speed":NaN}', "NaN is not accepted as a number"),
        ("[" * 200_000, "nested too deeply"),
        ('{"type":"line","x":"' + "y" * MAX_LENGTH + '"}', "at most 16,384 characters"),
        ("y" * (MAX_SETUP_LENGTH + 1), "at most 1,048,576 characters"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_message_is_refused_with_its_reason(text, words):
    with pytest.raises(SettingsError, match=words):
        parse_message(text)


def test_numbers_that_are_not_finite_become_null():
    text = format_message(
        "state", steps=np.array([1, 2]), loss={"A": math.nan, "B": (np.float32(0.5), math.inf)}
    )
    assert json.loads(text) == {"type": "state", "steps": [1, 2], "loss": {"A": None, "B": [0.5, None]}}


def test_a_frame_has_the_documented_layout():
    maps = [np.arange(4, dtype=np.uint8), np.full(4, 255, np.uint8)]
    frame = format_frame(7, 2, [10, 20], [0.5, 1.0, 0.25, 0.75, math.inf, 1.0, 0.5, 0.5], maps)
    assert frame[:4] == b"HBF1"
    number, width, height, *steps = struct.unpack_from("<IIIdd", frame, 4)
    assert (number, width, height, steps) == (7, 2, 2, [10.0, 20.0])
    losses = struct.unpack_from("<8f", frame, 32)
    assert losses[:4] == (0.5, 1.0, 0.25, 0.75)
    assert losses[4] == pytest.approx(3e38)  # infinity would be no number for the page
    assert frame[64:] == bytes([0, 1, 2, 3, 255, 255, 255, 255])


def test_numbers_are_shown_with_six_digits():
    assert round_for_display(1.23456789) == 1.23457
    assert round_for_display(123456789.0) == 123457000.0
