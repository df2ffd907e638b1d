"""Read settings from a TOML file, merge options into them, and write complete settings.

Settings are sections such as problem, network and training, each with its keys; options override the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from heatbath.cli.methods import find, labelled, method_of
from heatbath.cli.options import SECTIONS, Settings, keys

COMMANDS = ("train", "compare", "sweep", "tune")
WITH_SEVERAL_METHODS = ("compare", "tune")
FORMER_NAMES = {"epochs": "shuffled"}  # of training settings, in folders of earlier versions
OVERRIDDEN = {  # keys of a file that an option makes invalid, by the option
    "data": ("sha256",),
    "start": ("start_sha256",),
    "steps": ("budget", "continued"),
}


def read_settings(path: Path, command: str | None = None) -> tuple[str, Settings]:
    """Read a settings file: return the command that it is for and its sections.

    With a `command`, a file for another one is refused. Unknown sections and keys are refused.
    """
    content = _read_toml(path)
    written = content.pop("command", command)
    if written not in COMMANDS:
        raise ValueError(f"{path}: command must be one of {', '.join(COMMANDS)}, got {written!r}")
    if command is not None and written != command:
        raise ValueError(f"{path} is for heatbath {written}, and not for heatbath {command}")
    if isinstance(training := content.get("training"), dict):
        content["training"] = {FORMER_NAMES.get(key, key): value for key, value in training.items()}
    accepted = _accepted_keys(written)
    for section, values in content.items():
        if section not in accepted or not isinstance(values, dict):
            raise ValueError(f"{path}: {section!r} is not a section; accepted: {', '.join(accepted)}")
        for name, table in values.items() if section == "methods" else [(section, values)]:
            if not isinstance(table, dict):
                raise ValueError(f"{path}: methods.{name} must be a section, got {table!r}")
            if section in ("method", "methods") and "name" in table:
                find(table.get("name"), table.get("module"))
            check_keys(f"{path}: {section}", table, accepted[section])
    return written, content


def _read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; the error says what to do if that isn't possible."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise type(error)(f"{path} cannot be read ({error.strerror}): check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None


def _accepted_keys(command: str) -> dict[str, list[str]]:
    """Return the keys that each section of a settings file may have, also those that only heatbath writes."""
    unused = ("posterior", "training") if command == "tune" else ("search",)
    accepted = {section: keys(section) for section in SECTIONS if section not in unused}
    accepted["problem"] = [*accepted["problem"], "sha256"]
    if "training" in accepted:
        accepted["training"] = [*accepted["training"], "continued", "start_sha256"]
    methods = "methods" if command in WITH_SEVERAL_METHODS else "method"
    accepted[methods] = [*accepted.pop("method"), "module"]
    return accepted


def check_keys(label: str, table: Mapping[str, object], accepted: Collection[str]) -> None:
    """Refuse a table with unknown keys; `label` is what the error calls it."""
    if unknown := [key for key in table if key not in accepted]:
        raise ValueError(f"{label} has no {', '.join(unknown)}; accepted: {', '.join(accepted)}")


def merge_settings(file: Settings, options: Settings, methods: list[str]) -> Settings:
    """Return the sections of a file with options put over them.

    An option that names another problem or method discards that section of the file.

    Parameters
    ----------
    file, options
        Sections with their values.
    methods
        Methods of a comparison or search as text, such as sgld:h=0.1; any replace all those of the file.
    """
    sections = {
        section: _merge_section(section, file.get(section, {}), options.get(section, {}))
        for section in SECTIONS
    }
    chosen = labelled([method_of(text) for text in methods]) if methods else file.get("methods", {})
    return sections | {"methods": chosen}


def _merge_section(section: str, file: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a section of the file, overridden by those of the options."""
    if section == "method":
        options = _with_inline_coefficients(options)
    if _names_another(section, file, options):
        file = {}
    overridden = {key for option in options for key in OVERRIDDEN.get(option, ())}
    kept = {key: value for key, value in file.items() if key not in overridden}
    return {**kept, **options}


def _names_another(section: str, file: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """True if the options name another problem, file or method than the settings file does."""
    if "name" in file and "name" in options and file["name"] != options["name"]:
        return True
    alternative = "data" if section == "problem" else "parts"
    return ("name" in options and alternative in file) or ("data" in options and "name" in file)


def _with_inline_coefficients(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a method with the coefficients written in its name, as in sgld:h=0.1."""
    table = method_of(options["name"]) if "name" in options else {}
    if repeated := [name for name in table if name != "name" and name in options]:
        raise ValueError(
            f"{', '.join(repeated)} is given twice, in --method {options['name']} and as an option: leave "
            "out one of the two"
        )
    return {**options, **table}


def write_settings(command: str, settings: Settings) -> str:
    """Return the text of a settings file."""
    import tomli_w

    tables = settings["methods"].values() if command in WITH_SEVERAL_METHODS else [settings["method"]]
    part_tables = [part for table in tables for part in table.get("parts", {"all": table}).values()]
    modules = dict.fromkeys(table["module"] for table in part_tables if "module" in table)
    imports = "".join(f"--import {module} " for module in modules)
    note = f"# Reproduce with: heatbath {imports}{command} --settings settings.toml\n"
    return note + tomli_w.dumps({"command": command, **settings})
