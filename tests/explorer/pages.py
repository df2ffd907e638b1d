"""A page without a browser: what it sends and gets."""

import json
import struct
import time
from collections import Counter
from functools import partial
from itertools import count

from websockets.sync.client import connect

from heatbath.explorer.session import Session, make_streams
from heatbath.explorer.settings import read_settings
from tests.patience import PATIENCE

SMALL = {
    "problem": {"kind": "blobs", "points": 40, "seed": 1},
    "network": {"hidden": [5]},
    "batch": 8,
    "chains": 2,
    "runs": {"A": {"method": "AdLaLa"}, "B": {"method": "Adam"}},
}


def session_without_workers(**settings):
    """Return a session with small runs that no worker serves, its streams, and the messages it sends."""
    messages = []
    read = read_settings({**SMALL, **settings})
    session = Session(lambda text: messages.append(json.loads(text)) if text else None, lambda: None)
    streams = make_streams(read, lambda text, number=None: messages.append(json.loads(text)))
    session.install(read, streams, "")
    return session, streams, messages


def stream_of(name="A", **given):
    """Return a run of small settings, some of them replaced, that sends to nobody."""
    return make_streams(read_settings({**SMALL, **given}), lambda *message: None)[name]


# However slow either end is; and a client that always reads, or it would not hear that a page has ended.
connected = partial(connect, max_size=None, max_queue=None, open_timeout=PATIENCE, ping_interval=None)
FAULTS = False  # whether faults of the server itself are expected


class Page:
    """A websocket client that answers as the page does."""

    def __init__(self, served, session="", **options):
        address = served.url.replace("http", "ws", 1).split("?")
        query = "&".join([*address[1:], f"session={session}"])
        self._context = connected(f"{address[0]}socket?{query}", **options)
        self.socket = self._context.__enter__()
        self.numbers = count(1)
        self.seen = Counter()
        self.hello = self.wait("hello", "busy")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._context.__exit__(None, None, None)

    def send(self, kind, **fields):
        number = next(self.numbers)
        self.socket.send(json.dumps({"type": kind, "id": number, **fields}))
        return number

    def next(self, timeout=PATIENCE):
        received = self.socket.recv(timeout=timeout)
        if isinstance(received, bytes):
            self.seen["frame"] += 1
            return {"type": "frame", **unpack(received)}
        message = json.loads(received, parse_constant=lambda name: 1 / 0)
        self.seen[message["type"]] += 1
        assert FAULTS or "error of the explorer" not in message.get("text", ""), message
        return message

    def wait(self, *kinds, where=lambda message: True):
        """Return the next message of some kind, and skip others."""
        end = time.monotonic() + PATIENCE
        while True:
            message = self.next(max(0, end - time.monotonic()))
            if message["type"] in kinds and where(message):
                return message

    def ask(self, kind, **fields):
        """Send a message, and return the answer with its number."""
        number = self.send(kind, **fields)
        return self.wait(
            "ready", "state", "changed", "word", "rewound", "line", "code", "error",
            where=lambda message: message.get("id") == number,
        )  # fmt: skip

    def setup(self, **settings):
        """Begin with small settings, some of them replaced."""
        answer = self.ask("setup", settings={**SMALL, **settings})
        assert answer["type"] == "ready", answer
        return answer

    def steps(self, count):
        """Have both runs make steps."""
        while count:
            now = min(count, 1000)
            state = self.ask("step", steps=now)
            count -= now
        return state["steps"]

    def frame(self, number=0):
        self.send("ready", frame=number)
        return self.wait("frame")


def unpack(data):
    """Return the contents of a binary frame."""
    assert data[:4] == b"HBF1"
    number, width, height, step_a, step_b, *losses = struct.unpack("<IIIdd8f", data[4:64])
    assert len(data) == 64 + 2 * width * height
    maps = {"A": data[64 : 64 + width * height], "B": data[64 + width * height :]}
    steps = {"A": int(step_a), "B": int(step_b)}
    return {"number": number, "size": (width, height), "steps": steps, "losses": losses, "maps": maps}
