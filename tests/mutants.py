"""Break the code at random places and report the breaks that no test notices.

    python -m tests.mutants --since REV --number 50 --seed 1 --out mutants.jsonl

Draws lines of src/heatbath that changed since REV, breaks one operator, constant, condition or pair of
arguments in each, and runs the tests in a worktree of its own: first the test file of the module, then the
tests of its package, then all tests. With --package-only, which takes a fifth of the time, the last stage is
left out. Mutants that survive are printed with the code before and after. Start an interrupted run again with
the same arguments, and it continues.
"""

import argparse
import ast
import copy
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SOURCE = Path("src") / "heatbath"
TIME_LIMIT = 900  # seconds for the tests of one stage: a mutant that hangs counts as noticed
SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


class Mutant(NamedTuple):
    """One break: a file, the line it is in, and the text of the file with the break."""

    path: str
    line: int
    before: str
    after: str
    source: str


def changed_lines(since: str) -> dict[str, set[int]]:
    """Return the numbers of the lines of each source file that were added since a revision."""
    diff = subprocess.run(
        ["git", "diff", "-M", "--unified=0", since, "--", str(SOURCE)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    lines: dict[str, set[int]] = {}
    path = ""
    for row in diff.splitlines():
        if row.startswith("+++ "):
            path = row.removeprefix("+++ b/")
        elif (hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", row)) and path.endswith(".py"):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines.setdefault(path, set()).update(range(first, first + count))
    return lines


def broken_nodes(node: ast.AST) -> list[ast.AST]:
    """Return the ways to break a node: copies of it with another operator, constant, condition or order."""
    ways: list[ast.AST] = []
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
        ways.append(copy.copy(node))
        ways[-1].op = SWAPS[type(node.op)]()
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        ways.append(copy.copy(node))
        ways[-1].ops = [SWAPS[type(node.ops[0])](), *node.ops[1:]]
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        ways.append(ast.Constant(not node.value))
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        ways.append(ast.Constant(node.value + 1))
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        ways.append(copy.copy(node))
        ways[-1].test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Call) and len(node.args) >= 2 and not any(map(is_starred, node.args)):
        ways.append(copy.copy(node))
        ways[-1].args = [node.args[1], node.args[0], *node.args[2:]]
    return ways


def is_starred(node: ast.AST) -> bool:
    """Return whether an argument is `*something`."""
    return isinstance(node, ast.Starred)


def mutants_of(path: str, lines: set[int]) -> list[Mutant]:
    """Return every break of the code in the given lines of a file; docstrings and types aren't code."""
    text = (ROOT / path).read_text(encoding="utf-8")
    tree = ast.parse(text)
    aside = {id(part) for node in ast.walk(tree) for part in unexecuted(node)}
    found = []
    for node in ast.walk(tree):
        if getattr(node, "lineno", 0) not in lines or id(node) in aside:
            continue
        found += [with_break(path, text, node, way) for way in broken_nodes(node)]
    return [mutant for mutant in found if mutant.before != mutant.after]


def unexecuted(node: ast.AST) -> list[ast.AST]:
    """Return the nodes below annotations and `if TYPE_CHECKING`, which no test can notice."""
    roots: list[ast.AST] = []
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
        roots.append(node.annotation)
    if isinstance(node, ast.FunctionDef) and node.returns:
        roots.append(node.returns)
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        roots.append(node)
    return [below for root in roots for below in ast.walk(root)]


def with_break(path: str, text: str, node: ast.AST, way: ast.AST) -> Mutant:
    """Return a file in which one node is written in another way; a statement keeps its body."""
    target, changed = (node.test, way.test) if isinstance(node, ast.If | ast.While) else (node, way)
    rows = text.encode().splitlines(keepends=True)
    start = sum(map(len, rows[: target.lineno - 1])) + target.col_offset
    end = sum(map(len, rows[: target.end_lineno - 1])) + target.end_col_offset
    replacement = f"({ast.unparse(changed)})" if isinstance(changed, ast.expr) else ast.unparse(changed)
    if isinstance(changed, ast.Constant | ast.Call):
        replacement = ast.unparse(changed)
    data = text.encode()
    source = (data[:start] + replacement.encode() + data[end:]).decode()
    before = " ".join(data[start:end].decode().split())
    return Mutant(path, target.lineno, before, " ".join(replacement.split()), source)


def test_stages(path: str, *, package_only: bool) -> list[list[str]]:
    """Return the tests that could notice a break in a file: its own, its package's, then all the others."""
    module = Path(path).relative_to(SOURCE)
    own = Path("tests") / module.parent / f"test_{module.name}"
    package = Path("tests") / module.parent
    stages = [[str(own)]] if (ROOT / own).exists() else []
    if package != Path("tests") and (ROOT / package).is_dir():
        stages.append([str(package)])
    return stages if package_only and stages else [*stages, ["tests"]]


def first_failure(folder: Path, mutant: Mutant, stages: list[list[str]]) -> str | None:
    """Return the first test that fails with a break, or None if the break survives all stages."""
    file = folder / mutant.path
    original = file.read_text(encoding="utf-8")
    file.write_text(mutant.source, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "PYTHONHASHSEED": "0"}
    try:
        for stage in stages:
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *stage]
            if stage == ["tests"]:
                command += ["--numprocesses=2"]
            try:
                done = subprocess.run(
                    command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT
                )
            except subprocess.TimeoutExpired:
                return f"{stage[0]} takes more than {TIME_LIMIT} s"
            if done.returncode:
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
                return failed[1] if failed else f"{stage[0]}: pytest ended with {done.returncode}"
        return None
    finally:
        file.write_text(original, encoding="utf-8")


def main() -> None:
    """Draw mutants, test each, and append what came out to a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--since", required=True, help="revision; lines changed after it are broken")
    parser.add_argument("--number", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--package-only", action="store_true", help="leave out the tests of other packages")
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    arguments = parser.parse_args()
    generator = random.Random(arguments.seed)
    lines = changed_lines(arguments.since)
    places = sorted((path, line) for path, numbers in lines.items() for line in numbers)
    generator.shuffle(places)
    done = len(arguments.out.read_text().splitlines()) if arguments.out.exists() else 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "tree"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", folder, "HEAD"], cwd=ROOT, check=True)
        try:
            drawn = 0
            for path, line in places:
                if drawn == arguments.number:
                    break
                ways = mutants_of(path, {line})
                if not ways:
                    continue
                mutant = generator.choice(ways)
                drawn += 1
                if drawn <= done:
                    continue
                stages = test_stages(path, package_only=arguments.package_only)
                noticed_by = first_failure(folder, mutant, stages)
                row = {"place": f"{path}:{mutant.line}", "before": mutant.before, "after": mutant.after}
                with arguments.out.open("a") as file:
                    file.write(json.dumps(row | {"noticed_by": noticed_by}) + "\n")
                change = f"{mutant.before} -> {mutant.after}"
                print(drawn, row["place"], change, noticed_by or "SURVIVES", sep=": ", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", folder], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
