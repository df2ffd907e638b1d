"""Show the progress of a run on stderr: live in a terminal, otherwise as a line now and then."""

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

PAUSE = 10.0  # seconds between lines where there is no terminal
FIRST_LINE = 1.0  # seconds that a run must have taken before it gets a line
WAIT = "preparing"  # shown until the first progress arrives


class Display:
    """Callable for `progress=` that shows steps, speed, time left, loss and temperatures.

    With several methods or points, the loss is their mean, and no temperatures are shown. The short runs of a
    search show only their steps.

    Parameters
    ----------
    prepared
        The plan, or the automatic run that finds its plan.
    console
        Where to show the progress.
    search_label
        What the short runs of a search are called.
    constant
        A constant prediction; a warning is shown once if it is better than the run.
    """

    def __init__(
        self,
        prepared: Plan | AutomaticRun,
        console: Console,
        search_label: str = "short runs first",
        constant: ConstantBaseline | None = None,
    ) -> None:
        """Store what the lines need: the plan, its target temperatures, and the console.

        The parameters are described with the class.
        """
        if isinstance(prepared, Plan):
            self._plan = prepared
            self._budget = None
        else:
            self._plan = prepared.first_plan()
            self._budget = prepared.budget
        self._console = console
        self._search_label = search_label
        self._constant = constant  # None once the warning was shown
        self._taus = _target_temperatures(self._plan)

        self._live = Live(Text(WAIT), console=console, transient=True, refresh_per_second=8)
        self._reports = ExitStack()
        self._printed = time.monotonic()

    def __enter__(self) -> Display:
        """Show messages of the engine, such as that it compiles, until the end of the block."""
        self._reports.enter_context(reporting(self._say))
        if self._console.is_terminal:
            self._live.start()
        return self

    def _say(self, text: str) -> None:
        """Show a text, such as that code is being compiled: in place in a terminal, otherwise as a line."""
        if self._console.is_terminal:
            self._live.update(Text(text))
        else:
            self._console.print(text, highlight=False, soft_wrap=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing messages and progress."""
        self._reports.close()
        self._live.stop()

    def __call__(self, progress: Progress) -> None:
        """Show how far the run is; in a terminal at every call, otherwise at most every ten seconds."""
        self._warn_of_constant(progress)
        if progress.run is not None:
            return
        if self._console.is_terminal:
            bar = ProgressBar(total=progress.steps, completed=progress.step, width=40)
            lines = [Text(line, overflow="ellipsis") for line in self.lines(progress)]
            self._live.update(Group(Padding(bar, 0), *lines))  # padding puts the bar on a line of its own
        elif progress.seconds >= FIRST_LINE and time.monotonic() - self._printed >= PAUSE:
            self._printed = time.monotonic()
            self._console.print(", ".join(self.lines(progress)), highlight=False, soft_wrap=True)

    def _warn_of_constant(self, progress: Progress) -> None:
        """Warn once if a constant prediction is better than the run.

        A run with samples is judged by its averaged prediction, known after each round of an automatic run. A
        run without samples is judged by its single networks, halfway through.
        """
        if self._constant is None or progress.finding:
            return

        warning = None
        if progress.run is not None:
            warning = self._constant.warn_of_average(progress.run)
        elif not self._plan.keep and 2 * progress.step >= progress.steps:
            warning = self._constant.warn_of_networks(progress.loss)

        if warning:
            self._constant = None
            text = f"heatbath: warning: so far {warning}"
            self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def lines(self, progress: Progress) -> list[str]:
        """Return the lines to show: steps with speed and time left, loss, and the temperature of each part.

        During the short runs of a search, only the first of these lines is returned.
        """
        if progress.finding:
            return [f"{self._search_label}: {_steps_line(progress)}"]

        lines = [_steps_line(progress, self._budget)]
        if math.isfinite(progress.loss):
            lines.append(self._loss_line(progress))
        for part, tau in self._taus.items():
            if part in progress.temperature:
                target = at(tau, max(progress.step - 1, 0))
                lines.append(f"temperature {part} {progress.temperature[part]:.2e} (target {target:.2e})")
        return lines

    def _loss_line(self, progress: Progress) -> str:
        """Return the line with the loss, and with the accuracy if there is one."""
        split = "test" if self._plan.problem.X_test.shape[1] else "train"
        line = f"{split} loss {progress.loss:.4f}"
        if math.isfinite(progress.accuracy):
            line += f", accuracy {100 * progress.accuracy:.1f} %"
        if len(self._plan.points) > 1:
            line += " (mean of all)"
        return line


def _steps_line(progress: Progress, budget: int | None = None) -> str:
    """Return the line with steps, speed and time left; a budget is the largest number of steps."""
    left = f"{progress.left:,.0f} s left" if math.isfinite(progress.left) else "time left unknown"
    limit = "" if budget is None else f" ({budget:,} at most)"
    return f"step {progress.step:,} of {progress.steps:,}{limit}, {progress.speed:,.0f} steps/s, {left}"


def _target_temperatures(plan: Plan) -> dict[str, float | Schedule]:
    """Return the target temperature of each part that has one, by its name; none for several points."""
    if plan.axes or not isinstance(plan.partition, Partition):
        return {}
    taus = {part.name: part.method.temperature for part in plan.parts()}
    return {name: tau for name, tau in taus.items() if isinstance(tau, float | Schedule)}
