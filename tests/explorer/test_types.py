"""The modules of the explorer's page: TypeScript's compiler reads their types, and all they need is here."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import heatbath.explorer
from tests.patience import PATIENCE

PAGE = Path(heatbath.explorer.__file__).parent / "page"
VERSION = "5.9.3"
STRICT = (
    "--allowJs --checkJs --strict --skipLibCheck --noUnusedLocals --noEmit --target es2022 --module es2022"
)


def find_tsc(*arguments):
    """Return the command of an installed TypeScript compiler, or of one that npx gets; skip if neither."""
    if own := shutil.which("tsc"):
        command = [own]
    elif npx := shutil.which("npx"):
        command = [npx, "--yes", "--package", f"typescript@{VERSION}", "tsc"]
    else:
        pytest.skip("there is no Node: the types of the page are not checked")
    try:
        version = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        version = None
    if version is None or version.returncode:
        pytest.skip(f"TypeScript {VERSION} cannot be had: the types of the page are not checked")
    return subprocess.run([*command, *arguments], capture_output=True, text=True)


@pytest.mark.slow
def test_the_modules_of_the_page_pass_the_type_checker(tmp_path):
    wrong = tmp_path / "wrong.js"
    wrong.write_text("/** @param {number} x */\nexport const f = (x) => x.length;\n")
    modules = sorted(map(str, PAGE.glob("*.js")))
    assert len(modules) > 10
    done = find_tsc(*STRICT.split(), "--lib", "es2022,dom,dom.iterable", *modules, str(wrong))
    found = re.findall(r"^(\S+)\(\d+,\d+\): (error .*)$", done.stdout, flags=re.MULTILINE)
    assert [Path(file).name for file, _ in found] == ["wrong.js"], done.stdout  # which it must find


@pytest.mark.parametrize("suffix", ["js", "css", "html"])
def test_the_page_contains_no_foreign_address(suffix):
    for path in PAGE.glob(f"*.{suffix}"):
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")  # a name, never asked for
        assert not re.search(r"""https?://|["'(]//|@import""", text), path.name
        assert not re.search(r"""(?:src|href)=["']/""", text), path.name  # relative, behind a proxy


def test_every_module_is_imported_by_another_or_by_the_page():
    asked = set(re.findall(r"page/(\w+\.js)", (PAGE / "index.html").read_text()))
    for path in PAGE.glob("*.js"):
        asked |= set(re.findall(r"""["']\./(\w+\.js)["']""", path.read_text()))
    assert asked == {path.name for path in PAGE.glob("*.js")}
