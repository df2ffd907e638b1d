"""Every method keeps every contract, has the same face everywhere, and is asked, never recognised."""

import ast
from inspect import signature
from pathlib import Path

import pytest

import heatbath as hb
from heatbath.cli.methods import find
from heatbath.cli.options import SETTINGS
from heatbath.methods import known_methods
from heatbath.methods.presets import PRESETS
from tests.methods.contracts import CONTRACTS, example
from tests.optional import optional
from tests.stubs import PLACE, stub_text

ht = optional("heatbath.torch")
classes = optional("heatbath.torch.optim.classes")

SOURCE = Path(hb.__file__).parent


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
@pytest.mark.parametrize("name", known_methods())
def test_every_method(name, contract, request):
    fixtures = [request.getfixturevalue(f) for f in list(signature(contract).parameters)[1:]]
    contract(example(known_methods()[name]), *fixtures)


# The same everywhere


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_same_arguments_and_defaults_in_python_torch_and_the_command_line(name):
    ours = {p.name: p.default for p in signature(getattr(hb, name)).parameters.values()}
    assert ours.pop("posterior") is None  # an optimiser has its own, and the command line one for all methods
    torchs = {p.name: p.default for p in signature(getattr(ht, name)).parameters.values()}
    extra = {"model", "hidden", "output", "parts", *(option.name for option in classes.OPTIONS)}
    own = classes.DEFAULTS.get(name, {})  # of torch
    assert own.items() <= torchs.items()
    assert {("h" if n == "lr" else n): d for n, d in torchs.items() if n not in extra and n not in own} == {
        n: d for n, d in ours.items() if ("lr" if n == "h" else n) not in own
    }
    commands = find(name.lower())
    assert commands.title == name
    assert {n: p.default for n, p in commands.arguments.items()} == ours
    flags = {setting.name for setting in SETTINGS if setting.section == "method"}
    assert set(ours) <= flags


@pytest.mark.parametrize("name", known_methods())
def test_a_method_has_the_same_arguments_and_defaults_in_python_torch_and_the_command_line(name):
    kind = known_methods()[name]
    ours = {p.name: p.default for p in signature(kind).parameters.values()}
    assert getattr(hb, name) is kind
    torchs = {p.name: p.default for p in signature(getattr(ht, name)).parameters.values()}
    extra = {"params", "lr", *(option.name for option in classes.OPTIONS)}
    assert {n: d for n, d in torchs.items() if n not in extra} == ours
    commands = find(kind.title.lower())
    assert {n: p.default for n, p in commands.arguments.items() if n != "h"} == ours
    assert {setting.name for setting in SETTINGS if setting.section == "method"} >= {"h", *ours}


# they export methods, or choose one
CHOOSING = {
    "__init__.py", "training/defaults.py", "runs/live.py", "runs/simulation.py", "sampling.py",
    "torch/__init__.py", "torch/llc.py", "torch/sampling/trajectory.py",
}  # fmt: skip
CHOOSING_PACKAGES = ("methods", "paper", "estimators")


def method_questions(tree: ast.AST) -> list[str]:
    """Return the names of the methods that code asks about, by type or by name."""
    known = {*known_methods(), "Method"}
    questions = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            asked = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
            asked |= {n.attr for n in ast.walk(node.args[1]) if isinstance(n, ast.Attribute)}
            questions += sorted(asked & (known - {"Method"}))
        if isinstance(node, ast.MatchClass):
            questions += [n.id for n in ast.walk(node.cls) if isinstance(n, ast.Name) and n.id in known]
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "__name__"
            and getattr(node.value, "id", "") in known
        ):
            questions.append(node.value.id)
        if isinstance(node, ast.Constant) and node.value in known - {"Method"}:
            questions.append(node.value)
    return questions


def named_methods(tree: ast.AST) -> set[str]:
    """Return the names of all methods that occur in code."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    return names & set(known_methods())


SOURCES = sorted(path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "methods")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nobody_outside_methods_asks_which_method_it_has(path):
    place = path.relative_to(SOURCE)
    tree = ast.parse(path.read_text())
    chooses = str(place) in CHOOSING or place.parts[0] in CHOOSING_PACKAGES
    if not chooses:
        assert not named_methods(tree)
    if place.parts[0] != "paper" and str(place) not in CHOOSING:
        assert not method_questions(tree)


def test_a_question_would_be_found():
    """The control: the search finds a question that is there."""
    assert method_questions(ast.parse("isinstance(m, (Langevin, heatbath.Adam))")) == ["Adam", "Langevin"]
    assert method_questions(ast.parse("match m:\n case Adam(): pass")) == ["Adam"]
    assert method_questions(ast.parse("group['method'] == Adam.__name__")) == ["Adam"]
    assert method_questions(ast.parse("group['method'] == 'Adam'")) == ["Adam"]
    assert named_methods(ast.parse("from heatbath.methods import Adam")) == {"Adam"}


def test_the_stubs_say_what_the_classes_are():
    assert PLACE.read_text(encoding="utf-8") == stub_text(), "run python -m tests.stubs"
