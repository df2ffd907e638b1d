"""Measure how much memory is free."""

from __future__ import annotations

import os
from pathlib import Path

# Files with the limit of a container and its use, and the key of the part of the use that can be freed
CONTAINER_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "inactive_file"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "total_inactive_file",
    ),
)
UNKNOWN = 2**62  # bytes, if the system or a container sets no limit
KIBIBYTE = 1024  # bytes: the unit of /proc/meminfo
GIGABYTE = 1e9  # bytes: the unit of messages


def free_memory() -> int:
    """Return the bytes that can be used without swapping, within the limits of the system and a container."""
    return min(_free_in_system(), *(_free_in_container(*files) for files in CONTAINER_FILES))


def _free_in_system() -> int:
    """Return the free bytes of the computer."""
    try:
        return _read_numbers("/proc/meminfo")["MemAvailable:"] * KIBIBYTE
    except (OSError, KeyError, ValueError):
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return UNKNOWN


def _free_in_container(limit_file: str, used_file: str, cache_key: str) -> int:
    """Return the free bytes of the container in which the process runs."""
    try:
        limit = int(Path(limit_file).read_text(encoding="ascii"))
        used = int(Path(used_file).read_text(encoding="ascii"))
        cached = _read_numbers(str(Path(used_file).with_name("memory.stat"))).get(cache_key, 0)
        return max(limit - used + cached, 0)
    except (OSError, ValueError):  # there is no container, or its limit is the word max
        return UNKNOWN


def _read_numbers(path: str) -> dict[str, int]:
    """Return the numbers in a file with a name and a number in each line."""
    numbers = {}
    with open(path, encoding="ascii") as file:
        for line in file:
            name, *fields = line.split()
            if fields:
                numbers[name] = int(fields[0])
    return numbers
