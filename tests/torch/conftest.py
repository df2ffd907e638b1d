"""Leave out the tests of heatbath.torch where PyTorch is not installed, and give each module one thread."""

import pytest

from tests.optional import is_installed

if not is_installed("torch"):
    collect_ignore_glob = ["*"]


@pytest.fixture(autouse=True, scope="module")
def limit_threads():
    """Limit torch to one thread, since models of tests are too small to gain from several.

    `optim/test_numba_step.py` asks for more.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
