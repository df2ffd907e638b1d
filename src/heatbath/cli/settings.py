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
FORMER_NAMES = {"epochs": "shuffled"}  # training settings that earlier versions called otherwise
OVERRIDDEN = {  # for an option, the keys of a file that it makes invalid
    "data": ("sha256",),
    "start": ("start_sha256",),
    "steps": ("budget", "continued"),
}


def read_settings(path: Path, command: str | None = None) -> tuple[str, Settings]:
    """Read a settings file and check its sections and keys.

    Parameters
    ----------
    path
        A TOML file that `write_settings` or a user has written.
    command
        The command that is run; a file for another command is refused. None accepts any.

    Returns
    -------
    str
        The command that the file is for.
    Settings
        Values by section and key; the section `methods` has a table for each method of a comparison.

    Raises
    ------
    ValueError
        For a section, key or method that doesn't exist.
    """
    content = _read_toml(path)
    file_command = content.pop("command", command)
    if file_command not in COMMANDS:
        raise ValueError(f"{path}: command must be one of {', '.join(COMMANDS)}, got {file_command!r}")
    if command is not None and file_command != command:
        raise ValueError(f"{path} is for heatbath {file_command}, not for heatbath {command}")
    training = content.get("training")
    if isinstance(training, dict):
        content["training"] = {FORMER_NAMES.get(key, key): value for key, value in training.items()}

    accepted = _accepted_keys(file_command)
    for section, content_of_section in content.items():
        if section not in accepted or not isinstance(content_of_section, dict):
            raise ValueError(f"{path}: {section!r} is not a section; accepted: {', '.join(accepted)}")
        tables = content_of_section if section == "methods" else {section: content_of_section}
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise ValueError(f"{path}: methods.{name} must be a section, got {table!r}")
            if section in ("method", "methods") and "name" in table:
                find(table.get("name"), table.get("module"))
            check_keys(f"{path}: {section}", table, accepted[section])
    return file_command, content


def _read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; an error names the file and what to do."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise type(error)(f"{path} cannot be read ({error.strerror}): check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None


def _accepted_keys(command: str) -> dict[str, list[str]]:
    """Return the keys that each section may have for a command, with those only heatbath writes."""
    unused = ("posterior", "training") if command == "tune" else ("search",)
    accepted = {section: keys(section) for section in SECTIONS if section not in unused}
    accepted["problem"] = [*accepted["problem"], "sha256"]
    if "training" in accepted:
        accepted["training"] = [*accepted["training"], "continued", "start_sha256"]
    methods = "methods" if command in WITH_SEVERAL_METHODS else "method"
    accepted[methods] = [*accepted.pop("method"), "module"]
    return accepted


def check_keys(label: str, table: Mapping[str, object], accepted: Collection[str]) -> None:
    """Raise ValueError if a table has other than the accepted keys; `label` names the table in the error."""
    unknown = [key for key in table if key not in accepted]
    if unknown:
        raise ValueError(f"{label} has no {', '.join(unknown)}; accepted: {', '.join(accepted)}")


def merge_settings(file: Settings, options: Settings, methods: list[str]) -> Settings:
    """Return the settings of a file, overridden by options.

    An option that names another problem or method than the file discards that section of the file.

    Parameters
    ----------
    file, options
        Values by section and key.
    methods
        Methods of a comparison or search as text, such as sgld:h=0.1. If there are any, they replace all
        methods of the file.
    """
    sections = {
        section: _merge_section(section, file.get(section, {}), options.get(section, {}))
        for section in SECTIONS
    }
    if methods:
        return sections | {"methods": labelled([method_of(text) for text in methods])}
    return sections | {"methods": file.get("methods", {})}


def _merge_section(section: str, file: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the values of one section: those of the file, overridden by those of the options."""
    if section == "method":
        options = _with_inline_coefficients(options)
    if _names_another(section, file, options):
        file = {}
    overridden: set[str] = set()
    for option in options:
        overridden.update(OVERRIDDEN.get(option, ()))
    kept = {key: value for key, value in file.items() if key not in overridden}
    return {**kept, **options}


def _names_another(section: str, file: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Return True if the options name another problem, data file or method than the settings file does."""
    if "name" in file and "name" in options and file["name"] != options["name"]:
        return True
    alternative = "data" if section == "problem" else "parts"
    return ("name" in options and alternative in file) or ("data" in options and "name" in file)


def _with_inline_coefficients(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a method, with the coefficients that its name contains as in sgld:h=0.1.

    A coefficient both in the name and as an option of its own is refused.
    """
    if "name" not in options:
        return options
    inline = method_of(options["name"])
    coefficients = [name for name in inline if name != "name"]
    repeated = [name for name in coefficients if name in options]
    if repeated:
        raise ValueError(
            f"{', '.join(repeated)} is given twice, in --method {options['name']} and as an option: remove "
            "one of them"
        )
    return {**options, **inline}


def write_settings(command: str, settings: Settings) -> str:
    """Return the text of a settings file, which begins with the command line that reproduces the run."""
    import tomli_w

    tables = settings["methods"].values() if command in WITH_SEVERAL_METHODS else [settings["method"]]
    modules: dict[str, None] = {}  # as an ordered set
    for table in tables:
        for part in table.get("parts", {"all": table}).values():
            if "module" in part:
                modules[part["module"]] = None
    imports = "".join(f"--import {module} " for module in modules)
    note = f"# Reproduce with: heatbath {imports}{command} --settings settings.toml\n"
    return note + tomli_w.dumps({"command": command, **settings})
