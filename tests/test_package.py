"""The package as its users get it."""

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import heatbath as hb
from tests.pages import run_python, run_snippets
from tests.processes import run_in_copy, run_script

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "heatbath"


def test_import_loads_numpy_at_most():
    loaded = run_python(
        "-c", "import heatbath, sys; print(*{m.partition('.')[0] for m in sys.modules})"
    ).split()
    assert not set(loaded) & {"torch", "scipy", "numba", "matplotlib", "xarray", "pandas", "arviz", "sklearn"}
    loaded = run_python(
        "-c", "import heatbath as hb, sys; hb.AdLaLa(); hb.Reference; print(*sys.modules)"
    ).split()
    assert "numpy" in loaded
    assert not set(loaded) & {"torch", "scipy"}


def test_every_public_name_is_there_and_type_checkers_see_the_same():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    seen |= {target.id for node in block.body if isinstance(node, ast.Assign) for target in node.targets}
    assert (seen - {None}) | {"__version__"} == set(dir(hb))
    assert all(getattr(hb, name) is not None for name in dir(hb))
    with pytest.raises(AttributeError, match=r"has no attribute 'Langvin'; it has .*Langevin"):
        hb.Langvin  # noqa: B018


def test_every_subpackage_is_reachable_and_without_torch_the_extra_is_named():
    for name, module in hb.MODULES.items():
        assert getattr(hb, name).__name__ == f"heatbath.{module}"
    code = """import sys; sys.modules['torch'] = None; import heatbath as hb
try:
    hb.torch
except ModuleNotFoundError:
    from heatbath.torch import AdLaLa"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.count("heatbath.torch needs PyTorch, an extra: pip install 'heatbath[torch]'") == 2


def test_splitting_touches_no_array():
    assert "numpy" not in (SOURCE / "methods" / "splitting.py").read_text()


def test_versions_agree():
    assert f"version: {hb.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_constraints_pin_everything_exactly_and_no_local_builds():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9.-]+==[0-9][0-9a-z.]*", line) for line in lines)
    assert "torch==2.13.0" in lines
    pinned = {line.split("==")[0] for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [
        *project["dependencies"],
        *(r for extra in project["optional-dependencies"].values() for r in extra),
    ]
    names = {re.match(r"[a-z0-9-]+", requirement.lower()).group() for requirement in asked}
    assert names - {"heatbath"} <= pinned


@pytest.mark.slow
def test_the_snippets_of_the_readme_run(tmp_path):
    run_snippets(ROOT / "README.md", tmp_path)


def with_examples():
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if ">>>" in path.read_text()]
    return [".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in paths]


@pytest.mark.parametrize("module", with_examples())
def test_the_examples_of_the_docstrings_hold(module):
    done = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert done.failed == 0
    assert done.attempted > 0


def public_names():
    """Return the public classes and functions, but not torch's optimisers that are made of methods."""
    names = [(package, name) for package in (hb, hb.torch) for name in {*dir(package)} - {"annotations"}]
    values = [getattr(package, name) for package, name in names if not name.startswith("_")]
    public = [value for value in values if inspect.isclass(value) or inspect.isfunction(value)]
    return [value for value in public if value.__module__ != "heatbath.torch"]


def documentation_problems(public):
    """Return what the docstring of a class or function lacks.

    Warnings, and results that list their attributes, need no parameters: users don't make them.
    """
    parts = re.split(r"(?:^|\n\n)(\w+)\n-+\n", inspect.cleandoc(public.__doc__ or ""))
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    problems = [] if ">>>" in sections.get("Examples", "") else ["no examples"]
    is_result = inspect.isclass(public) and (issubclass(public, Warning) or "Attributes" in sections)
    if not is_result or "Parameters" in sections:
        described = re.findall(r"^\*{0,2}(\w.*?)(?: : .*)?$", sections.get("Parameters", ""), re.MULTILINE)
        names = {name.strip("*") for line in described for name in line.split(", ")}
        problems += [
            f"no parameter {name}" for name in inspect.signature(public).parameters if name not in names
        ]
    if inspect.isfunction(public) and public.__annotations__.get("return") not in ("None", None):
        problems += [] if "Returns" in sections else ["no returns"]
    return problems


def test_everything_public_has_parameters_returns_and_examples():
    found = {public.__name__: documentation_problems(public) for public in public_names()}
    assert len(found) > 60
    assert {name: problems for name, problems in found.items() if problems} == {}
    for method in (hb.Run.resume, hb.Run.predict):
        assert ">>>" in method.__doc__, method


def test_a_docstring_that_lacks_something_is_noticed():
    def scale(x: float, by: float) -> "float":
        """Scale a number.

        Parameters
        ----------
        x
            The number.
        """
        return x * by

    assert documentation_problems(scale) == ["no examples", "no parameter by", "no returns"]


def test_the_table_of_words_has_every_named_word_with_its_exact_and_measured_variance():
    done = run_in_copy(run_script(ROOT / "examples" / "words.py"))
    assert done.returncode == 0, done.stderr
    table = done.stdout
    for word in hb.splitting.NAMED:
        (row,) = re.findall(rf"^{word} .*$", table, flags=re.MULTILINE)
        exact, measured, error = map(float, re.findall(r"([\d.]+) +([\d.]+) ± ([\d.]+)$", row)[0])
        assert abs(exact - measured) < 5 * error + 0.0006  # the last digit shown


def pip_requirements(requirements):
    """Return the installed packages that requirements ask for, and check that their versions match."""
    found, todo = {}, [Requirement(text) for text in requirements]
    while todo:
        asked = todo.pop()
        name = canonicalize_name(asked.name)
        if name in found or (asked.marker and not asked.marker.evaluate({"extra": ""})):
            continue
        found[name] = metadata.distribution(name)
        assert found[name].version in asked.specifier, asked
        todo += [Requirement(text) for text in found[name].requires or ()]
    return found.values()


@pytest.mark.slow
def test_a_wheel_installs_in_a_clean_environment_and_imports_there(tmp_path):
    """The environment has just the packages it requires, which are linked instead of downloaded."""
    run_python("-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("heatbath-*.whl")
    run_python("-m", "venv", "--without-pip", str(tmp_path / "clean"))
    clean = tmp_path / "clean" / "bin" / "python"
    run_python(
        "-m", "pip", "--python", str(clean), "install", "--no-compile", "--no-deps", "--no-index", "--quiet",
        "--disable-pip-version-check", str(wheel), cwd=tmp_path,
    )  # fmt: skip
    (folder,) = tmp_path.glob("clean/lib/*/site-packages")
    (installed,) = metadata.distributions(name="heatbath", path=[str(folder)])
    linked = pip_requirements(installed.requires)
    assert len(linked) > 15
    for package in linked:
        for name in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
            (folder / name).symlink_to(package.locate_file(name))
    code = """
import importlib.util, sys, heatbath as hb
print(hb.__file__, hb.__version__)
import heatbath.cli, heatbath.estimators, heatbath.plotting, heatbath.training.train
print(*(name for name in ("torch", "pytest", "starlette") if importlib.util.find_spec(name)))"""
    done = subprocess.run(  # -I: nothing of the environment's
        [clean, "-I", "-W", "error", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    where, version, *others = done.stdout.split()
    assert Path(where).is_relative_to(tmp_path)
    assert version == hb.__version__
    assert others == []
    assert (Path(where).parent / "py.typed").exists()
