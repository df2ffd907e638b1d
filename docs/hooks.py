"""What the build of the site does beyond its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

GENERATED = "reproduction.md"


def on_config(config: Any) -> None:
    """Leave the page that `heatbath reproduce` makes out of the navigation while it is not there."""
    if not (Path(config.docs_dir) / GENERATED).exists():
        config.nav.remove(GENERATED)
