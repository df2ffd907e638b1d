"""List all settings of a run in one table, make command-line options from it, and read their values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from heatbath.cli.methods import arguments, known
from heatbath.cli.parsing import AUTO, deviations, number, sizes, whole_number, whole_or
from heatbath.datasets.tasks import TASKS
from heatbath.models.dense import ACTIVATIONS

Settings = dict[str, dict[str, Any]]  # section -> name -> value


class ValueKind(NamedTuple):
    """A kind of option values.

    Attributes
    ----------
    metavar
        Placeholder for the value in the help text, such as NUMBER.
    read
        Parser of the value, called with the name of the option and the text; None keeps the text.
    type
        Type of the option for Typer.
    """

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
    """A key of a section of the settings, and the command-line option for it.

    Attributes
    ----------
    section, name
        Section and key in a settings file.
    kind
        Kind of its values, a key of `KINDS`.
    meaning, default
        Help text, and the default as the help text mentions it.
    option
        Name of the option where it isn't that of the key with two dashes.
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
    def negative_flag(self) -> str:
        """Name of the option that sets a truth value to false, such as --no-shuffled."""
        return self.flag.replace("--", "--no-", 1)

    @property
    def argument(self) -> str:
        """Name of the option as an argument in Python, such as n_train."""
        return self.flag.removeprefix("--").replace("-", "_")


def _with_methods(text: str, methods: list[str]) -> str:
    """Return the meaning of an argument, followed by the methods that take it unless most of them do."""
    meaning = text.rstrip(".")
    if len(methods) > len(known()) // 2:
        return meaning
    return f"{meaning} ({', '.join(methods)})"


def _settings(section: str, *rows: tuple[str, ...]) -> list[Setting]:
    """Return the settings of a section; each row has the other fields of a `Setting`, in order."""
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
        ("class_weight", "text", "balanced, to give all classes the same weight in training", "none"),
        ("task", "text", "Kind of target: binary, classes, regression or counts", "detected from the target"),
        ("test_share", "number", "Share of the rows to set aside as test examples", "0.2"),
        ("standardise", "truth", "Scale the columns of the file to mean 0 and variance 1", "yes"),
        ("turns", "number", "Number of turns of the spirals", "2"),
        ("a", "number", "Radius of the spirals, or length of the trigonometric curves", "2 and 6"),
        ("b", "number", "Frequency of the trigonometric curves", "1"),
        ("p", "number", "Exponent with which radius and angle grow along the spirals", "0.5"),
        ("c", "number", "Standard deviation of the noise of a built-in problem", "0.02, or 0.3 for blobs"),
        ("gap", "number", "Widest gap between the rings", "0.5"),
        ("pinch", "number", "Narrowest gap between the rings", "0.1"),
        ("pinches", "whole", "Number of places where the rings come close", "4"),
        ("centres", "whole", "Number of blobs", "4"),
        ("n_train", "whole", "Number of training examples of a built-in problem", "1000"),
        ("n_test", "whole", "Number of test examples of a built-in problem", "1000"),
        ("draws", "whole", "Number of independent data sets, over which the chains are distributed", "1"),
        ("seed", "whole", "Seed of a built-in problem, or of the random choice of rows of a file",
         "0", "--problem-seed"),
        ("folder", "text", "Folder with the MNIST files", "", "--mnist"),
    ),
    *_settings("network",
        ("hidden", "wholes", "Sizes of the hidden layers, such as 100,100", "100, or 50 without --method"),
        ("activation", "text", "Activation function: relu, tanh or identity", "relu"),
        ("init", "text", "Initial weights: torch, gaussian or zeros", "torch"),
        ("scale", "number", "Standard deviation of initial weights with --init gaussian", "0.01",
         "--init-scale"),
    ),
    Setting("method", "name", "text", f"Method: {', '.join(known())}; coefficients may "
            "follow, as in sgld:h=0.1,sigma=0.01", option="--method"),
    *_settings("method", *(
        (name, kind, _with_methods(text, methods)) for name, kind, text, methods in arguments()
    )),
    *_settings("posterior",
        ("prior", "deviations", "Standard deviation of the prior of the parameters: a number, one per layer "
         "as in 0.5,1, fan_in, or auto. A posterior replaces --tau and --weight-decay",
         "1, or auto without --method"),
        ("noise", "deviations", "Standard deviation of the noise of a regression, in units of the targets; "
         "sampled, to sample it along with the parameters; or network, to let the network predict it",
         "sampled"),
        ("temperature", "number", "Temperature of the posterior; below 1, the posterior is cold", "1"),
        ("degrees", "number", "Degrees of freedom of Student's t noise in a regression, instead of "
         "normal noise"),
    ),
    *_settings("training",
        ("steps", "length", "Number of steps, or auto, to train until the predictions have converged",
         "20000, or auto without --method"),
        ("budget", "whole", "Largest number of steps with --steps auto",
         "20000; depends on the data without --method"),
        ("refine", "number", "Factor by which to multiply the amount of work; only without --method", "1"),
        ("warm", "whole", "Number of Adam steps before the chains start; only for train", "0"),
        ("batch", "batch", "Number of examples in a mini-batch, or all",
         "32, or all if there are fewer; without --method all, if affordable"),
        ("chains", "whole", "Number of independent chains per method or point",
         "10; without --method 8, or fewer for a large table"),
        ("seed", "whole", "Seed of starts, noise and mini-batches", "0"),
        ("colder_from", "whole", "Step from which on the temperature is a thirtieth, or h a fifth for "
         "methods without temperature, which improves single networks"),
        ("record", "whole", "Number of times to record loss, accuracy and temperatures", "100"),
        ("losses_every", "whole", "Compute loss and accuracy only at every n-th record", "1"),
        ("samples", "whole", "Number of samples per chain to keep for predictions"),
        ("burn_in", "whole", "Number of steps before the first sample"),
        ("thin", "whole", "Number of steps between samples"),
        ("shuffled", "truth", "Take mini-batches from shuffled epochs instead of independent random subsets"),
        ("momenta", "text", "Initial momenta: zero or thermal", "zero"),
        ("start", "text", "Folder or file of a run with the same number of chains; each chain starts where "
         "one of that run ended. Only for train"),
        ("dtype", "text", "Floating-point type: float32 or float64", "float32"),
    ),
    *_settings("search",
        ("steps", "whole", "Number of steps of candidates that aren't stopped early", "20000"),
        ("batch", "batch", "Number of examples in a mini-batch, or all", "32, or all if there are fewer"),
        ("candidates", "whole", "Number of candidates per method", "128"),
        ("chains", "whole", "Number of chains per candidate", "2"),
        ("by", "text", "Validation score by which to rank candidates: loss or accuracy", "loss"),
        ("validation", "number", "Share of the training examples to set aside for validation", "0.2"),
        ("seed", "whole", "Seed of candidates, starts, noise and mini-batches", "0"),
        ("shuffled", "truth", "Take mini-batches from shuffled epochs instead of independent random subsets"),
        ("dtype", "text", "Floating-point type: float32 or float64", "float32"),
        ("fresh", "whole", "Number of fresh chains to train with the best candidate of each method", "10"),
        ("cooled", "truth", "Lower the temperature during the last tenth of the steps of fresh chains",
         "yes"),
    ),
)  # fmt: skip
SECTIONS = ("problem", "network", "method", "posterior", "training", "search")


def keys(section: str) -> list[str]:
    """Return the keys that a section may have, also those of methods that were registered after import."""
    names = [setting.name for setting in SETTINGS if setting.section == section]
    if section != "method":
        return names
    coefficients = [argument.name for argument in arguments()]
    return list(dict.fromkeys([*names, *coefficients, "parts"]))


def takes_settings(
    *sections: str, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command the options of some sections.

    The decorated command receives the options that the user gave as its argument `options`, a dict of values
    by `Setting`. Its help lists the options of each section under a heading. If the command has an argument
    `run`, a NamedTuple whose fields are options, it has these options, too.

    Parameters
    ----------
    *sections
        Names of sections, such as "problem" and "network".
    without
        Fields of `run` that keep their default and are no options of this command.
    """
    settings = [setting for setting in SETTINGS if setting.section in sections]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        """Return the command with a signature from which Typer makes all options.

        The signature has the command's own parameters except `options`, one for each field of `run_options`,
        and one for each setting.
        """
        own_parameters = dict(inspect.signature(command, eval_str=True).parameters)
        own_parameters.pop("options")
        option_fields: dict[str, inspect.Parameter] = {}
        parameters: list[inspect.Parameter] = []
        for name, parameter in own_parameters.items():
            if name == "run_options":
                option_fields = _field_parameters(parameter.annotation, without)
                parameters += option_fields.values()
            else:
                parameters.append(parameter)
        parameters += [_option_parameter(setting) for setting in settings]

        @wraps(command)
        def wrapped(**arguments: Any) -> None:
            """Call the command with the settings that the user gave in one dict."""
            options = {}
            for setting in settings:
                value = arguments.pop(setting.argument)
                if value not in (None, []):
                    options[setting] = value
            if option_fields:
                values = {name: arguments.pop(name) for name in option_fields}
                arguments["run_options"] = own_parameters["run_options"].annotation(**values)
            command(options=options, **arguments)

        # Typer reads the options from the signature and the annotations of the function
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapped

    return decorate


def _field_parameters(options: Any, without: Collection[str]) -> dict[str, inspect.Parameter]:
    """Return a parameter for each field of a NamedTuple, by name, except some fields."""
    annotations = get_type_hints(options, include_extras=True)
    parameters = {}
    for name in options._fields:
        default = options._field_defaults.get(name, inspect.Parameter.empty)
        if name not in without:
            parameters[name] = inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotations[name]
            )
    return parameters


def _problems() -> list[str]:
    """Return the names of the built-in problems."""
    from heatbath.runs.serialise import RECIPES

    return list(RECIPES)


COMPLETIONS: dict[str, Callable[[], Iterable[str]]] = {
    "--problem": _problems, "--method": known, "--task": lambda: TASKS, "--activation": lambda: ACTIVATIONS,
    "--init": lambda: ("torch", "gaussian", "zeros"), "--momenta": lambda: ("zero", "thermal"),
    "--dtype": lambda: ("float32", "float64"), "--by": lambda: ("loss", "accuracy"),
    "--class-weight": lambda: ("balanced",),
}  # fmt: skip


def completing(flag: str) -> Callable[[str], list[str]] | None:
    """Return the function that completes an option's value in the shell; None for free text."""
    if flag not in COMPLETIONS:
        return None
    return lambda incomplete: [name for name in COMPLETIONS[flag]() if name.startswith(incomplete)]


def _option_parameter(setting: Setting) -> inspect.Parameter:
    """Return the parameter from which Typer makes the option of a setting.

    A truth value has two options, --name and --no-name. The default is None, which means that the user
    didn't give the option.
    """
    kind = KINDS[setting.kind]
    names = f"{setting.flag}/{setting.negative_flag}" if setting.kind == "truth" else setting.flag
    option = typer.Option(
        names,
        help=setting.help,
        rich_help_panel=setting.section.capitalize(),
        metavar=kind.metavar,
        autocompletion=completing(setting.flag),
        show_default=False,
    )
    annotation: Any = Annotated[kind.type, option]
    return inspect.Parameter(
        setting.argument, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def sections_of(options: dict[Setting, Any]) -> Settings:
    """Return the values of options by section and key; text is parsed, except coefficients of methods."""
    sections: Settings = {}
    for setting, value in options.items():
        read = KINDS[setting.kind].read
        section = sections.setdefault(setting.section, {})
        section[setting.name] = value if read is None else read(setting.flag, value)
    return sections


def option_words(section: str, values: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line that give a section these values.

    Parameters
    ----------
    section
        Name of the section.
    values
        Values by key; keys that have no option are left out.
    """
    words: list[str] = []
    for setting in SETTINGS:
        if setting.section != section or setting.name not in values:
            continue
        value = values[setting.name]
        if value is True:
            words.append(setting.flag)
        elif value is False:
            words.append(setting.negative_flag)
        elif setting.kind == "names" and not isinstance(value, str):
            for name in value:
                words += [setting.flag, name]
        elif isinstance(value, list):
            words += [setting.flag, ",".join(map(str, value))]
        else:
            words += [setting.flag, str(value)]
    return words
