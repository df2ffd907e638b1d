"""The explorer as its pages see it: frames a second, what it costs the engine, answers, memory.

A server in a process of its own, and 1 and 4 pages with two runs each (AdLaLa and Adam on the 4-turn spiral,
100 units, 4 chains). Without --chromium a page is a bare websocket client, which acknowledges every frame at
once; with it, the page in a real Chromium without a graphics card. Printed are, in turns and as medians, and
written to benchmarks/results/explorer.json:

- frames a second of a page;
- the share of the bare engine's speed: steps a second of a run over those of a `hb.LiveRun` that nobody looks
  at, one thread for each of the two, in this process, just before and just after; the mean of A and B (which
  stay together, while a bare Adam makes half again as many steps as a bare AdLaLa), summed over the pages;
- milliseconds from a change of h to its answer, and to the first frame that shows a step with it;
- memory of the server and, in a browser, of the page (its process, and its heap after a collection) over
  --minutes of training at full speed, in MB, and its growth in the last half.
"""

import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from texts import in_markdown
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

import heatbath as hb
from heatbath._internal import atomic_write

ADLALA = hb.AdLaLa(h=0.212, tau=3.06e-4, sigma=1.03e-3, epsilon=0.102, gamma=168.0, tau_output=8.45e-6)
ADAM = hb.Partition(hb.Adam(beta1=0.669, beta2=0.99468), 0.00666)
SCENE = "tuned"  # which has these two
SYSTEM = Path("/usr/bin/chromium")
RESULTS = Path(__file__).parent / "results" / "explorer.json"
# What a page counts of its websocket: frames, steps, and when a change was sent, answered and shown
COUNTER = """
window.counted = { frames: 0, steps: { A: 0, B: 0 }, asked: 0, answered: 0, shown: 0, changed: -1 };
const Plain = WebSocket, send = Plain.prototype.send, all = window.counted;
Plain.prototype.send = function (text) {
  if (text.startsWith('{"type":"change"')) [all.asked, all.answered, all.shown] = [performance.now(), 0, 0];
  send.call(this, text);
};
window.WebSocket = class extends Plain {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", ({ data }) => {
      if (data instanceof ArrayBuffer) {
        const view = new DataView(data);
        all.frames += 1;
        all.steps = { A: view.getFloat64(16, true), B: view.getFloat64(24, true) };
        if (all.changed >= 0 && all.steps.A > all.changed) [all.shown, all.changed] = [performance.now(), -1];
      } else if (data.startsWith('{"type":"changed"'))
        [all.answered, all.changed] = [performance.now(), JSON.parse(data).step];
    });
  }
};
"""


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    """Start a server; yield its address and its process."""
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

    def look(self) -> None:
        """Do nothing: the counts are here already."""

    def close(self) -> None:
        """Close the page."""
        self._context.__exit__(None, None, None)

    def memory(self) -> dict[str, float]:
        """MB of the page: there is none."""
        return {}


class Chromium:
    """The page in a window of a browser. It counts by itself, and tells nobody while it is measured."""

    def __init__(self, url: str, browser: "Browser") -> None:
        made = browser.ask("Target.createTarget", url="about:blank", newWindow=True, width=1280, height=800)
        self._browser, self._target = browser, made["targetId"]
        given = {"targetId": self._target, "flatten": True}
        self._session = browser.ask("Target.attachToTarget", **given)["sessionId"]
        self._ask("Page.enable")
        self._ask("Page.addScriptToEvaluateOnNewDocument", source=COUNTER)
        self._ask("Page.navigate", url=url)
        self._until("document.querySelector('#play:not([disabled])') !== null")
        self._run("document.getElementById('play').click()")
        self.frames, self.steps = 0, {"A": 0.0, "B": 0.0}
        self.asked = self.answered = self.shown = 0.0

    def _ask(self, method: str, **parameters: Any) -> Any:
        return self._browser.ask(method, self._session, **parameters)

    def _run(self, code: str) -> Any:
        answer = self._ask("Runtime.evaluate", expression=code, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{code}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def _until(self, condition: str, seconds: float = 60.0) -> None:
        end = time.perf_counter() + seconds
        while not (self._browser.ask("Target.getTargetInfo", targetId=self._target) and self._run(condition)):
            if time.perf_counter() > end:
                raise TimeoutError(f"{condition} did not come true")
            time.sleep(0.05)

    def look(self) -> None:
        """See what it has counted."""
        found = self._run("window.counted")
        self.frames, self.steps = found["frames"], found["steps"]
        self.asked, self.answered, self.shown = (
            found[name] / 1000 for name in ("asked", "answered", "shown")
        )

    def change(self, h: float) -> None:
        """Move the slider of h of run A, as a key does."""
        self._run("document.querySelector('#run-A .coefficient input[type=range]').focus()")
        for kind in ("keyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, key="ArrowRight", windowsVirtualKeyCode=39)

    def pause(self, seconds: float) -> None:
        """Let it run."""
        time.sleep(seconds)

    def close(self) -> None:
        """Close the window."""
        self._browser.ask("Target.closeTarget", targetId=self._target)

    def memory(self) -> dict[str, float]:
        """MB of the page: its heap after a collection, and the processes that show pages."""
        self._ask("HeapProfiler.collectGarbage")
        heap = self._ask("Runtime.getHeapUsage")["usedSize"] / 1e6
        return {"the page's heap": heap, "the browser's processes": sum(map(memory, _renderers()))}


class Browser:
    """A Chromium, spoken to by its own protocol.

    (Playwright would have every frame of the websocket sent to it, which takes as long as to show it.)
    """

    def __init__(self, folder: str) -> None:
        command = [str(SYSTEM if SYSTEM.exists() else shutil.which("chromium") or "google-chrome")]
        command += [
            "--headless=new",
            "--no-sandbox",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
        ]
        command += [
            "--window-size=1280,800",
            "--no-first-run",
            "--disable-background-networking",
            "about:blank",
        ]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        told, end = Path(folder) / "DevToolsActivePort", time.perf_counter() + 60
        while not (told.exists() and len(lines := told.read_text().split()) == 2):
            if time.perf_counter() > end:
                raise TimeoutError("Chromium did not start")
            time.sleep(0.05)
        self._context = connect(f"ws://127.0.0.1:{lines[0]}{lines[1]}", max_size=None, ping_interval=None)
        self._socket: ClientConnection = self._context.__enter__()
        self._number = 0

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """Ask for something, and wait for the answer; events in between are left."""
        self._number += 1
        of = {} if session is None else {"sessionId": session}
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters, **of}))
        while True:
            message = json.loads(self._socket.recv(timeout=120))
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def close(self) -> None:
        """End it."""
        with suppress(ConnectionClosed):
            self.ask("Browser.close")
        self._context.__exit__(None, None, None)
        self.process.wait(30)


def bare_speed(seconds: float) -> NDArray[np.float64]:
    """Return the steps per second of A and B, each in a thread, without any server."""
    problem, network = hb.datasets.spirals(turns=4), hb.MLP((100,))
    lives = [hb.LiveRun(problem, network, method, 20, 4) for method in (ADLALA, ADAM)]
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
    for page in pages:
        page.look()
    before = [(page.frames, *page.steps.values()) for page in pages]
    begin = time.perf_counter()
    pages[0].pause(seconds)
    for page in pages:
        page.look()
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
            page.pause(0.02)
            page.look()
        if page.shown:
            told.append(page.answered - page.asked)
            shown.append(page.shown - page.asked)
    return 1000 * statistics.median(told), 1000 * statistics.median(shown)


def memory(process: int) -> float:
    """MB that a process has in memory."""
    with open(f"/proc/{process}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def growth(page: Any, process: int, minutes: float, slices: int = 20) -> dict[str, Any]:
    """Print the memory of server and page over some minutes of training, and return it, in MB."""
    sizes: list[dict[str, float]] = []
    for _ in range(slices):
        watch([page], 60 * minutes / slices)
        sizes.append({"server": memory(process), **page.memory()})
    steps = sum(page.steps.values())
    found: dict[str, Any] = {"minutes": minutes, "steps": steps, "frames": page.frames}
    for name in sizes[0]:
        first, half, last = (sizes[place][name] for place in (0, slices // 2, -1))
        found[name] = [round(size, 1) for size in (first, half, last)]
        print(
            f"memory of {name}: {first:.1f} MB at first, {half:.1f} MB half way, {last:.1f} MB after "
            f"{steps:,.0f} steps and {page.frames:,} frames; in the last half {last - half:+.1f} MB"
        )
    return found


def _renderers() -> Iterator[int]:
    """Yield the processes of our browser that render pages."""
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
def opener(chromium: bool) -> Iterator[Callable[[str], Any]]:
    """Yield a function that opens a page."""
    if not chromium:
        yield Bare
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(folder)
        try:
            yield lambda url: Chromium(url, browser)
        finally:
            browser.close()


def measured(
    open_page: Callable[[str], Any], url: str, count: int, seconds: float, repeats: int
) -> dict[str, Any]:
    """Medians over repeats of so many pages, each between two looks at the bare engine."""
    rows = []
    for _ in range(repeats):
        before = bare_speed(seconds / 4)
        with ExitStack() as stack:
            pages = [open_page(url) for _ in range(count)]
            for page in pages:
                stack.callback(page.close)
            watch(pages, 2)  # the first records are dense
            frames, steps = watch(pages, seconds)
            told, shown = answers(pages[0], 20)
        time.sleep(0.5)
        bare = (before + bare_speed(seconds / 4)) / 2
        rows.append((frames, float((steps / bare).mean()), told, shown))
    values = [statistics.median(column) for column in zip(*rows, strict=True)]
    return dict(zip(("frames", "share", "answer", "shown"), values, strict=True)) | {"repeats": repeats}


def table(known: dict[str, Any]) -> str:
    """Print and store what the explorer was measured to do."""
    titles = {"chromium": "Chromium", "client": "a bare client"}
    head = ["pages", "frames/s", "share of the bare engine's speed", "control answered, ms", "shown, ms"]
    rows = [
        [
            f"{count} in {titles[kind]}",
            f"{row['frames']:.0f}",
            f"{row['share']:.2f}",
            f"{row['answer']:.0f}",
            f"{row['shown']:.0f}",
        ]
        for kind in titles
        for count, row in known.get(kind, {}).items()
        if count.isdecimal()
    ]
    lines = [in_markdown(head, rows)]
    for kind, title in titles.items():
        if memory := known.get(kind, {}).get("memory"):
            sizes = [
                f"{name} {size[1]:.0f} and {size[2]:.0f} MB"
                for name, size in memory.items()
                if isinstance(size, list)
            ]
            lines.append(
                f"Memory half way and at the end of {memory['minutes']:g} minutes at full speed "
                f"({memory['steps']:,.0f} steps, {title}): {', '.join(sizes)}.\n"
            )
    return "\n".join(lines)


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chromium", action="store_true", help="a real browser")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=3, help="of each; 0 for the memory alone")
    parser.add_argument("--minutes", type=float, default=1.0, help="of training, for the memory; 0 for none")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    kind = "chromium" if options.chromium else "client"
    known = json.loads(options.results.read_text(encoding="utf-8")) if options.results.exists() else {}
    results = known.setdefault(kind, {})
    print(f"{'pages':>6}{'frames/s':>10}{'share':>8}{'answer, ms':>12}{'shown, ms':>11}")
    with opener(options.chromium) as open_page, served() as (url, process):
        for count in (1, 4) if options.repeats else ():
            found = measured(open_page, url, count, options.seconds, options.repeats)
            results[str(count)] = found
            texts = "{frames:>10.1f}{share:>8.2f}{answer:>12.1f}{shown:>11.1f}".format(**found)
            print(f"{count:>6}{texts}", flush=True)
        if options.minutes:
            page = open_page(url)
            results["memory"] = growth(page, process, options.minutes)
            page.close()
    results["machine"] = {"cores": os.cpu_count(), "load": round(os.getloadavg()[1], 1)}
    atomic_write.write(options.results, json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
