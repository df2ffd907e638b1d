"""How much memory there is left."""

from __future__ import annotations

import os
from pathlib import Path

GROUPS = (  # where the limit of a container, its use, and the part of this that can be had back, are told
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "inactive_file"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "total_inactive_file",
    ),
)
PLENTY = 2**62  # where nothing is told


def free_memory() -> int:
    """Bytes that can be had without swapping, as far as the system tells, and a container that this is in."""
    return min(_of_system(), *(_of_container(*group) for group in GROUPS))


def _of_system() -> int:
    try:
        return _listed("/proc/meminfo")["MemAvailable:"] * 1024
    except (OSError, KeyError, ValueError):
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return PLENTY


def _of_container(limit: str, used: str, cached: str) -> int:
    try:
        most, now = (int(Path(path).read_text(encoding="ascii")) for path in (limit, used))
        return max(most - now + _listed(str(Path(used).with_name("memory.stat"))).get(cached, 0), 0)
    except (OSError, ValueError):  # there is none, or its limit is the word max
        return PLENTY


def _listed(path: str) -> dict[str, int]:
    """The numbers in a file that has a name and a number in each line."""
    with open(path, encoding="ascii") as file:
        return {words[0]: int(words[1]) for line in file if len(words := line.split()) > 1}
