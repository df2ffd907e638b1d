"""The source reads like an engineer's prose: docstrings begin with verbs, names are nouns."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "heatbath"
FRAGMENTS = {
    "the", "a", "an", "what", "whether", "how", "of", "all", "where", "which", "those", "as", "one", "so",
    "for", "in", "that", "each", "such", "who", "when", "with", "every", "it", "no", "from", "at", "to",
}  # fmt: skip
EVERYDAY = {
    "of", "tell", "told", "now", "own", "made", "found", "said", "one", "use", "begins", "more", "other",
    "others", "after", "before", "given", "place", "way", "here", "there", "them", "those", "few", "many",
    "each", "such", "manner", "rest", "again", "whole",
}  # fmt: skip
MOST_FRAGMENTS = 0.04  # share of docstrings; properties may begin with "The"
MOST_EVERYDAY = 0.001  # share of bound names
LONGEST = 50  # lines of a function without its docstring
DEEPEST = 4  # nested statements
MOST_UNNAMED = 3  # values of a returned tuple that need no names
TUPLES_OF_NUMBA = {"engine/random.py:_tile_counter"}  # compiled code passes a counter's words as one tuple
BLOCKS = ast.If | ast.For | ast.While | ast.With | ast.Try


@cache
def parsed_sources():
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in SOURCE.rglob("*.py")
    }


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def is_fragment(function):
    """Return whether the docstring of a function begins like a noun phrase instead of with a verb."""
    text = ast.get_docstring(function)
    return bool(text) and text.split()[0].lower().strip("`.,") in FRAGMENTS


def bound_names(tree):
    """Return the arguments and variables that a module binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def length(function):
    """Return the number of lines of a function without its docstring."""
    lines = function.end_lineno - function.lineno + 1
    first = function.body[0]
    has_docstring = ast.get_docstring(function, clean=False) is not None
    return lines - (first.end_lineno - first.lineno + 1 if has_docstring else 0)


def depth(node):
    """Return how many blocks are nested in a statement, functions within functions apart."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            continue
        is_elif = isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If)
        deepest = max(deepest, depth(child) + (isinstance(child, BLOCKS) and not is_elif))
    return deepest


def unnamed_values(function):
    """Return the number of values in the largest tuple that a function returns; keys and rows don't count."""
    if function.returns and re.search(r"Hashable|\.\.\.", ast.unparse(function.returns)):
        return 0
    tuples = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple)
    ]
    return max((len(value.elts) for value in tuples), default=0)


def test_docstrings_begin_with_a_verb():
    documented = [
        (f"{path}:{f.name}", is_fragment(f))
        for path, tree in parsed_sources().items()
        for f in functions(tree)
        if ast.get_docstring(f)
    ]
    fragments = [name for name, fragment in documented if fragment]
    assert len(fragments) <= MOST_FRAGMENTS * len(documented), fragments


def test_names_are_nouns_of_the_field():
    names = Counter(name for tree in parsed_sources().values() for name in bound_names(tree))
    everyday = {name: count for name, count in names.items() if name in EVERYDAY}
    assert sum(everyday.values()) <= MOST_EVERYDAY * names.total(), everyday


def test_functions_are_short_and_flat():
    long, deep = [], []
    for path, tree in parsed_sources().items():
        for function in functions(tree):
            if length(function) > LONGEST:
                long.append(f"{path}:{function.name} has {length(function)} lines")
            if depth(function) > DEEPEST:
                deep.append(f"{path}:{function.name} nests {depth(function)} deep")
    assert long == []
    assert deep == []


def test_returned_tuples_of_more_than_three_values_have_names():
    unnamed = [
        f"{path}:{function.name} returns {unnamed_values(function)} values"
        for path, tree in parsed_sources().items()
        for function in functions(tree)
        if unnamed_values(function) > MOST_UNNAMED and f"{path}:{function.name}" not in TUPLES_OF_NUMBA
    ]
    assert unnamed == []


def test_no_class_name_stands_twice():
    classes = Counter(
        node.name
        for tree in parsed_sources().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_the_counts_see_what_they_should():
    """The control: each rule finds the fault that it is for."""
    source = "def f(of):\n    'The run.'\n    for i in x:\n        if i:\n            return 1, 2, 3, 4\n"
    tree = ast.parse(source)
    (function,) = functions(tree)
    assert is_fragment(function)
    assert set(bound_names(tree)) == {"of", "i"}
    assert length(function) == 4
    assert depth(function) == 2
    assert unnamed_values(function) == 4
