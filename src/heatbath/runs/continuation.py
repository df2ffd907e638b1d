"""Continue a plan or a run: for more steps, with other coefficients, on other examples, or some methods only.

Nothing is computed here: these functions make the plan, and sometimes the data, from which `launch` continues
a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal.checks import whole
from heatbath.datasets import Problem
from heatbath.methods.partition import Partition
from heatbath.methods.schedules import MOST_STEPS
from heatbath.models.likelihood import total
from heatbath.runs import grid
from heatbath.runs.dataset import select_chains
from heatbath.runs.grid import Methods
from heatbath.runs.plan import Plan, batch_size
from heatbath.runs.plan_checks import check_type
from heatbath.runs.record_steps import checked_record, loss_steps, spread_records
from heatbath.runs.serialise import checksum

if TYPE_CHECKING:
    from heatbath.runs.run import Run

SETTINGS_OVER_TIME = ("steps", "record", "records", "losses", "partition")  # later steps may differ in these
MOST_RECORDS = 1000  # of a run that is sampled again, so that one that is continued for ever stays small


def extend_plan(plan: Plan, step: int, steps: int, record: int | Sequence[int] | None = None) -> Plan:
    """Return the plan that continues a run from `step` for `steps` more steps.

    Parameters
    ----------
    plan
        The plan of the run so far.
    step
        The step at which the run stands. Records up to there stay, and planned ones beyond it are dropped.
    steps
        The number of further steps.
    record
        The number of records in the further steps, or a list of steps; None for the same as in `plan`.
    """
    end = step + whole("steps", steps, low=1, high=MOST_STEPS)
    record = plan.record if record is None else checked_record(record, first=step + 1, last=end)

    earlier_records = [recorded for recorded in plan.records if recorded <= step]
    earlier_losses = [recorded for recorded in plan.losses if recorded <= step]
    new_records = spread_records(record, step, end)
    new_losses = loss_steps(new_records, plan.losses_every, earlier=len(earlier_records))

    found = None if plan.found is None else plan.found.without_results()
    return replace(
        plan,
        steps=end,
        record=record,
        records=(*earlier_records, *new_records),
        losses=(*earlier_losses, *new_losses),
        found=found,
    )


def change_plan(plan: Plan, partition: Methods, step: int) -> Plan:
    """Return the plan with the coefficients of `partition` from the next step of every method on.

    Parameters
    ----------
    plan
        The plan of a run.
    partition
        The same methods with other coefficients. For a comparison, a dict of partitions by the names of its
        methods, or one partition for all of them.
    step
        The step at which the run stands.
    """
    if isinstance(plan.partition, Partition):
        if not isinstance(partition, Partition):
            raise TypeError(f"partition must be a Partition as this run's is, got {partition!r}")
        return replace(plan, partition=_changed_partition(plan, plan.partition, partition, step))

    by_name = partition
    if isinstance(partition, Partition):
        by_name = dict.fromkeys(plan.partition, partition)
    if not isinstance(by_name, Mapping) or list(by_name) != list(plan.partition):
        raise ValueError(f"partition must be a dict for {', '.join(plan.partition)}, got {partition!r}")

    changed = {
        name: _changed_partition(plan, old, by_name[name], step) for name, old in plan.partition.items()
    }
    return replace(plan, partition=changed)


def _changed_partition(plan: Plan, old: Partition, new: Partition, step: int) -> Partition:
    """Return `old` with the coefficients of `new` from the first word on that begins at `step` or later.

    Where θ is seen at the kick, in the middle of a word, a run that stands at `step` has begun a word, which
    ends with the old coefficients.
    """
    is_within_word = plan.rotated and any(method.seen_at_kick for method in old.methods.values())
    first_step = step + 1 if is_within_word else step
    return grid.change_coefficients(old, new, first_step)


def plan_differences(plan: Plan, reference: Plan, until: int | None = None) -> list[str]:
    """Return the names of the settings and arrays in which two plans differ; empty if they are equal.

    Parameters
    ----------
    plan, reference
        The plans.
    until
        Compare only what decides a run up to this step, as the plans may differ from there on; None to
        compare everything.
    """
    settings = plan.plain_settings()
    reference_settings = reference.plain_settings()
    different = [name for name in settings if settings[name] != reference_settings[name]]
    if until is not None:
        different = [name for name in different if name not in SETTINGS_OVER_TIME]
        different += _differences_until(plan, reference, until)

    for name in ("start", "average"):  # None is equal to None only
        if not np.array_equal(getattr(plan, name), getattr(reference, name)):
            different.append(name)

    if plan.problem is reference.problem or checksum(plan.problem) == checksum(reference.problem):
        return different
    return ["problem", *different]


def _differences_until(plan: Plan, reference: Plan, until: int) -> list[str]:
    """Return "records" and "partition" if two plans differ in them up to step `until`."""
    different = []
    records = [step for step in plan.records if step <= until]
    reference_records = [step for step in reference.records if step <= until]
    if records != reference_records:
        different.append("records")
    if not grid.is_same_until(plan.partition, reference.partition, until):
        different.append("partition")
    return different


def keep_methods(run: Run, names: Sequence[str]) -> Run:
    """Return the run with only those methods of a comparison whose names are given: see `Run.with_methods`.

    Its chains, their start and everything recorded are those of these methods, in the order of the run.
    """
    plan = run.plan
    if isinstance(plan.partition, Partition):
        raise ValueError("this run is no comparison of methods: take a point of a sweep by select")
    unknown = [name for name in names if name not in plan.partition]
    if unknown:
        accepted = ", ".join(plan.partition)
        raise ValueError(f"there is no method {', '.join(map(repr, unknown))}: accepted are {accepted}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"methods must be one or more different names, got {list(names)!r}")

    kept = {name: partition for name, partition in plan.partition.items() if name in names}
    is_kept = [name in kept for name in plan.partition]
    chains = np.flatnonzero(np.repeat(is_kept, plan.chains))  # each method has `plan.chains` chains in a row
    start = None if plan.start is None else plan.start[chains]
    kept_plan = replace(plan, partition=kept, start=start)
    return replace(run, plan=kept_plan, data=select_chains(run.data, chains, plan, kept_plan))


def sample_again(run: Run, steps: int, samples: int, thin: int) -> Run:
    """Return the run without its samples, set up to take new ones when it is continued for `steps` steps.

    It then ends with `samples` samples, one every `thin` steps. Running averages restart at zero, and only
    the latest 1,000 records stay.
    """
    records = run.plan.records[-MOST_RECORDS:]
    losses = tuple(step for step in run.plan.losses if not records or step >= records[0])
    burn_in = run.step + steps - samples * thin
    plan = replace(run.plan, burn_in=burn_in, thin=thin, records=records, losses=losses)

    zeros = {name: xr.zeros_like(run.data[name]) for name in ("average", "deviations") if name in run.data}
    data = run.data.assign(zeros).isel(record=slice(-MOST_RECORDS, None))
    if "sample" in data.sizes:
        data = data.isel(sample=slice(0, 0))
    return replace(run, plan=plan, data=data)


def replace_examples(run: Run, problem: Problem, batch: int | None) -> Run:
    """Return the run with its chains on other examples: see `Run.on_other_examples`.

    Only the plan and the state change: samples and records are still those of the old examples.
    """
    check_type("problem", problem, Problem)
    for name in ("task", "inputs", "outputs"):
        if getattr(problem, name) != getattr(run.problem, name):
            raise ValueError(
                f"the chains continue with the {name} they have, {getattr(run.problem, name)}; "
                f"got {problem!r}"
            )
    plan = replace(run.plan, problem=problem, batch=batch_size(batch, problem))
    moved = _moved_state(run, problem)
    state = {name: run.data[name].copy(data=array) for name, array in moved.items()}
    return replace(run, plan=plan, data=run.data.assign(state))


def _moved_state(run: Run, problem: Problem) -> dict[str, NDArray[Any]]:
    """Return the arrays of the state that change when `problem` replaces the examples of a run, by name.

    θ and the variances of the noise change if the new examples are scaled otherwise, and the momenta, of
    variance τ, if the posterior has another temperature.
    """
    old = run.problem
    state = {}
    if not _is_same_scale(old, problem):
        state["theta"] = _rescaled_parameters(run, problem)
        if "noise_now" in run.data:
            factor = old.target_scale / problem.target_scale
            state["noise_now"] = run.data["noise_now"].values * factor**2

    if run.plan.points[0].partition.posterior is not None:
        temperature_ratio = total(old) / total(problem)  # as each is 1 / (number of examples)
        if temperature_ratio != 1:
            state["p"] = (run.p * np.sqrt(temperature_ratio)).astype(run.p.dtype)
    return state


def _is_same_scale(old: Problem, new: Problem) -> bool:
    """Return True if the inputs and targets of two problems are standardised by the same numbers."""
    scales = ("shift", "scale", "target_shift", "target_scale")
    return all((getattr(old, name) == getattr(new, name)).all() for name in scales)


def _rescaled_parameters(run: Run, problem: Problem) -> NDArray[Any]:
    """Return θ with which the networks predict the same, in the user's units, on data scaled as in `problem`.

    The new networks are x -> c·f(a·x + b) + d, where f are the old ones: a·x + b is an input in the old
    scale, and c·f + d an output in the new one.
    """
    old = run.problem
    likelihood = run.plan.likelihood
    a = problem.scale / old.scale
    b = (problem.shift - old.shift) / old.scale

    factor = old.target_scale / problem.target_scale
    c = factor
    d = (old.target_shift - problem.target_shift) / problem.target_scale
    if likelihood.varying:  # the logarithms of variances follow the values
        c = np.append(c, np.ones_like(factor))
        d = np.append(d, 2 * np.log(factor))
    outputs = np.broadcast_to(c, likelihood.outputs), np.broadcast_to(d, likelihood.outputs)
    return run.network.between(run.theta, (a, b), outputs).astype(run.theta.dtype)
