"""The layering: packages import only from lower ones, and modules never import one another in a circle."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "heatbath"
LAYERS = (  # the lowest first
    "_internal", "methods", "reference", "datasets", "models", "engine", "prediction", "runs", "diagnostics",
    "sampling", "training", "evaluation", "tuning", "analysis", "plotting", "torch", "estimators", "paper",
    "explorer", "cli", "__main__",
)  # fmt: skip
DELIBERATE = {("runs.run", "runs.launch")}  # within `Run.resume` and `Run.replay`


def module_name(path):
    """Return the dotted name of a source file below heatbath; that of a package is the package's."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"}


def is_type_checking(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(node):
    """Yield every import statement below a node, lazy ones too, with whether it is for types only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, False
        elif is_type_checking(child):
            yield from ((statement, True) for statement, _ in imports(child))
        else:
            yield from imports(child)


def imported_modules(source):
    """Yield the modules of heatbath that a source text imports, with whether each is for types only."""
    for statement, for_types in imports(ast.parse(source)):
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        else:
            assert statement.level == 0, "relative import"
            names = [f"{statement.module}.{alias.name}" for alias in statement.names]
        for name in names:
            if name.partition(".")[0] != "heatbath":
                continue
            name = name.removeprefix("heatbath").removeprefix(".")
            yield (name if name in MODULES else name.rpartition(".")[0]), for_types


def upward_imports(module, source):
    """Return the modules in higher packages that a module imports, also those for types only."""
    own = LAYERS.index(module.partition(".")[0])
    found = {name for name, _ in imported_modules(source)}
    return sorted(name for name in found if name == "" or LAYERS.index(name.partition(".")[0]) > own)


def cycles(graph):
    """Return the groups of modules that can each reach the others."""
    reach = {module: set(targets) for module, targets in graph.items()}
    for through in graph:
        for targets in reach.values():
            if through in targets:
                targets |= reach[through]
    return {
        frozenset(other for other in reach[one] if one in reach[other]) for one in reach if one in reach[one]
    }


def test_the_packages_are_those_of_the_layering():
    assert {name.partition(".")[0] for name in MODULES} == set(LAYERS)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_to_lower_packages(module):
    assert upward_imports(module, MODULES[module].read_text(encoding="utf-8")) == []


def test_an_upward_import_is_found_wherever_it_is():
    for source in (
        "from heatbath.runs import plan",
        "def f():\n    import heatbath.runs.plan",
        "if TYPE_CHECKING:\n    from heatbath.runs.plan import Plan",
    ):
        assert upward_imports("methods.langevin", source) == ["runs.plan"]
    assert upward_imports("methods.langevin", "import heatbath as hb") == [""]


def test_modules_of_a_package_do_not_import_one_another():
    """Imports for types only don't count: they aren't carried out."""
    graph = {module: set() for module in MODULES}
    for module, path in MODULES.items():
        for name, for_types in imported_modules(path.read_text(encoding="utf-8")):
            if not for_types and name in MODULES and (module, name) not in DELIBERATE:
                graph[module].add(name)
    assert cycles(graph) == set()
    graph["methods.letters"].add("methods.langevin")  # the control
    assert cycles(graph) != set()
