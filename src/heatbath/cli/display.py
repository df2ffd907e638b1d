"""How a run is getting on: a live display in a terminal, a line now and then elsewhere; always on stderr."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.text import Text

from heatbath.engine.compile import reporting
from heatbath.methods.partition import Partition
from heatbath.methods.schedules import Schedule, at
from heatbath.runs.plan import Plan

if TYPE_CHECKING:
    from heatbath.cli.report.baseline import ConstantBaseline
    from heatbath.runs.progress import Progress
    from heatbath.training.auto import AutomaticRun

PAUSE = 10.0  # seconds between two lines where there is no terminal

WAIT = "preparing"


class Display:
    """What `progress` calls: steps, speed, time left, loss, and the temperatures of a single method's parts.

    Of several methods or points the loss is the mean, and temperatures would say nothing; short runs that
    find something, which `finding` names, tell their steps only.
    """

    def __init__(
        self,
        prepared: Plan | AutomaticRun,
        console: Console,
        finding: str = "short runs first",
        constant: ConstantBaseline | None = None,
    ) -> None:
        plan = prepared if isinstance(prepared, Plan) else prepared.first_plan()
        self._budget = None if isinstance(prepared, Plan) else prepared.budget
        self._plan, self._console, self._finding = plan, console, finding
        self._constant = constant  # until a word of it is said
        single = isinstance(plan.partition, Partition) and not plan.axes
        taus = {part.name: part.method.temperature for part in plan.parts()}
        self._taus = {name: tau for name, tau in taus.items() if isinstance(tau, float | Schedule) and single}
        self._live = Live(Text(WAIT), console=console, transient=True, refresh_per_second=8)
        self._reports = ExitStack()
        self._printed = time.monotonic()

    def __enter__(self) -> Display:
        self._reports.enter_context(reporting(self._say))
        if self._console.is_terminal:
            self._live.start()
        return self

    def _say(self, text: str) -> None:
        if self._console.is_terminal:
            self._live.update(Text(text))
        else:
            self._console.print(text, highlight=False, soft_wrap=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reports.close()
        self._live.stop()

    def __call__(self, now: Progress) -> None:
        """Tell how things stand."""
        self._warn(now)
        if now.run is not None:
            return
        if self._console.is_terminal:
            bar = Padding(ProgressBar(total=now.steps, completed=now.step, width=40), 0)  # a line of its own
            self._live.update(Group(bar, *(Text(line, overflow="ellipsis") for line in self.lines(now))))
        elif now.seconds >= 1.0 and time.monotonic() - self._printed >= PAUSE:
            self._printed = time.monotonic()
            self._console.print(", ".join(self.lines(now)), highlight=False, soft_wrap=True)

    def _warn(self, now: Progress) -> None:
        """Say once where a constant would be better: after a round, or in the middle of a run that keeps no
        samples, and whose networks are what it is about."""
        if self._constant is None or now.finding:
            return
        word = None
        if now.run is not None:
            word = self._constant.against_average(now.run)
        elif not self._plan.keep and 2 * now.step >= now.steps:
            word = self._constant.against_networks(now.loss)
        if word:
            self._constant = None
            text = f"heatbath: warning: so far {word}"
            self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def lines(self, now: Progress) -> list[str]:
        """What is shown: steps, loss, temperatures."""
        left = f"{now.left:,.0f} s left" if math.isfinite(now.left) else "time left unknown"
        most = f" ({self._budget:,} at most)" if self._budget is not None and not now.finding else ""
        lines = [f"step {now.step:,} of {now.steps:,}{most}, {now.speed:,.0f} steps/s, {left}"]
        if now.finding:
            return [f"{self._finding}: {lines[0]}"]
        if math.isfinite(now.loss):
            split = "test" if self._plan.problem.X_test.shape[1] else "train"
            many = "" if len(self._plan.points) == 1 else " (mean of all)"
            share = f", accuracy {100 * now.accuracy:.1f} %" if math.isfinite(now.accuracy) else ""
            lines.append(f"{split} loss {now.loss:.4f}{share}{many}")
        for name, tau in self._taus.items():
            if name in now.temperature:
                target = at(tau, max(now.step - 1, 0))
                lines.append(f"temperature {name} {now.temperature[name]:.2e} (target {target:.2e})")
        return lines
