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

    records = [recorded for recorded in plan.records if recorded <= step]
    losses = [recorded for recorded in plan.losses if recorded <= step]
    new_records = spread_records(record, step, end)
    new_losses = loss_steps(new_records, plan.losses_every, earlier=len(records))

    return replace(
        plan,
        steps=end,
        record=record,
        records=(*records, *new_records),
        losses=(*losses, *new_losses),
        found=None if plan.found is None else plan.found.without_results(),
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

    by_name = dict.fromkeys(plan.partition, partition) if isinstance(partition, Partition) else partition
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
    return grid.change_coefficients(old, new, step + 1 if is_within_word else step)


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
    settings, reference_settings = plan.plain_settings(), reference.plain_settings()
    names = [name for name in settings if settings[name] != reference_settings[name]]

    if until is not None:
        names = [name for name in names if name not in ("steps", "record", "records", "losses", "partition")]
        records = [step for step in plan.records if step <= until]
        if records != [step for step in reference.records if step <= until]:
            names.append("records")
        if not grid.is_same_until(plan.partition, reference.partition, until):
            names.append("partition")

    for name in ("start", "average"):  # None is equal to None only
        if not np.array_equal(getattr(plan, name), getattr(reference, name)):
            names.append(name)

    same_problem = plan.problem is reference.problem or checksum(plan.problem) == checksum(reference.problem)
    return names if same_problem else ["problem", *names]


def keep_methods(run: Run, names: Sequence[str]) -> Run:
    """Return the run with only those methods of a comparison whose names are given: see `Run.with_methods`.

    Its chains, their start and everything recorded are those of these methods, in the order of the run.
    """
    plan = run.plan
    if isinstance(plan.partition, Partition):
        raise ValueError("this run is no comparison of methods: take a point of a sweep by select")
    if unknown := [name for name in names if name not in plan.partition]:
        accepted = ", ".join(plan.partition)
        raise ValueError(f"there is no method {', '.join(map(repr, unknown))}: accepted are {accepted}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"methods must be one or more different names, got {list(names)!r}")

    is_kept = [name in names for name in plan.partition]
    chains = np.flatnonzero(np.repeat(is_kept, plan.chains))  # each method has `plan.chains` chains in a row
    fewer = replace(
        plan,
        partition={name: method for name, method in plan.partition.items() if name in names},
        start=None if plan.start is None else plan.start[chains],
    )
    return replace(run, plan=fewer, data=select_chains(run.data, chains, plan, fewer))


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
    state = {name: run.data[name].copy(data=values) for name, values in _moved_state(run, problem).items()}
    return replace(run, plan=plan, data=run.data.assign(state))


def _moved_state(run: Run, problem: Problem) -> dict[str, NDArray[Any]]:
    """Return the arrays of the state that change when `problem` replaces the examples of a run, by name.

    θ and the variances of the noise change if the new examples are scaled otherwise, and the momenta, of
    variance τ, if the posterior has another temperature.
    """
    old, state = run.problem, {}
    scales = ("shift", "scale", "target_shift", "target_scale")
    if any((getattr(old, name) != getattr(problem, name)).any() for name in scales):
        state["theta"] = _rescaled_parameters(run, problem)
        if "noise_now" in run.data:
            factor = old.target_scale / problem.target_scale
            state["noise_now"] = run.data["noise_now"].values * factor**2

    if run.plan.points[0].partition.posterior is not None:
        ratio = total(old) / total(problem)  # of the temperatures, as each is 1 / (number of examples)
        if ratio != 1:
            state["p"] = (run.p * np.sqrt(ratio)).astype(run.p.dtype)
    return state


def _rescaled_parameters(run: Run, problem: Problem) -> NDArray[Any]:
    """Return θ with which the networks predict the same, in the user's units, on data scaled as in `problem`.

    The new networks are x -> c·f(a·x + b) + d, where f are the old ones: a·x + b is an input in the old
    scale, and c·f + d an output in the new one.
    """
    old, likelihood = run.problem, run.plan.likelihood
    factor = old.target_scale / problem.target_scale
    c, d = factor, (old.target_shift - problem.target_shift) / problem.target_scale
    if likelihood.varying:  # the logarithms of variances follow the values
        c, d = np.append(c, np.ones_like(c)), np.append(d, 2 * np.log(factor))
    a, b = problem.scale / old.scale, (problem.shift - old.shift) / old.scale
    outputs = np.broadcast_to(c, likelihood.outputs), np.broadcast_to(d, likelihood.outputs)
    return run.network.between(run.theta, (a, b), outputs).astype(run.theta.dtype)
