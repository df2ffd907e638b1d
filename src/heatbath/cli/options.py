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

    `kind` is a key of `KINDS`; `meaning` and `default` make the help text. `option` is given where it isn't
    `--name`.
    """

    section: str
    name: str
    kind: str
    meaning: str
    default: str = ""
    option: str = ""

    @property
    def help(self) -> str:
        """Help text of the option."""
        return f"{self.meaning} (default {self.default})." if self.default else f"{self.meaning}."

    @property
    def flag(self) -> str:
        """Name of the option, such as --n-train."""
        return self.option or f"--{self.name.replace('_', '-')}"

    @property
    def argument(self) -> str:
        """Name of the option as an argument in Python, such as n_train."""
        return self.flag.removeprefix("--").replace("-", "_")


def _with_methods(text: str, methods: list[str]) -> str:
    """Return the meaning of an argument, with the methods that have it unless most have it."""
    text = text.rstrip(".")
    return text if len(methods) > len(known()) // 2 else f"{text} ({', '.join(methods)})"


def _settings(section: str, *rows: tuple[str, ...]) -> list[Setting]:
    """Return the settings of a section from the other fields of each."""
    return [Setting(section, *row) for row in rows]


SETTINGS = (
    *_settings("problem",
        ("name", "text", "Built-in problem: spirals, trigonometric, rings, blobs or mnist", "", "--problem"),
        ("data", "text", "Your own data: a CSV or Parquet file, compressed or not; - is the standard input"),
        ("target", "names", "Column of the file to predict; repeat it for several"),
        ("weights", "text", "Column of the file with the weights of the rows"),
        ("ignore", "names", "Column of the file to leave out; repeat it for several"),
        ("categorical", "names", "Column of numbers that are categories; repeat it for several"),
        ("keep", "names", "Column to use even if it looks like a row number or name; repeat it for several"),
        ("rows", "whole", "Largest number of rows to use, drawn at random if the file has more", "all"),
        ("class_weight", "text", "balanced gives all classes the same weight in training", "none"),
        ("task", "text", "binary, classes, regression or counts", "found from the target"),
        ("test_share", "number", "Share of the rows to set aside as test examples", "0.2"),
        ("standardise", "truth", "Scale the columns of the file to mean 0 and variance 1", "yes"),
        ("turns", "number", "Number of turns of the spirals", "2"),
        ("a", "number", "Radius of the spirals, or length of the trigonometric curves", "2, or 6"),
        ("b", "number", "Frequency of the trigonometric curves", "1"),
        ("p", "number", "Exponent of radius and angle along the spirals", "0.5"),
        ("c", "number", "Standard deviation of the noise of a built-in problem", "0.02, blobs 0.3"),
        ("gap", "number", "Widest gap between the rings", "0.5"),
        ("pinch", "number", "Narrowest gap between the rings", "0.1"),
        ("pinches", "whole", "Number of places where the rings come close", "4"),
        ("centres", "whole", "Number of blobs", "4"),
        ("n_train", "whole", "Number of training examples of a built-in problem", "1000"),
        ("n_test", "whole", "Number of test examples of a built-in problem", "1000"),
        ("draws", "whole", "Number of independent data sets, which the chains share in turn", "1"),
        ("seed", "whole", "Seed of the data, or of the rows of a file that are used or set aside",
         "0", "--problem-seed"),
        ("folder", "text", "Folder with the files of MNIST", "", "--mnist"),
    ),
    *_settings("network",
        ("hidden", "wholes", "Sizes of the hidden layers, such as 100,100", "100; without --method 50"),
        ("activation", "text", "relu, tanh or identity", "relu"),
        ("init", "text", "Initial weights: torch, gaussian or zeros", "torch"),
        ("scale", "number", "Standard deviation of gaussian initial weights", "0.01", "--init-scale"),
    ),
    Setting("method", "name", "text", f"{', '.join(known())}; coefficients may follow, as in "
            "sgld:h=0.1,sigma=0.01", option="--method"),
    *_settings("method", *(
        (name, kind, _with_methods(text, methods)) for name, kind, text, methods in arguments()
    )),
    *_settings("posterior",
        ("prior", "deviations", "Standard deviation of the prior of the parameters: a number, one for each "
         "layer as in 0.5,1, fan_in, or auto. With a posterior, --tau and --weight-decay are not needed",
         "1; without --method auto"),
        ("noise", "deviations", "Standard deviation of the noise of a regression, in units of the targets; "
         "sampled, to sample it with the parameters; or network, to predict it", "sampled"),
        ("temperature", "number", "Temperature of the posterior; below 1 it is a cold posterior", "1"),
        ("degrees", "number", "Degrees of freedom of the noise of a regression, for Student's distribution "
         "instead of the normal one"),
    ),
    *_settings("training",
        ("steps", "length", "Number of steps, or auto, to train until the predictions have converged",
         "20000; without --method auto"),
        ("budget", "whole", "Largest number of steps with --steps auto",
         "20000; without --method it depends on the data"),
        ("refine", "number", "Factor on the amount of work; only without --method", "1"),
        ("warm", "whole", "Number of steps of Adam before the chains start; only for train", "0"),
        ("batch", "batch", "Number of examples in a mini-batch, or all",
         "32, or all if there are fewer; without --method all, if that is affordable"),
        ("chains", "whole", "Number of independent chains of each method or point",
         "10; without --method 8, or fewer for a large table"),
        ("seed", "whole", "Seed of starts, noise and mini-batches", "0"),
        ("colder_from", "whole", "Step from which to lower the temperature to a thirtieth, or without a "
         "temperature h to a fifth, which improves single networks"),
        ("record", "whole", "Number of records of loss, accuracy and temperatures", "100"),
        ("losses_every", "whole", "Compute loss and accuracy only at every n-th record", "1"),
        ("samples", "whole", "Number of samples of each chain to keep for predictions"),
        ("burn_in", "whole", "Number of steps before the first sample"),
        ("thin", "whole", "Number of steps between samples"),
        ("shuffled", "truth", "Take mini-batches from shuffled epochs instead of independent subsets"),
        ("momenta", "text", "Initial momenta: zero or thermal", "zero"),
        ("start", "text", "Folder or file of a run with as many chains: each new chain starts where one of "
         "that run ended; only for train"),
        ("dtype", "text", "float32 or float64", "float32"),
    ),
    *_settings("search",
        ("steps", "whole", "Number of steps of the candidates that aren't stopped early", "20000"),
        ("batch", "batch", "Number of examples in a mini-batch, or all", "32, or all if there are fewer"),
        ("candidates", "whole", "Number of candidates of each method", "128"),
        ("chains", "whole", "Number of chains of each candidate", "2"),
        ("by", "text", "Score on the validation examples that ranks candidates: loss or accuracy", "loss"),
        ("validation", "number", "Share of the training examples to use for validation", "0.2"),
        ("seed", "whole", "Seed of candidates, starts, noise and mini-batches", "0"),
        ("shuffled", "truth", "Take mini-batches from shuffled epochs instead of independent subsets"),
        ("dtype", "text", "float32 or float64", "float32"),
        ("fresh", "whole", "Number of chains to train with the best candidate of each method", "10"),
        ("cooled", "truth", "Lower the temperature for the last tenth of their steps", "yes"),
    ),
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
            options = {setting: value for setting, value in options.items() if value not in (None, [])}
            command(options=options, **values)

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
        help=setting.help,
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
