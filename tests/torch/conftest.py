"""Leave out the tests of heatbath.torch where PyTorch is not installed."""

from tests.optional import is_installed

if not is_installed("torch"):
    collect_ignore_glob = ["*"]
