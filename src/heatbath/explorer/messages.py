"""Read and write the messages between the page and the server.

Addresses are relative to the page: `./` is the page, `./page/NAME` its files, `./run/SESSION/A.nc` a run as a
file, `./socket?session=KEY` the websocket. A server that other computers can reach needs `token=...` in every
address except those of the page's files.

Messages from the page are JSON objects in text, with a `type`, a number `id` that the answer repeats, and the
fields below. The `id` comes last, or first after the type, where the server finds it even in a message that
it can't parse.

| type | fields | answer |
| --- | --- | --- |
| setup | settings (see `settings`) | `ready`; both runs start again, paused |
| reset | | `ready`: back to step 0, with coefficients as they are |
| change | run "A" or "B", and any of method, h, parts, anneal | `changed`; another method, word or option begins a new phase |
| heat | run, on, factor | `changed`; temperatures are multiplied by the factor while it is on |
| play, pause | | `state` |
| step | steps | `state`, once both runs have made the steps |
| speed | speed: at most this number of steps a second, or null | `state` |
| view | map "mean", "sd" or "chain", chain, units, size | the next frame shows it |
| ready | frame | asks for the next frame, as soon as there is something new |
| hide, show | | the page is hidden or visible: a hidden page gets no frames and traces |
| word | run, part, text, gamma | `word`; the word is checked, not applied |
| rewind | run | `rewound`; the run goes back to a good state from before its chains diverged |
| line | | `line`; both runs must be paused |
| code | run, as "python" or "command" | `code` |

Messages to the page are text:

| type | fields |
| --- | --- |
| hello | version, session, catalogue (see `method_menu.catalogue`), limits, scenes, defaults (settings) |
| ready | settings with every default, domain [left, right, bottom, top], train and test [[x, y, class], ...], targets (names of the classes), parts by run [{name, key, parameters, thermal, adaptive, thermal_name}] |
| state | playing, speed, steps by run |
| changed | run, step from which it holds, method, h, parts, anneal, heat, layout (as `ready` has parts), entry [step, change] of the history, replayed; history, if changes were dropped |
| compiling | run, done, text |
| traces | runs: from (the first record that is replaced), step, and loss, accuracy by split, temperature, configurational by part, xi by thermostat: means over living chains |
| histogram | runs: low, high and counts by part |
| units | runs: [[w1, w2, b, v], ...], lines w·x + b = 0 in the user's coordinates with the output weight v |
| diverged | run, step, part, chains (number of diverged chains), living (number of the others) |
| word | ok, letters [{letter, share}], gradients, order, text (the error) |
| rewound | run, step, history, and the fields of `changed` |
| line | lines: "start-A", "start-B", "A-B" with at, train, test |
| code | run, as, text |
| error | run, field, text, problems [{field, text}]; nothing has changed |
| busy | text: too many pages |

Frames are bytes, little-endian: "HBF1"; uint32 number, width, height; float64 step of A, of B; float32 train
loss, test loss, train accuracy, test accuracy of A, the same of B; width x height uint8 of A, then of B, row
by row from the top: 255 times the probability of class 1, or 510 times the standard deviation over chains.
"""  # noqa: E501

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.checks import POSITIVE, Interval, choice, real, whole
from heatbath.explorer.settings import (
    MAX_CHAINS,
    MAX_CHANGES,
    MAX_DRAWN_POINTS,
    MAX_EXAMPLES,
    MAX_LAYERS,
    MAX_PARAMETERS,
    MAX_WIDTH,
    MAX_WORD_LENGTH,
    RUN_NAMES,
    ErrorCollector,
    FieldError,
)

MAX_SETUP_LENGTH = 2**20  # characters of the message `setup`, which may contain a table
MAX_LENGTH = 2**14  # characters of every other message
MAX_RECEIVED_BYTES = 4 * MAX_SETUP_LENGTH  # above it the connection ends, without an error to the page
MAX_MESSAGES_PER_SECOND = 100  # of a page
MAX_SESSIONS = 8  # pages of a server
MAX_MANUAL_STEPS = 1000  # of one message `step`
MAP_SIZES = (64, 160)  # smallest and largest number of points on a side of a map
FRAME_MAGIC = b"HBF1"
MAX_FLOAT32 = 3e38  # a little below the largest float32
LIMITS: dict[str, Any] = {
    "layers": MAX_LAYERS, "width": MAX_WIDTH, "parameters": MAX_PARAMETERS, "chains": MAX_CHAINS,
    "points": MAX_EXAMPLES, "drawn": MAX_DRAWN_POINTS, "letters": MAX_WORD_LENGTH, "changes": MAX_CHANGES,
    "steps": MAX_MANUAL_STEPS, "sessions": MAX_SESSIONS, "messages": MAX_MESSAGES_PER_SECOND,
    "size": list(MAP_SIZES), "bytes": {"setup": MAX_SETUP_LENGTH, "other": MAX_LENGTH},
}  # fmt: skip
# An id is looked for in this number of characters at both ends of a message, which may be invalid and huge
ID_SEARCH_LENGTH = 80
ID_AT_START = re.compile(r'\s*\{\s*(?:"type"\s*:\s*"\w*"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*[,}]', re.ASCII)
ID_AT_END = re.compile(r',\s*"id"\s*:\s*(\d{1,15})\s*\}\s*$', re.ASCII)
FIELDS: dict[str, tuple[str, ...]] = {
    "setup": ("settings",),
    "change": ("run", "method", "h", "parts", "anneal"),
    "play": (),
    "pause": (),
    "step": ("steps",),
    "reset": (),
    "speed": ("speed",),
    "heat": ("run", "on", "factor"),
    "view": ("map", "chain", "units", "size"),
    "ready": ("frame",),
    "hide": (),
    "show": (),
    "word": ("run", "part", "text", "gamma"),
    "rewind": ("run",),
    "line": (),
    "code": ("run", "as"),
}


def parse_message(text: str | bytes) -> dict[str, Any]:
    """Return a message of the page as a dict, after checking its form.

    Parameters
    ----------
    text : str or bytes
        What the page has sent; bytes are refused.

    Returns
    -------
    dict
        The `type`, the `id` if there is one, and the accepted fields of that type.

    Raises
    ------
    SettingsError
        With every error in the message.
    """
    errors = ErrorCollector()
    with errors.field("message"):
        message = _parse_json(text)
    errors.raise_errors()

    with errors.field("type"):
        if not isinstance(message, dict):
            raise TypeError(f"a JSON object is needed, got {str(text)[:60]}")
        choice("type", message.get("type"), tuple(FIELDS))
        if message["type"] != "setup" and len(text) > MAX_LENGTH:
            raise ValueError(f"at most {MAX_LENGTH:,} characters are accepted in a message {message['type']}")
    errors.raise_errors()

    message_type = message["type"]
    fields = errors.read_object(message_type, message, ("type", "id", *FIELDS[message_type]))
    message_id = message.get("id")
    if isinstance(message_id, bool) or not isinstance(message_id, int | None):
        errors.errors.append(FieldError("id", f"id must be a whole number, got {str(message_id)[:40]!r}"))
    for name, check in FIELD_CHECKS.get(message_type, {}).items():
        with errors.field(name):
            check(name, fields.get(name))
    errors.raise_errors()
    return fields


def _parse_json(text: str | bytes) -> Any:
    """Return what a text contains as JSON, or raise ValueError or TypeError; sizes and depth are limited."""
    if not isinstance(text, str):
        raise TypeError("text is needed, got bytes")
    if len(text) > MAX_SETUP_LENGTH:
        raise ValueError(f"at most {MAX_SETUP_LENGTH:,} characters are accepted, got {len(text):,}")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("the message is nested too deeply") from None


def find_message_id(text: str | bytes) -> int | None:
    """Return the `id` of a message that may be invalid or huge, or None; only its two ends are read."""
    if not isinstance(text, str):
        return None
    match = ID_AT_START.match(text[:ID_SEARCH_LENGTH]) or ID_AT_END.search(text[-ID_SEARCH_LENGTH:])
    return int(match[1]) if match else None


def _refuse_constant(constant: str) -> None:
    """Raise ValueError for NaN and infinities, which JSON doesn't have but Python's parser accepts."""
    raise ValueError(f'{constant} is not accepted as a number: write infinite friction as "inf"')


Check = Callable[[str, Any], object]  # takes a field's name and value, and raises if the value isn't accepted


def _check_bool(name: str, value: object) -> None:
    """Raise TypeError unless a value is true or false."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be true or false, got {str(value)[:40]!r}")


def _check_text(name: str, value: object) -> None:
    """Raise TypeError unless a value is a short text; a word that is a little too long has its own error."""
    limit = 4 * MAX_WORD_LENGTH
    if not isinstance(value, str) or len(value) > limit:
        raise TypeError(f"{name} must be a text of at most {limit} characters, got {str(value)[:40]!r}")


def _optional(check: Check) -> Check:
    """Return a check that also accepts null."""
    return lambda name, value: None if value is None else check(name, value)


CHECK_RUN = partial(choice, accepted=RUN_NAMES)
FIELD_CHECKS: dict[str, dict[str, Check]] = {
    "change": {"run": CHECK_RUN},
    "step": {"steps": partial(whole, low=1, high=MAX_MANUAL_STEPS + 1)},
    "speed": {"speed": _optional(partial(real, accepted=Interval(1, 1e9)))},
    "heat": {"run": CHECK_RUN, "on": _check_bool, "factor": _optional(partial(real, accepted=POSITIVE))},
    "view": {
        "map": _optional(partial(choice, accepted=("mean", "sd", "chain"))),
        "chain": _optional(partial(whole, low=0, high=MAX_CHAINS)),
        "units": _optional(_check_bool),
        "size": _optional(partial(whole, low=MAP_SIZES[0], high=MAP_SIZES[1] + 1)),
    },
    "ready": {"frame": partial(whole, low=0, high=2**32)},
    "word": {"run": CHECK_RUN, "part": _check_text, "text": _check_text},
    "rewind": {"run": CHECK_RUN},
    "code": {"run": CHECK_RUN, "as": partial(choice, accepted=("python", "command"))},
}


def format_message(kind: str, **fields: Any) -> str:
    """Return a message to the page as JSON; NaN and infinities become null."""
    return json.dumps({"type": kind, **_json_value(fields)}, allow_nan=False, separators=(",", ":"))


def _json_value(value: Any) -> Any:
    """Return a value as JSON holds it: arrays as lists, numbers that aren't finite as None."""
    if isinstance(value, Mapping):
        return {str(key): _json_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return _json_value(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def round_for_display(value: float) -> float:
    """Return a number rounded to six significant digits, which is finer than a page can show."""
    return float(f"{value:.6g}")


def format_frame(
    number: int, size: int, steps: Sequence[int], losses: Sequence[float], maps: Sequence[NDArray[np.uint8]]
) -> bytes:
    """Return a frame as bytes.

    Parameters
    ----------
    number : int
        Number of the frame.
    size : int
        Number of points on a side of the maps.
    steps : sequence of int
        Steps of run A and run B.
    losses : sequence of float
        Train loss, test loss, train accuracy and test accuracy of run A, then of run B.
    maps : sequence of arrays
        Maps of run A and run B, row 0 at the top.
    """
    clipped = np.clip(losses, -MAX_FLOAT32, MAX_FLOAT32)
    header = FRAME_MAGIC + struct.pack("<IIIdd8f", number, size, size, *steps, *clipped)
    return header + b"".join(pixels.tobytes() for pixels in maps)
