"""Warnings point to the user's line."""

import warnings
from functools import partial
from types import ModuleType

import pytest

from heatbath._internal.warnings import warn


def caller_in(module_name, inner):
    """Return a function that calls `inner`, with its code in a module of this name."""
    module = ModuleType(module_name)
    module.inner = inner
    exec("def call():\n    inner()", vars(module))
    return module.call


@pytest.mark.parametrize(
    ("modules", "is_here"),
    [
        (["heatbath.torch.optim.optimizer"], True),
        (["heatbath.runs.plan", "torch.optim.optimizer"], True),  # torch wraps the steps of optimisers
        (["heatbath.runs.plan", "torch.nn.modules.module", "heatbath"], True),
        (["heatbath.runs.plan", "torchmetrics"], False),  # another library, which the user has called
        (["heatbathe"], False),
    ],
)
def test_a_warning_points_to_the_first_line_outside_of_heatbath_and_torch(modules, is_here):
    issue = partial(warn, "careful")  # no frame of this file is below those of the modules
    for name in modules:
        issue = caller_in(name, issue)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        issue()
    assert (caught[0].filename == __file__) == is_here
