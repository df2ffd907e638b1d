"""The documentation: its snippets run, its links and names lead somewhere, and the site builds."""

import ast
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from functools import cache
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import typer

import heatbath as hb
from heatbath.cli import app, main
from heatbath.cli.options import SETTINGS
from tests.pages import run_snippets, snippets

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
WRITTEN = [page for page in PAGES if page.name != "reproduction.md"]  # which `heatbath reproduce` makes
WITH_CODE = [page for page in WRITTEN if snippets(page)]
SUBPACKAGES = (
    "evaluation", "datasets", "diagnostics", "analysis.landscape", "plotting", "prediction",
    "datasets.tables", "torch",
)  # fmt: skip


def names(pages):
    return {"argvalues": pages, "ids": [page.stem for page in pages]}


def prose(page):
    """Return the text of a page without its code."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    """Return what a link to a page may end in: its headings, as the table of contents spells them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def broken_links(page):
    """Return the links and pictures of a page that lead nowhere, or out of the site."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    for target in found:
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.is_file() or (anchor and anchor not in anchors(file)):
            yield target


@pytest.mark.slow
@pytest.mark.parametrize("page", **names(WITH_CODE))
def test_the_snippets_of_a_page_run(page, tmp_path):
    run_snippets(page, tmp_path)


def test_the_pages_that_show_code_are_tested():
    assert {"index", "tutorial", "pytorch", "theory"} <= {page.stem for page in WITH_CODE}


def test_every_formula_of_the_theory_has_a_snippet_that_could_fail():
    sections = re.split(r"^##+ ", (DOCS / "theory.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(sections) >= 8
    assert all("assert " in section for section in sections)


@pytest.mark.parametrize("page", **names(PAGES))
def test_internal_links_lead_somewhere(page):
    assert not list(broken_links(page))


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A heading\n[a](page.md#a-heading) [b](page.md#b) [c](other.md) ![d](d.png)\n")
    assert list(broken_links(page)) == ["page.md#b", "other.md", "d.png"]


def test_the_navigation_has_every_page():
    nav = re.search(r"^nav:\n((?:  - .*\n)+)", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    listed = re.findall(r"- (\S+\.md)", nav[1])
    assert set(listed) == {page.name for page in WRITTEN} | {"reproduction.md"}


@pytest.mark.parametrize("there", [True, False])
def test_the_generated_page_is_in_the_navigation_only_if_it_is_there(tmp_path, there):
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    if there:
        (tmp_path / "reproduction.md").write_text("# The paper, reproduced\n")

    class config:
        docs_dir, nav = str(tmp_path), ["index.md", "reproduction.md"]

    hooks.on_config(config)
    assert config.nav == (["index.md", "reproduction.md"] if there else ["index.md"])


@cache
def parse_module(module):
    """Return the syntax tree of a module, or None if there is no such module."""
    path = ROOT / "src" / Path(*module.split("."))
    files = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
    return ast.parse(files[0].read_text()) if files else None


@cache
def exports(module):
    """Return the names that a package or module takes from others, each with its origin."""
    nodes = [node for node in ast.walk(parse_module(module)) if isinstance(node, ast.ImportFrom)]
    return {a.asname or a.name: origin(f"{n.module}.{a.name}") for n in nodes for a in n.names if a.asname}


def origin(path):
    """Return where the object at a dotted path is defined."""
    module, _, name = path.rpartition(".")
    if parse_module(path):
        return path
    if name in exports(module):
        return exports(module)[name]
    stub = (ROOT / "src" / Path(*module.split("."))).with_suffix(".pyi")  # of classes that are made
    bodies = parse_module(module).body + (ast.parse(stub.read_text()).body if stub.is_file() else [])
    defined = [getattr(node, "name", None) for node in bodies]
    assigned = [target for node in bodies if isinstance(node, ast.Assign) for target in node.targets]
    defined += [node.id for target in assigned for node in ast.walk(target) if isinstance(node, ast.Name)]
    assert name in defined, f"there is no {path}"
    return path


def test_the_reference_has_every_public_name_once():
    paths = re.findall(r"^::: (\S+)$", (DOCS / "api.md").read_text(), flags=re.MULTILINE)
    documented = list(map(origin, paths))
    assert len(set(documented)) == len(documented)
    packages = ["heatbath", *(f"heatbath.{name}" for name in SUBPACKAGES)]
    public = {place for package in packages for place in exports(package).values()}
    shown = (*SUBPACKAGES, "methods", "reference", "diagnostics.statistics")  # name by name
    public -= {f"heatbath.{name}" for name in shown}
    assert {
        place for place in public - set(documented) if place.rpartition(".")[0] not in documented
    } == set()
    assert len(public) > 80


def load_tool(name):
    """Return a module in the folder of the documentation."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["command-line.md", "scikit-learn.md"])
def test_every_option_and_parameter_is_on_its_page_as_the_code_has_it(page):
    made = load_tool("tabulated").tabulated(page)
    assert (DOCS / page).read_text() == made, "run python docs/tabulated.py"
    names = {
        "command-line.md": {s.flag for s in SETTINGS} | {"--version", "--import", "--json", "--coverage"}
    }
    both = (hb.ThermodynamicClassifier, hb.ThermodynamicRegressor)
    expected = names.get(page) or {name for kind in both for name in signature(kind).parameters}
    assert [name for name in expected if f"`{name}`" not in made] == []


@pytest.mark.parametrize("page", ["clusters", "deep", "explorer", "modules", "pytorch", "streams"])
def test_tables_on_a_page_are_those_of_the_results(page):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch, whose ZeRO scripts a function
        made = load_tool("measured").measured(DOCS / f"{page}.md")
    assert (DOCS / f"{page}.md").read_text() == made, "run python docs/measured.py"
    assert "\n<!-- end -->" in made


def quoted_numbers(text):
    """Return the numbers with three decimals in a text."""
    return set(re.findall(r"(?<![\d.])\d\.\d{3}(?!\d)", text))


def test_numbers_in_the_text_are_those_of_the_tables_it_speaks_of():
    """Of modules, rounded to three decimals; of streams, as they are there. One that is changed is found."""
    section = re.search(
        r"^## What averaging is worth\n(.*?)^## ", (DOCS / "pytorch.md").read_text(), re.DOTALL | re.MULTILINE
    )
    modules = json.loads((ROOT / "benchmarks" / "results" / "modules.json").read_text())
    rounded = set()
    for runs in (runs for task in modules.values() for runs in task["runs"].values()):
        for row in next(iter(runs.values())):
            values = np.array([found[row][1:3] for found in runs.values()])  # log loss and calibration error
            errors = values.std(axis=0, ddof=1) / len(values) ** 0.5
            rounded |= {f"{number:.3f}" for number in (*values.mean(axis=0), *errors)}
    said = quoted_numbers(section[1])
    assert len(said) >= 15
    assert said <= rounded, said - rounded
    assert not quoted_numbers(section[1].replace("0.030", "0.099")) <= rounded
    for task in ("table", "text"):
        seconds = {name: sum(runs.values()) for name, runs in modules[task]["seconds"].items()}
        assert f" {seconds['Adam, then Sampler'] / seconds['Adam']:.1f} times (on the {task})" in section[1]
    after = (DOCS / "streams.md").read_text().partition("<!-- benchmarks/streams.py -->")[2]
    table, _, prose = after.partition("<!-- end -->")
    assert quoted_numbers(prose)
    assert quoted_numbers(prose) <= quoted_numbers(table)


def test_every_parameter_of_tables_is_on_its_page():
    rows = re.findall(r"^\| `(\w+)` \|", (DOCS / "tables.md").read_text(), flags=re.MULTILINE)
    assert set(rows) == set(signature(hb.from_table).parameters)
    assert set(signature(hb.TableEncoder).parameters) <= set(rows)


def command_lines(page):
    """Return the lines of a page that call the command line."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    return [found[1] for line in lines if (found := re.search(r"(?:^|\| |^\$ )heatbath ((?:\w|--).*)", line))]


def unknown_options(line):
    """Return the options in a call that its command does not have."""
    group = typer.main.get_command(app)
    words = shlex.split(line, comments=True)
    if words[0] == "--import":
        words = words[2:]
    given = [word.partition("=")[0] for word in words if word.startswith("--")]
    places = [group] if words[0].startswith("--") else [group.commands[words[0]]]
    known = {name for place in places for p in place.params for name in (*p.opts, *p.secondary_opts)}
    return [word for word in given if word not in known]


@pytest.mark.parametrize("page", **names([*WRITTEN, ROOT / "README.md"]))
def test_commands_on_a_page_have_options_that_exist(page):
    assert [line for line in command_lines(page) if unknown_options(line)] == []


@pytest.mark.parametrize("page", **names([*WRITTEN, ROOT / "README.md"]))
def test_commands_on_a_page_whose_problem_is_drawn_are_accepted(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("heatbath.cli.commands._execute", lambda *arguments: None)
    for line in command_lines(page):
        words = shlex.split(line, comments=True)
        if "--problem" in words and words[0] in ("train", "compare", "sweep", "tune"):
            with pytest.raises(SystemExit) as end:
                main(words)
            assert end.value.code == 0, (line, capsys.readouterr().err)


def test_commands_are_found_and_options_that_do_not_exist_too():
    assert len(command_lines(DOCS / "command-line.md")) > 10
    assert unknown_options("train --data a.csv --targets b --version") == ["--targets", "--version"]


def test_the_places_that_extending_names_are_there():
    """A file, and in the same row or sentence what is said to be in it."""
    text = (DOCS / "extending.md").read_text()
    files = {}
    for name in re.findall(r"`([\w/]+\.(?:py|md))`", text):
        files[name] = next(p for p in (ROOT / "src" / "heatbath" / name, ROOT / name) if p.is_file())
    assert len(files) >= 15
    inside = {
        "methods/splitting.py": ["NAMED"],
        "methods/presets.py": ["PRESETS"],
        "engine/kernels.py": ["fold_operations", "apply_segment"],
        "torch/optim/torch_step.py": ["_act"],
        "paper/__init__.py": ["EXPERIMENTS"],
        "tests/reference/test_orders.py": ["EXACT_ON_A_QUADRATIC"],
        "tests/methods/test_correspondences.py": ["TORCH"],
    }
    for name, expected in inside.items():
        for symbol in expected:
            assert re.search(rf"`(?:\w+\.)?{symbol}`", text), f"{symbol} is not mentioned"
            assert re.search(
                rf"^\s*(?:def |class )?{symbol}\b", files[name].read_text(), flags=re.MULTILINE
            ), f"{name} has no {symbol}"


def test_the_site_builds_without_warnings_and_fetches_nothing(tmp_path):
    pytest.importorskip("mkdocs", reason="the extra docs is not installed: make docs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for page in tmp_path.glob("*.html"):
        fetched = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"?(https?:[^\" >]+)", page.read_text())
        assert not fetched, page.name
