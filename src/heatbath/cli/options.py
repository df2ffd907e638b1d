"""List all settings of a run in one table, make the options of the command line from it, and read them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Annotated, Any, NamedTuple

import typer

from heatbath.cli.methods import arguments, known
from heatbath.cli.parsing import AUTO, deviations, number, sizes, whole_number, whole_or
from heatbath.datasets.tasks import TASKS
from heatbath.models.dense import ACTIVATIONS

Settings = dict[str, dict[str, Any]]  # section -> name -> value


class ValueKind(NamedTuple):
    """How the value of an option is shown in the help, read from text (None keeps the text), and typed."""

    metavar: str | None
    read: Callable[[str, str], object] | None = None
    type: Any = str | None


KINDS = {
    "number": ValueKind("NUMBER", number),
    "whole": ValueKind("INTEGER", whole_number),
    "wholes": ValueKind("SIZES", sizes),
    "deviations": ValueKind("NUMBER", deviations),
    "length": ValueKind("INTEGER", whole_or(AUTO)),
    "batch": ValueKind("INTEGER", whole_or("all")),
    "text": ValueKind("TEXT"),
    "coefficient": ValueKind("NUMBER"),  # read together with its method
    "stepsize": ValueKind("NUMBER"),
    "names": ValueKind("COLUMN", type=list[str] | None),
    "truth": ValueKind(None, type=bool | None),
}


class Setting(NamedTuple):
    """A key of a section of the settings, and the option for it.

    `kind` is a key of `KINDS`, `meaning` the help text; `option` is given where it isn't `--name`.
    """

    section: str
    name: str
    kind: str
    meaning: str
    option: str = ""

    @property
    def flag(self) -> str:
        """Name of the option, such as --n-train."""
        return self.option or f"--{self.name.replace('_', '-')}"

    @property
    def argument(self) -> str:
        """Name of the option as an argument in Python, such as n_train."""
        return self.flag.removeprefix("--").replace("-", "_")


def _with_methods(text: str, methods: list[str]) -> str:
    """Return the help text of an argument, with the methods that have it unless most have it."""
    return text if len(methods) > len(known()) // 2 else f"{text} ({', '.join(methods)})"


SETTINGS = (
    Setting("problem", "name", "text", "A built-in problem: spirals, trigonometric, rings, blobs or "
            "mnist.", "--problem"),
    Setting("problem", "data", "text", "Your own data instead: a CSV or Parquet file, compressed or not; - "
            "is the standard input."),
    Setting("problem", "target", "names", "Column of the file to predict; repeat it for several."),
    Setting("problem", "weights", "text", "Column of the file with the weights of the rows."),
    Setting("problem", "ignore", "names", "Column of the file to leave out; repeat it for several."),
    Setting("problem", "categorical", "names", "Column of numbers that are categories; repeat it for "
            "several."),
    Setting("problem", "keep", "names", "Column to use even if it looks like a name or number of the rows; "
            "repeat it for several."),
    Setting("problem", "rows", "whole", "Largest number of rows to use; if the file has more, they are drawn "
            "at random (default: all)."),
    Setting("problem", "class_weight", "text", "balanced gives all classes the same weight in training "
            "(default: none)."),
    Setting("problem", "task", "text", "binary, classes, regression or counts (default: found from the "
            "target)."),
    Setting("problem", "test_share", "number", "Share of the rows to set aside as test examples (default "
            "0.2)."),
    Setting("problem", "standardise", "truth", "Scale the columns of the file to mean 0 and variance 1 "
            "(default yes)."),
    Setting("problem", "turns", "number", "Number of turns of the spirals (default 2)."),
    Setting("problem", "a", "number", "Radius of the spirals (default 2), or length of the trigonometric "
            "curves (default 6)."),
    Setting("problem", "b", "number", "Frequency of the trigonometric curves (default 1)."),
    Setting("problem", "p", "number", "Exponent of radius and angle along the spirals (default 0.5)."),
    Setting("problem", "c", "number", "Standard deviation of the noise of a built-in problem (default 0.02, "
            "blobs 0.3)."),
    Setting("problem", "gap", "number", "Widest gap between the rings (default 0.5)."),
    Setting("problem", "pinch", "number", "Narrowest gap between the rings (default 0.1)."),
    Setting("problem", "pinches", "whole", "Number of places where the rings come close (default 4)."),
    Setting("problem", "centres", "whole", "Number of blobs (default 4)."),
    Setting("problem", "n_train", "whole", "Number of training examples of a built-in problem (default "
            "1000)."),
    Setting("problem", "n_test", "whole", "Number of test examples of a built-in problem (default 1000)."),
    Setting("problem", "draws", "whole", "Number of independent data sets, which the chains share in turn "
            "(default 1)."),
    Setting("problem", "seed", "whole", "Seed of the data, or of the rows of a file that are used or set "
            "aside as test examples (default 0).", "--problem-seed"),
    Setting("problem", "folder", "text", "Folder with the files of MNIST.", "--mnist"),
    Setting("network", "hidden", "wholes", "Sizes of the hidden layers, such as 100,100 (default 100; "
            "without --method 50)."),
    Setting("network", "activation", "text", "relu, tanh or identity (default relu)."),
    Setting("network", "init", "text", "Initial weights: torch, gaussian or zeros (default torch)."),
    Setting("network", "scale", "number", "Standard deviation of gaussian initial weights (default "
            "0.01).", "--init-scale"),
    Setting("method", "name", "text", f"{', '.join(known())}; coefficients may follow, as in "
            "sgld:h=0.1,sigma=0.01.", "--method"),
    *(Setting("method", name, kind, _with_methods(text, methods))
      for name, kind, text, methods in arguments()),
    Setting("posterior", "prior", "deviations", "Standard deviation of the prior of the parameters: a "
            "number, one for each layer as in 0.5,1, fan_in, or auto (default 1; without --method auto). "
            "With a posterior, --tau and --weight-decay are not needed."),
    Setting("posterior", "noise", "deviations", "Standard deviation of the noise of a regression, in units "
            "of the targets; sampled, to sample it with the parameters; or network, to predict it (default "
            "sampled)."),
    Setting("posterior", "temperature", "number", "Temperature of the posterior; below 1 it is a cold "
            "posterior (default 1)."),
    Setting("posterior", "degrees", "number", "Degrees of freedom of the noise of a regression, for "
            "Student's distribution instead of the normal one."),
    Setting("training", "steps", "length", "Number of steps, or auto, to train until the predictions have "
            "converged (default 20000; without --method auto)."),
    Setting("training", "budget", "whole", "Largest number of steps with --steps auto (default 20000; "
            "without --method it depends on the data)."),
    Setting("training", "refine", "number", "Factor on the amount of work, only without --method (default "
            "1)."),
    Setting("training", "warm", "whole", "Number of steps of Adam before the chains start; only for train "
            "(default 0)."),
    Setting("training", "batch", "batch", "Number of examples in a mini-batch, or all (default 32, or all if "
            "there are fewer; without --method all, if that is affordable)."),
    Setting("training", "chains", "whole", "Number of independent chains of each method or point (default "
            "10; without --method 8, or fewer for a large table)."),
    Setting("training", "seed", "whole", "Seed of starts, noise and mini-batches (default 0)."),
    Setting("training", "colder_from", "whole", "Step from which to lower the temperature to a thirtieth, or "
            "without a temperature h to a fifth, which improves single networks."),
    Setting("training", "record", "whole", "Number of records of loss, accuracy and temperatures (default "
            "100)."),
    Setting("training", "losses_every", "whole", "Compute loss and accuracy only at every n-th record "
            "(default 1)."),
    Setting("training", "samples", "whole", "Number of samples of each chain to keep for predictions."),
    Setting("training", "burn_in", "whole", "Number of steps before the first sample."),
    Setting("training", "thin", "whole", "Number of steps between samples."),
    Setting("training", "shuffled", "truth", "Take mini-batches from shuffled epochs (default: independent "
            "random subsets)."),
    Setting("training", "momenta", "text", "Initial momenta: zero or thermal (default zero)."),
    Setting("training", "start", "text", "Folder or file of a run with as many chains: each new chain starts "
            "where one of that run ended; only for train."),
    Setting("training", "dtype", "text", "float32 or float64 (default float32)."),
    Setting("search", "steps", "whole", "Number of steps of the candidates that aren't stopped early "
            "(default 20000)."),
    Setting("search", "batch", "batch", "Number of examples in a mini-batch, or all (default 32, or all if "
            "there are fewer)."),
    Setting("search", "candidates", "whole", "Number of candidates of each method (default 128)."),
    Setting("search", "chains", "whole", "Number of chains of each candidate (default 2)."),
    Setting("search", "by", "text", "Score on the validation examples that ranks candidates: loss or "
            "accuracy (default loss)."),
    Setting("search", "validation", "number", "Share of the training examples to take as validation examples "
            "(default 0.2)."),
    Setting("search", "seed", "whole", "Seed of candidates, starts, noise and mini-batches (default 0)."),
    Setting("search", "shuffled", "truth", "Take mini-batches from shuffled epochs (default: independent "
            "random subsets)."),
    Setting("search", "dtype", "text", "float32 or float64 (default float32)."),
    Setting("search", "fresh", "whole", "Number of chains to train in the end with the best candidate of "
            "each method (default 10)."),
    Setting("search", "cooled", "truth", "Lower the temperature for the last tenth of their steps (default "
            "yes)."),
)  # fmt: skip
SECTIONS = ("problem", "network", "method", "posterior", "training", "search")


def keys(section: str) -> list[str]:
    """Return the keys that a section may have; for methods also those of methods registered since."""
    names = [setting.name for setting in SETTINGS if setting.section == section]
    if section != "method":
        return names
    return list(dict.fromkeys([*names, *(argument.name for argument in arguments()), "parts"]))


def takes_settings(*sections: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command the options of some sections.

    The command gets the options that the user gave as its argument `options`, a dict of values by setting.
    """
    chosen = [setting for setting in SETTINGS if setting.section in sections]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        parameters = [p for p in signature.parameters.values() if p.name != "options"]
        parameters += [_option_parameter(setting) for setting in chosen]

        @wraps(command)
        def wrapped(**values: Any) -> None:
            options = {setting: values.pop(setting.argument) for setting in chosen}
            given = {setting: value for setting, value in options.items() if value not in (None, [])}
            command(options=given, **values)

        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapped

    return decorate


def _problems() -> list[str]:
    from heatbath.runs.serialise import RECIPES

    return list(RECIPES)


COMPLETIONS: dict[str, Callable[[], Iterable[str]]] = {
    "--problem": _problems, "--method": known, "--task": lambda: TASKS, "--activation": lambda: ACTIVATIONS,
    "--init": lambda: ("torch", "gaussian", "zeros"), "--momenta": lambda: ("zero", "thermal"),
    "--dtype": lambda: ("float32", "float64"), "--by": lambda: ("loss", "accuracy"),
    "--class-weight": lambda: ("balanced",),
}  # fmt: skip


def completing(flag: str) -> Callable[[str], list[str]] | None:
    """Return the function that completes the value of an option in the shell, if its values have names."""
    if flag not in COMPLETIONS:
        return None
    return lambda incomplete: [name for name in COMPLETIONS[flag]() if name.startswith(incomplete)]


def _option_parameter(setting: Setting) -> inspect.Parameter:
    """Return the parameter from which Typer makes the option of a setting."""
    kind = KINDS[setting.kind]
    option = typer.Option(
        f"{setting.flag}/--no-{setting.flag[2:]}" if setting.kind == "truth" else setting.flag,
        help=setting.meaning,
        rich_help_panel=f"The {setting.section}",
        metavar=kind.metavar,
        autocompletion=completing(setting.flag),
        show_default=False,
    )
    annotation: Any = Annotated[kind.type, option]
    return inspect.Parameter(
        setting.argument, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def sections_of(options: dict[Setting, Any]) -> Settings:
    """Return the values of options as sections; coefficients stay text and are read with the method."""
    sections: Settings = {}
    for setting, value in options.items():
        read = KINDS[setting.kind].read
        section = sections.setdefault(setting.section, {})
        section[setting.name] = value if read is None else read(setting.flag, value)
    return sections


def option_words(section: str, values: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line that give these values of a section."""
    words: list[str] = []
    for setting in SETTINGS:
        if setting.section != section or setting.name not in values:
            continue
        value = values[setting.name]
        if isinstance(value, bool):
            words.append(setting.flag if value else f"--no-{setting.flag[2:]}")
        elif setting.kind == "names":
            for name in [value] if isinstance(value, str) else value:
                words += [setting.flag, name]
        else:
            words += [setting.flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return words
