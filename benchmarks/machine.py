"""What was measured, written with the machine it was measured on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from heatbath._internal import atomic_write

RESULTS = Path(__file__).parent / "results"
BUSY = 1.0  # the mean number of processes that ran already, from which on times are those of a busy machine


def now() -> dict[str, Any]:
    """Cores, and how busy they are: to be asked before anything is measured."""
    load = os.getloadavg()[0]
    return {"cores": os.cpu_count(), "load": round(load, 1), "busy": load > BUSY}


def note(name: str, found: dict[str, Any]) -> None:
    """Write results/name.json."""
    text = json.dumps(found, indent=1, ensure_ascii=False)
    atomic_write.write(RESULTS / f"{name}.json", text + "\n")


def told(known: dict[str, Any]) -> str:
    """Return a line about the machine, for the page."""
    machine = known["machine"]
    busy = f", on a machine that was busy otherwise (load {machine['load']:g})" if machine["busy"] else ""
    return f"Medians of interleaved repeats, {machine['cores']} cores{busy}."
