"""The display of a run in progress, in a terminal and elsewhere."""

import io
from dataclasses import replace

from rich.console import Console

import heatbath as hb
from heatbath.cli.display import Display
from heatbath.cli.plans import prepare_run
from heatbath.cli.report import baseline
from heatbath.cli.settings import merge_settings
from heatbath.training.train import carry_out
from tests.cli.problems import make_noise_problem, plan_for


def count_on_display(plan, constant, *moments):
    """Return how often a display shows a constant of a plan."""
    console = Console(file=io.StringIO(), force_terminal=False, width=300)
    with Display(plan, console, constant=constant) as display:
        for moment in moments:
            display(moment)
    return console.file.getvalue().count("heatbath: warning: so far a constant")


def test_it_is_said_once_in_the_middle_of_a_run_without_samples_and_not_of_short_runs():
    plan = plan_for(make_noise_problem("binary"))
    constant = baseline.constant_baseline(plan)
    early, middle = (hb.Progress(step, 300, 1.0, 2.5, {}) for step in (100, 150))
    assert count_on_display(plan, constant, early) == 0
    assert count_on_display(plan, constant, early, middle, middle) == 1
    assert count_on_display(plan, constant, replace(middle, finding=True)) == 0
    assert (
        count_on_display(plan_for(make_noise_problem("binary"), samples=10), constant, middle) == 0
    )  # their average may be better


def test_after_a_round_it_is_said_of_the_averaged_prediction():
    rounds = []
    given = {"problem": {"name": "rings", "n_train": 50, "n_test": 50}, "network": {"hidden": [6]}}
    search, _ = prepare_run(
        "train", merge_settings({}, given | {"training": {"budget": 400, "chains": 2}}, [])
    )
    carry_out(search, progress=lambda now: rounds.append(now) if now.run else None)
    assert [now.step for now in rounds] == [50, 100, 200][: len(rounds)]
    assert rounds
    constant = baseline.constant_baseline(search.first_plan())
    for factor, count in ((0.01, 1), (100.0, 0)):
        assert (
            count_on_display(search, replace(constant, losses=factor * constant.losses), *rounds, *rounds)
            == count
        )


def test_the_display_tells_speed_loss_temperature_and_time_left():
    problem = hb.datasets.spirals(n_train=100, n_test=60)
    plan, _ = prepare_run(
        "train", merge_settings({}, {"problem": {"name": "spirals"}, "method": {"name": "adlala"}}, [])
    )
    now = hb.Progress(500, 1000, 2.0, 0.25, {"hidden": 1.5e-4, "output": 2e-4}, 0, 0.875)
    assert problem.inputs == plan.problem.inputs
    live, plain = (Console(file=io.StringIO(), force_terminal=kind, width=120) for kind in (True, False))
    for console in (live, plain):
        with Display(plan, console) as display:
            display._printed -= 60  # as if a minute had passed
            display(now)
        text = console.file.getvalue()
        assert "step 500 of 1,000, 250 steps/s, 2 s left" in text
        assert "test loss 0.2500, accuracy 87.5 %" in text
        assert "temperature hidden 1.50e-04 (target 1.00e-04)" in text
    assert "\x1b" not in plain.file.getvalue()


def test_lines_come_only_now_and_then_where_there_is_no_terminal():
    plan, _ = prepare_run(
        "train", merge_settings({}, {"problem": {"name": "spirals"}, "method": {"name": "lol"}}, [])
    )
    console = Console(file=io.StringIO(), force_terminal=False)
    with Display(plan, console) as display:
        for step in range(1, 50):
            display(hb.Progress(step, 1000, 2.0, 0.25, {}, 0))
    assert "step" not in console.file.getvalue()


def test_a_run_of_less_than_a_second_gets_no_line_where_there_is_no_terminal():
    plan, _ = prepare_run(
        "train", merge_settings({}, {"problem": {"name": "spirals"}, "method": {"name": "lol"}}, [])
    )
    lines = []
    for seconds in (0.9, 1.1):
        console = Console(file=io.StringIO(), force_terminal=False)
        with Display(plan, console) as display:
            display._printed -= 60  # as if a minute had passed
            display(hb.Progress(500, 1000, seconds, 0.25, {}, 0))
        lines.append(console.file.getvalue().count("step 500"))
    assert lines == [0, 1]


def test_the_display_says_what_short_runs_are_and_how_long_the_run_may_be(sampled):
    given = {"problem": {"data": str(sampled / "size.csv"), "target": "size"}, "posterior": {"prior": 1.0}}
    method = {"name": "lala", "h": "auto", "gamma": "1"}
    training = {"steps": "auto", "budget": 4000}
    search, _ = prepare_run("train", merge_settings({}, given | {"method": method, "training": training}, []))
    display = Display(search, Console(file=io.StringIO()))
    now = hb.Progress(50, 100, 2.0, 0.25, {"hidden": 1.5e-4}, 0)
    assert display.lines(now)[0] == "step 50 of 100 (4,000 at most), 25 steps/s, 2 s left"
    assert len(display.lines(now)) == 3
    short = replace(now, finding=True)
    assert display.lines(short) == ["short runs first: step 50 of 100, 25 steps/s, 2 s left"]
