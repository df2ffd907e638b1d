"""The explorer as its pages see it: frames a second, what it costs the engine, answers, memory.

A server in a process of its own, and 1 and 4 pages with two runs each (AdLaLa and Adam on the 4-turn spiral,
100 units, 4 chains). Without --chromium a page is a bare websocket client, which acknowledges every frame at
once; with it, the page in a real Chromium, driven by Playwright. Printed are, in turns and as medians:

- frames a second of a page;
- the share of the bare engine's speed: steps a second of a run over those of a `hb.Live` that nobody looks
  at, one thread for each of the two, in this process, just before and just after; the mean of A and B (which
  stay together, while a bare Adam makes half again as many steps as a bare AdLaLa), summed over the pages;
- milliseconds from a change of h to its answer, and to the first frame that shows a step with it;
- memory of the server and, in a browser, of the page (its process, and its heap after a collection) over
  --minutes of training at full speed, in MB, and its growth in the last half.
"""

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

import heatbath as hb

ADLALA = hb.AdLaLa(h=0.212, tau=3.06e-4, sigma=1.03e-3, epsilon=0.102, gamma=168.0, tau_output=8.45e-6)
ADAM = hb.Partition(hb.Adam(beta1=0.669, beta2=0.99468), 0.00666)
SCENE = "tuned"  # which has these two
SYSTEM = Path("/usr/bin/chromium")


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    """The address and the process of a server."""
    command = [sys.executable, "-c", "from heatbath.cli import main; main(['explore', '--no-browser'])"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1], process.pid
        finally:
            process.terminate()


class Page:
    """A page, counted: frames, steps and answers."""

    def __init__(self) -> None:
        self.frames = 0
        self.steps = {"A": 0.0, "B": 0.0}
        self.asked = self.answered = self.shown = 0.0
        self.changed = -1

    def take(self, message: str | bytes) -> bool:
        """Count a message; whether it is a frame."""
        now = time.perf_counter()
        if isinstance(message, bytes):
            self.frames += 1
            self.steps = dict(zip("AB", struct.unpack("<dd", message[16:32]), strict=True))
            if 0 <= self.changed < self.steps["A"]:
                self.shown, self.changed = now, -1
            return True
        if message.startswith('{"type":"changed"'):
            self.answered, self.changed = now, json.loads(message)["step"]
        return False


class Bare(Page):
    """A websocket client in a thread."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._context = connect(url.replace("http", "ws", 1) + "socket", max_size=None)
        self._socket: ClientConnection = self._context.__enter__()
        hello = json.loads(self._socket.recv())
        settings = next(scene["settings"] for scene in hello["scenes"] if scene["name"] == SCENE)
        for message in (
            {"type": "setup", "settings": settings},
            {"type": "play"},
            {"type": "ready", "frame": 0},
        ):
            self._socket.send(json.dumps(message))
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with suppress(ConnectionClosed):
            for message in self._socket:
                if self.take(message):
                    self._socket.send('{"type":"ready","frame":1}')

    def change(self, h: float) -> None:
        """Move the slider of h of run A."""
        self.asked = time.perf_counter()
        self._socket.send(json.dumps({"type": "change", "id": 1, "run": "A", "h": h}))

    def pause(self, seconds: float) -> None:
        """Let it run."""
        time.sleep(seconds)

    def close(self) -> None:
        """Close the page."""
        self._context.__exit__(None, None, None)

    def memory(self) -> dict[str, float]:
        """MB of the page: there is none."""
        return {}


class Chromium(Page):
    """The page in a browser; Playwright sees its websocket."""

    def __init__(self, url: str, browser: Any) -> None:
        super().__init__()
        self._page = browser.new_page(viewport={"width": 1280, "height": 800})
        self._page.on("websocket", lambda socket: socket.on("framereceived", self.take))
        self._page.goto(url)
        self._tools = self._page.context.new_cdp_session(self._page)
        self._tools.send("Performance.enable")
        self._page.wait_for_selector("#play:not([disabled])")
        self._page.click("#play")

    def change(self, h: float) -> None:
        """Move the slider of h of run A, as a key does."""
        slider = self._page.locator("#run-A .coefficient input[type=range]").first
        slider.focus()
        self.asked = time.perf_counter()
        self._page.keyboard.press("ArrowRight")

    def pause(self, seconds: float) -> None:
        """Let it run, with an eye on its messages."""
        self._page.wait_for_timeout(1000 * seconds)

    def close(self) -> None:
        """Close the page."""
        self._page.close()

    def memory(self) -> dict[str, float]:
        """MB of the page: its heap after a collection, and the processes that show pages."""
        self._tools.send("HeapProfiler.collectGarbage")
        metrics = self._tools.send("Performance.getMetrics")["metrics"]
        heap = next(metric["value"] for metric in metrics if metric["name"] == "JSHeapUsedSize") / 1e6
        return {"the page's heap": heap, "the browser's processes": sum(map(memory, _renderers()))}


def bare_speed(seconds: float) -> NDArray[np.float64]:
    """Steps a second of A and B, each in a thread, without any server."""
    problem, network = hb.datasets.spirals(turns=4), hb.Dense((100,))
    lives = [hb.Live(problem, network, method, 20, 4) for method in (ADLALA, ADAM)]
    for live in lives:
        live.prepare()
    threads = [threading.Thread(target=live.advance_for, args=(seconds,)) for live in lives]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return np.array([live.step for live in lives]) / (time.perf_counter() - begin)


def watch(pages: list[Any], seconds: float) -> tuple[float, NDArray[np.float64]]:
    """Frames a second of a page, and steps a second of A and B, of all pages together."""
    before = [(page.frames, *page.steps.values()) for page in pages]
    begin = time.perf_counter()
    pages[0].pause(seconds)
    took = time.perf_counter() - begin
    made = np.array([(page.frames, *page.steps.values()) for page in pages]) - before
    return float(np.median(made[:, 0])) / took, made[:, 1:].sum(axis=0) / took


def answers(page: Any, count: int) -> tuple[float, float]:
    """Milliseconds from a change to its answer and to a frame that shows it, medians."""
    told, shown = [], []
    for number in range(count):
        page.answered = page.shown = 0.0
        page.change(0.2 + 0.001 * (number % 20))
        end = time.perf_counter() + 5
        while not page.shown and time.perf_counter() < end:
            page.pause(0.005)
        if page.shown:
            told.append(page.answered - page.asked)
            shown.append(page.shown - page.asked)
    return 1000 * statistics.median(told), 1000 * statistics.median(shown)


def memory(process: int) -> float:
    """MB that a process has in memory."""
    with open(f"/proc/{process}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def growth(page: Any, process: int, minutes: float, slices: int = 20) -> None:
    """Print the memory of server and page over some minutes of training."""
    sizes: list[dict[str, float]] = []
    for _ in range(slices):
        watch([page], 60 * minutes / slices)
        sizes.append({"server": memory(process), **page.memory()})
    steps = sum(page.steps.values())
    for name in sizes[0]:
        first, half, last = (sizes[place][name] for place in (0, slices // 2, -1))
        print(
            f"memory of {name}: {first:.1f} MB at first, {half:.1f} MB half way, {last:.1f} MB after "
            f"{steps:,.0f} steps and {page.frames:,} frames; in the last half {last - half:+.1f} MB"
        )


def _renderers() -> Iterator[int]:
    """The processes that show pages of a browser of ours."""
    parents, shows = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            process = int(folder.name)
            parents[process] = int(
                (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
            )
            if b"--type=renderer" in (folder / "cmdline").read_bytes():
                shows.append(process)
    for process in shows:
        above = process
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid():
            yield process


@contextmanager
def opener(chromium: bool) -> Iterator[Callable[[str], Page]]:
    """What opens a page."""
    if not chromium:
        yield Bare
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = SYSTEM if SYSTEM.exists() else None  # else Playwright's own
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield lambda url: Chromium(url, browser)
        browser.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chromium", action="store_true", help="a real browser")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=3, help="of each; 0 for the memory alone")
    parser.add_argument("--minutes", type=float, default=1.0, help="of training, for the memory")
    options = parser.parse_args()
    print(f"{'pages':>6}{'frames/s':>10}{'share':>8}{'answer, ms':>12}{'shown, ms':>11}")
    with opener(options.chromium) as open_page, served() as (url, process):
        for count in (1, 4) if options.repeats else ():
            rows = []
            for _ in range(options.repeats):
                before = bare_speed(options.seconds / 4)
                with ExitStack() as stack:
                    pages = [open_page(url) for _ in range(count)]
                    for page in pages:
                        stack.callback(page.close)
                    watch(pages, 2)  # the first records are dense
                    frames, steps = watch(pages, options.seconds)
                    told, shown = answers(pages[0], 20)
                time.sleep(0.5)
                bare = (before + bare_speed(options.seconds / 4)) / 2
                rows.append((frames, (steps / bare).mean(), told, shown))
            values = [statistics.median(column) for column in zip(*rows, strict=True)]
            print("{:>6}{:>10.1f}{:>8.2f}{:>12.1f}{:>11.1f}".format(count, *values), flush=True)
        page = open_page(url)
        growth(page, process, options.minutes)
        page.close()


if __name__ == "__main__":
    main()
