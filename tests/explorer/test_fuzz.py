"""Whatever a page sends, the server answers, and goes on."""

import json
import random
import threading
from collections import Counter

import pytest
from websockets.exceptions import ConnectionClosed

from heatbath.explorer.messages import MAX_LENGTH, MAX_RECEIVED_BYTES, MAX_SETUP_LENGTH, parse_message
from heatbath.explorer.settings import SettingsError, read_settings
from tests.explorer.pages import SMALL, Page

VALID = [
    {"type": "setup", "settings": SMALL},
    {
        "type": "setup",
        "settings": {**SMALL, "problem": {"kind": "points", "points": [[0, 0, 0], [1, 1, 1]] * 3}},
    },
    {
        "type": "setup",
        "settings": {**SMALL, "problem": {"kind": "csv", "text": "a,b,c\n1,2,x\n3,4,y\n5,7,x\n"}},
    },
    {"type": "setup", "settings": {"runs": {"A": {"method": "LOL", "history": [[3, {"h": 0.1}]]}}, **SMALL}},
    {"type": "change", "run": "A", "h": 0.1, "parts": {"hidden": {"tau": 1e-4, "word": "BAFEFAB"}}},
    {"type": "change", "run": "A", "h": 0.1, "parts": {"hidden": {"sigma": 0.01, "epsilon": 0.1}}},
    {"type": "change", "run": "B", "method": "LaLa", "anneal": {"factor": 0.1, "steps": 100}},
    {"type": "play"},
    {"type": "pause"},
    {"type": "step", "steps": 3},
    {"type": "reset"},
    {"type": "speed", "speed": 1000},
    {"type": "heat", "run": "A", "on": True, "factor": 3},
    {"type": "view", "map": "sd", "chain": 1, "units": True, "size": 64},
    {"type": "ready", "frame": 1},
    {"type": "hide"},
    {"type": "show"},
    {"type": "word", "run": "A", "part": "hidden", "text": "BAOAB", "gamma": "inf"},
    {"type": "rewind", "run": "A"},
    {"type": "code", "run": "A", "as": "command"},
]
NASTY = [
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e-300, 1e300, 2**31, 2**53, 2**64, 10**400, float("nan"),
    float("inf"), -float("inf"), "", "inf", "nan", "A", "hidden", "\x00", "é" * 50, "B" * 65, "../..", [], {},
    [[]], [None] * 5, {"": None}, {"type": "setup"}, [1, 2, 3], "all", "Adam", "__class__",
]  # fmt: skip


def mutated(value, random):
    """Return a value with something nasty in one place of it."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(list(value))
        changed = {**value, key: mutated(value[key], random)}
        if random.random() < 0.1:
            changed[str(random.choice(NASTY))] = random.choice(NASTY)
        if random.random() < 0.1:
            del changed[key]
        return changed
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        return [*value[:place], mutated(value[place], random), *value[place + 1 :]]
    return random.choice(NASTY)


def with_plausible_numbers(value, random):
    """Return a value whose numbers are as they might be, or a little absurd."""
    if isinstance(value, dict):
        return {key: with_plausible_numbers(single, random) for key, single in value.items()}
    if isinstance(value, float):
        return value * 10 ** random.uniform(-3, 6)
    return value


def message(random):
    kind = random.random()
    if kind < 0.1:
        return random.randbytes(random.randrange(40))
    if kind < 0.2:
        return "".join(chr(random.randrange(1, 0x250)) for _ in range(random.randrange(40)))
    if kind < 0.3:
        return json.dumps(random.choice(NASTY))
    given = random.choice(VALID)
    text = json.dumps(mutated(given, random) if kind < 0.7 else with_plausible_numbers(given, random))
    return text[: random.randrange(len(text))] if kind < 0.35 else text


def test_ten_thousand_fuzzed_messages_are_parsed_or_refused_with_a_field_and_a_reason():
    chance = random.Random(7)
    parsed, problems = Counter(), []
    for _ in range(10_000):
        try:
            content = parse_message(message(chance))
            if content["type"] == "setup":
                read_settings(content.get("settings"))
            parsed[content["type"]] += 1
        except SettingsError as error:
            problems += error.errors
            parsed["refused"] += 1
    assert parsed["refused"] > 3000
    assert all(field and text for field, text in problems)
    assert set(parsed) == {"refused", *(valid["type"] for valid in VALID)}


def test_the_server_survives_thousands_of_fuzzed_messages(served, page, monkeypatch):
    monkeypatch.setattr("heatbath.explorer.server.MAX_MESSAGES_PER_SECOND", 10**6)
    page.setup()
    chance = random.Random(7)
    workers = {thread.name for thread in threading.enumerate() if thread.name.startswith("heatbath")}
    with Page(served) as fuzzed:
        fuzzed.setup()
        for number in range(2500):
            sent = message(chance)
            fuzzed.socket.send(sent)
            if number % 250 == 249:
                answer = fuzzed.ask("word", run="A", part="nowhere", text="BAOAB")
                assert not answer["ok"]
        assert fuzzed.seen["error"] > 750
        assert fuzzed.seen["changed"] + fuzzed.seen["ready"] > 75
        fuzzed.setup()
        assert fuzzed.steps(3) == {"A": 3, "B": 3}
        assert fuzzed.frame()["steps"] == {"A": 3, "B": 3}
    assert page.steps(3) == {"A": 3, "B": 3}
    assert workers <= {thread.name for thread in threading.enumerate()}


def test_settings_are_read_or_refused_with_all_their_errors():
    chance = random.Random(3)
    read_ones = refused = 0
    for _ in range(1500):
        settings = mutated(random.Random.choice(chance, VALID[:4])["settings"], chance)
        try:
            plain = read_settings(settings).as_json
        except SettingsError as error:
            problems = error.errors
        else:
            read_ones += 1
            assert read_settings(json.loads(json.dumps(plain, allow_nan=False))).as_json == plain
            continue
        refused += 1
        assert problems
        assert all(field and text for field, text in problems)
    assert refused > 500
    assert read_ones > 50


def test_messages_that_are_too_large_are_refused_before_they_are_read(page):
    page.setup()
    page.socket.send(
        json.dumps({"type": "word", "id": 99, "run": "A", "part": "hidden", "text": "A" * MAX_LENGTH})
    )
    refused = page.wait("error")
    assert "characters" in refused["text"]
    assert refused["id"] == 99
    settings = {"problem": {"kind": "csv", "text": '"' * MAX_SETUP_LENGTH}}
    page.socket.send(json.dumps({"type": "setup", "settings": settings, "id": 98}))
    assert page.wait("error")["id"] == 98
    page.socket.send(
        json.dumps({"type": "setup", "settings": {"view": {"x": "y" * (MAX_SETUP_LENGTH - 100)}}})
    )
    assert "4000" in page.wait("error")["text"]
    page.socket.send("[" * 100_000)
    assert page.wait("error")["text"]
    assert page.steps(1) == {"A": 1, "B": 1}
    with pytest.raises(ConnectionClosed):  # noqa: PT012
        page.socket.send("y" * (MAX_RECEIVED_BYTES + 1))
        page.wait("error")


def test_invalid_values_are_refused_and_training_continues(page):
    page.setup()
    page.ask("play")
    for settings, field, text in (
        ({"network": {"hidden": [1001]}}, "network.hidden", "1001"),
        ({"network": {"hidden": [500, 500]}}, "network.hidden", "at most 200,000 parameters"),
        ({"network": {"hidden": [1, 1, 1, 1]}}, "network.hidden", "1 to 3 layers"),
        ({"chains": 17}, "chains", "17"),
        ({"problem": {"kind": "spirals", "points": 5001}}, "problem.points", "5001"),
        ({"problem": {"kind": "points", "points": [[0, 0, 1]] * 5}}, "problem.points", "both classes"),
        ({"problem": {"kind": "csv", "text": "a,b\n" + "1,x\n2,y\n" * 3}}, "problem.text", "two features"),
        ({"problem": {"kind": "csv", "text": "a,b,c\n1,2,1.5\n1,3,l.5\n"}}, "problem.text", "a number is"),
        ({"batch": 41}, "batch", "40 training examples"),
        ({"runs": {"A": {"method": "LOL", "h": 0}}}, "runs.A.h", "> 0"),
        ({"runs": {"A": {"method": "LOL", "history": [[1, {"h": -1}]]}}}, "runs.A.history.h", "> 0"),
    ):
        answer = page.ask("setup", settings={**SMALL, **settings})
        assert (answer["type"], answer["field"]) == ("error", field)
        assert text in answer["text"]
    several = page.ask("setup", settings={**SMALL, "chains": 0, "seed": -1, "batch": "x"})
    assert [problem["field"] for problem in several["problems"]] == ["chains", "seed", "batch"]
    page.socket.send('{"type": "change", "run": "A", "h": NaN}')
    assert "NaN is not accepted as a number" in page.wait("error")["text"]
    for change in (
        {"h": "inf"},
        {"parts": {"hidden": {"tau": -1}}},
        {"parts": {"nowhere": {}}},
        {"method": "x"},
    ):
        assert page.ask("change", run="A", **change)["type"] == "error"
    assert "no temperature" in page.ask("heat", run="B", on=True)["text"]
    step = page.ask("speed", speed=None)["steps"]["A"]
    assert step > 0
    page.wait("traces", where=lambda m: m["runs"].get("A", {}).get("step", [0])[-1] > step)
