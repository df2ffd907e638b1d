"""What the page and the server say to each other.

Addresses are relative to wherever the page is: `./` is the page, `./page/NAME` its files, `./run/SESSION/A.nc`
a run as a file, `./socket?session=KEY` the websocket. A server for other computers wants `token=...` in all but
the files.

From the page: text, a JSON object with `type`, a number `id` that the answer bears (last, or first but for the
type: there it is found in what cannot be read, too), and

| type | fields | answer |
| --- | --- | --- |
| setup | settings (see `settings`) | `ready`; both runs begin anew, paused |
| reset | | `ready`: back to step 0, with coefficients as they are |
| change | run "A" or "B", and what changes of method, h, parts, anneal | `changed`; another method, word or option begins a new phase |
| heat | run, on, factor | `changed`: temperatures times the factor while it is on |
| play, pause | | `state` |
| step | steps | `state`, when both runs have made them |
| speed | speed: most steps a second, or null | `state` |
| view | map "mean", "sd" or "chain", chain, units, size | the next frame has it |
| ready | frame | asks for the next frame, when there is something new |
| hide, show | | whether the page can be seen: no frames and traces else |
| word | run, part, text, gamma | `word`: checked, not applied |
| rewind | run | `rewound`: a good state from before chains diverged |
| line | | `line`; of runs that stand still |
| code | run, as "python" or "command" | `code` |

To the page: text,

| type | fields |
| --- | --- |
| hello | version, session, catalogue (see `catalogue`), limits, scenes, defaults (settings) |
| ready | settings with every default, domain [left, right, bottom, top], train and test [[x, y, class], ...], targets (names of the classes), parts by run [{name, key, parameters, thermal, adaptive, thermal_name}] |
| state | playing, speed, steps by run |
| changed | run, step from which on it holds, method, h, parts, anneal, heat, layout (as `ready` has parts), entry [step, change] of the history, replayed; history, if some of it was dropped |
| compiling | run, done, text |
| traces | runs: from (replace what there is from this record on), step, and loss, accuracy by split, temperature, configurational by part, xi by thermostat: means over living chains |
| histogram | runs: by part low, high, counts |
| units | runs: [[w1, w2, b, v], ...], lines w·x + b = 0 in the user's coordinates with the output weight v |
| diverged | run, step, part, chains (how many are lost), living |
| word | ok, letters [{letter, share}], gradients, order, text (what is wrong) |
| rewound | run, step, history, and as `changed` |
| line | lines: "start-A", "start-B", "A-B" with at, train, test |
| code | run, as, text |
| error | run, field, text, problems [{field, text}]; nothing has changed |
| busy | text: too many pages |

and frames, bytes, little-endian: "HBF1"; uint32 number, width, height; float64 step of A, of B; float32 train
loss, test loss, train accuracy, test accuracy of A, the same of B; width x height uint8 of A, then of B, row
by row from the top: 255 times the probability of class 1, or 510 times the standard deviation over chains.
"""  # noqa: E501

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.checks import POSITIVE, Interval, choice, real, whole
from heatbath.explorer.settings import (
    CHANGES,
    LAYERS,
    LETTERS,
    MOST_CHAINS,
    MOST_DRAWN,
    MOST_POINTS,
    PARAMETERS,
    RUNS,
    WIDTH,
    Checks,
)

LARGEST, USUAL = 2**20, 2**14  # characters of a setup, and of any other message
READ = 4 * LARGEST  # bytes of what is refused with an answer; what is larger ends the connection
A_SECOND = 100  # messages of a page, at the most
SESSIONS = 8
STEPS = 1000  # that can be made by hand at a time
SIZES = (64, 160)  # of a map
MAGIC = b"HBF1"
LARGE = 3e38  # as float32 has room for
LIMITS: dict[str, Any] = {
    "layers": LAYERS, "width": WIDTH, "parameters": PARAMETERS, "chains": MOST_CHAINS, "points": MOST_POINTS,
    "drawn": MOST_DRAWN, "letters": LETTERS, "changes": CHANGES, "steps": STEPS, "sessions": SESSIONS,
    "messages": A_SECOND, "size": list(SIZES), "bytes": {"setup": LARGEST, "other": USUAL},
}  # fmt: skip
END = 80  # characters in which a number stands
FIRST = re.compile(r'\s*\{\s*(?:"type"\s*:\s*"\w*"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*[,}]', re.ASCII)
LAST = re.compile(r',\s*"id"\s*:\s*(\d{1,15})\s*\}\s*$', re.ASCII)
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


def read(text: str | bytes) -> dict[str, Any]:
    """A message of the page, its form checked; `Wrong` says what is not as it should be."""
    checks = Checks()
    with checks.of("message"):
        if not isinstance(text, str):
            raise TypeError("text is needed, got bytes")
        if len(text) > LARGEST:
            raise ValueError(f"at most {LARGEST:,} characters are accepted, got {len(text):,}")
        try:
            message = json.loads(text, parse_constant=_refuse)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
    checks.end()
    with checks.of("type"):
        if not isinstance(message, dict):
            raise TypeError(f"a JSON object is needed, got {text[:60]}")
        choice("type", message.get("type"), tuple(FIELDS))
        if message["type"] != "setup" and len(text) > USUAL:
            raise ValueError(f"at most {USUAL:,} characters are accepted of {message['type']}")
    checks.end()
    kind = message["type"]
    fields = checks.table(kind, message, ("type", "id", *FIELDS[kind]))
    number = message.get("id")
    if isinstance(number, bool) or not isinstance(number, int | None):
        checks.problems.append(("id", f"id must be a whole number, got {str(number)[:40]!r}"))
    for name, accepted in CHECKED.get(kind, {}).items():
        with checks.of(name):
            accepted(name, fields.get(name))
    checks.end()
    return fields


def number_of(text: str | bytes) -> int | None:
    """The `id` of a message that need be neither valid nor small: of its ends only is anything read."""
    if not isinstance(text, str):
        return None
    found = FIRST.match(text[:END]) or LAST.search(text[-END:])
    return int(found[1]) if found else None


def _refuse(constant: str) -> None:
    raise ValueError(f'{constant} is no number here: infinite friction is written as "inf"')


def _is_run(name: str, value: object) -> None:
    choice(name, value, RUNS)


def _is_truth(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be true or false, got {str(value)[:40]!r}")


def _is_text(name: str, value: object) -> None:
    if not isinstance(value, str) or len(value) > 4 * LETTERS:
        raise TypeError(f"{name} must be a short text, got {str(value)[:40]!r}")


CHECKED: dict[str, dict[str, Any]] = {
    "change": {"run": _is_run},
    "step": {"steps": lambda name, value: whole(name, value, 1, STEPS + 1)},
    "speed": {"speed": lambda name, value: None if value is None else real(name, value, Interval(1, 1e9))},
    "heat": {
        "run": _is_run,
        "on": _is_truth,
        "factor": lambda name, value: None if value is None else real(name, value, POSITIVE),
    },
    "view": {
        "map": lambda name, value: None if value is None else choice(name, value, ("mean", "sd", "chain")),
        "chain": lambda name, value: None if value is None else whole(name, value, 0, MOST_CHAINS),
        "units": lambda name, value: None if value is None else _is_truth(name, value),
        "size": lambda name, value: None if value is None else whole(name, value, SIZES[0], SIZES[1] + 1),
    },
    "ready": {"frame": lambda name, value: whole(name, value, 0, 2**32)},
    "word": {"run": _is_run, "part": _is_text, "text": _is_text},
    "rewind": {"run": _is_run},
    "code": {"run": _is_run, "as": lambda name, value: choice(name, value, ("python", "command"))},
}


def write(kind: str, **fields: Any) -> str:
    """A message to the page; what is not finite is null."""
    return json.dumps({"type": kind, **_plain(fields)}, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(single) for key, single in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(single) for single in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def short(value: float) -> float:
    """A number with as many digits as can be seen."""
    return float(f"{value:.6g}")


def frame(
    number: int, size: int, steps: list[int], losses: list[float], maps: list[NDArray[np.uint8]]
) -> bytes:
    """A frame: steps and losses of both runs, and their maps, row 0 at the top."""
    head = MAGIC + struct.pack("<IIIdd8f", number, size, size, *steps, *np.clip(losses, -LARGE, LARGE))
    return head + b"".join(single.tobytes() for single in maps)
