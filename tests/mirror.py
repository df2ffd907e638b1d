"""List source files that have no test file of their own: `python -m tests.mirror`.

Tests of src/heatbath/runs/plan.py are in tests/runs/test_plan.py. Files of at most 100 lines may share one.
"""

from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "heatbath"
LONGEST_WITHOUT = 100  # lines of a source file that needs no test file of its own


def files_without_tests() -> list[tuple[int, str]]:
    """Return the lines and the path of each longer source file without a test file, longest first."""
    missing = []
    for path in SOURCE.rglob("*.py"):
        relative = path.relative_to(SOURCE)
        lines = len(path.read_text(encoding="utf-8").splitlines())
        test = TESTS / relative.parent / f"test_{relative.name}"
        if lines > LONGEST_WITHOUT and not path.name.startswith("__") and not test.exists():
            missing.append((lines, relative.as_posix()))
    return sorted(missing, reverse=True)


def packages_without_tests() -> list[str]:
    """Return the packages of the source that have no folder of tests."""
    packages = (path.parent.relative_to(SOURCE) for path in SOURCE.rglob("__init__.py"))
    return sorted(package.as_posix() for package in packages if not (TESTS / package).is_dir())


if __name__ == "__main__":
    for package in packages_without_tests():
        print(f"no folder tests/{package}")
    for lines, name in files_without_tests():
        print(f"{lines:5d} {name}")
