"""The settings of a run: one table of what they are, which makes the options and reads them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Annotated, Any, NamedTuple

import typer

from heatbath.cli.methods import arguments, known
from heatbath.cli.parsing import AUTO, deviations, number, sizes, whole_number, whole_or
from heatbath.datasets.tasks import TASKS
from heatbath.models.dense import ACTIVATIONS

Settings = dict[str, dict[str, Any]]


class Setting(NamedTuple):
    """A key of a section of the settings, and the option for it (`--name` unless said)."""

    section: str
    name: str
    kind: str
    meaning: str
    option: str = ""

    @property
    def flag(self) -> str:
        """The option."""
        return self.option or f"--{self.name.replace('_', '-')}"

    @property
    def argument(self) -> str:
        """What the option is called as an argument of a command."""
        return self.flag.removeprefix("--").replace("-", "_")


def _text(text: str, methods: list[str]) -> str:
    """What an argument is, and whose."""
    return text if len(methods) > len(known()) // 2 else f"{text} ({', '.join(methods)})"


SETTINGS = (
    Setting("problem", "name", "text", "spirals, trigonometric, rings, blobs or mnist.", "--problem"),
    Setting("problem", "data", "text", "Your own data, instead of a problem: a CSV or Parquet file, "
            "compressed or not; - is the standard input."),
    Setting("problem", "target", "names", "The column of the file to predict; several times for several."),
    Setting("problem", "weights", "text", "The column of the file that says how often each row counts."),
    Setting("problem", "ignore", "names", "A column of the file to leave out; several times for several."),
    Setting("problem", "categorical", "names", "A column of numbers that are names; several times."),
    Setting("problem", "keep", "names", "A column to use though it seems to name or count the rows; several "
            "times for several."),
    Setting("problem", "rows", "whole", "Take so many rows of the file, drawn at random, where it has more "
            "(all)."),
    Setting("problem", "class_weight", "text", "balanced: in training, all classes count alike (no)."),
    Setting("problem", "task", "text", "binary, classes, regression, counts (default: as it looks)."),
    Setting("problem", "test_share", "number", "The share of the file that is set aside to test (0.2)."),
    Setting("problem", "standardise", "truth", "Give the columns of the file mean 0 and variance 1 (yes)."),
    Setting("problem", "turns", "number", "Of spirals (2)."),
    Setting("problem", "a", "number", "Of spirals (2), trigonometric (6)."),
    Setting("problem", "b", "number", "Of trigonometric (1)."),
    Setting("problem", "p", "number", "Of spirals (0.5)."),
    Setting("problem", "c", "number", "Noise of the data (0.02, of blobs 0.3)."),
    Setting("problem", "gap", "number", "Of rings (0.5)."),
    Setting("problem", "pinch", "number", "Of rings (0.1)."),
    Setting("problem", "pinches", "whole", "Of rings (4)."),
    Setting("problem", "centres", "whole", "Of blobs (4)."),
    Setting("problem", "n_train", "whole", "Training examples of a built-in problem (1000)."),
    Setting("problem", "n_test", "whole", "Test examples of a built-in problem (1000)."),
    Setting("problem", "draws", "whole", "Independent data sets, which the chains take in turns (1)."),
    Setting("problem", "seed", "whole", "Of the data, or of the rows of a file that are drawn, or set aside "
            "to test (0).", "--problem-seed"),
    Setting("problem", "folder", "text", "Where MNIST's files are.", "--mnist"),
    Setting("network", "hidden", "wholes", "Sizes of the hidden layers, such as 100,100 (100; without "
            "--method 50)."),
    Setting("network", "activation", "text", "relu, tanh or identity (relu)."),
    Setting("network", "init", "text", "Where chains start: torch, gaussian or zeros (torch)."),
    Setting("network", "scale", "number", "Standard deviation of a gaussian start (0.01).", "--init-scale"),
    Setting("method", "name", "text", f"{', '.join(known())}; or sgld:h=0.1,sigma=0.01.", "--method"),
    *(Setting("method", name, kind, _text(text, methods)) for name, kind, text, methods in arguments()),
    Setting("posterior", "prior", "deviations", "Standard deviation of the parameters, 0.5,1 for one of each "
            "layer, fan_in, or auto (1; without --method auto). A posterior takes the place of --tau and "
            "--weight-decay."),
    Setting("posterior", "noise", "deviations", "In a regression, standard deviation of targets around the "
            "network, in their units; sampled, with the parameters; or network, its own outputs (sampled)."),
    Setting("posterior", "temperature", "number", "Of the posterior; a cold one is below 1 (1)."),
    Setting("posterior", "degrees", "number", "Of freedom of the noise of a regression, if it has Student's "
            "law and not a normal one."),
    Setting("training", "steps", "length", "Steps (20000; without --method auto); with auto, train goes on "
            "until the predictions have converged."),
    Setting("training", "budget", "whole", "With --steps auto, the most that it makes (20000; without "
            "--method as suits the data)."),
    Setting("training", "refine", "number", "Without --method, how many times the usual work may be "
            "done (1)."),
    Setting("training", "warm", "whole", "Steps of Adam before, where chains begin; for train (0)."),
    Setting("training", "batch", "batch", "Examples in a mini-batch, or all of them (32, or all if fewer; "
            "without --method all, where that is affordable)."),
    Setting("training", "chains", "whole", "Independent chains, of each method or point (10; without "
            "--method 8, or fewer of a large table)."),
    Setting("training", "seed", "whole", "Of starts, noise and mini-batches (0)."),
    Setting("training", "colder_from", "whole", "The step from which on the temperature is a thirtieth, "
            "or without one h a fifth, for good single networks at the end."),
    Setting("training", "record", "whole", "How many records of loss, accuracy and temperatures (100)."),
    Setting("training", "losses_every", "whole", "Loss and accuracy at every so manieth record (1)."),
    Setting("training", "samples", "whole", "How many states of each chain to keep, for predictions."),
    Setting("training", "burn_in", "whole", "Steps before the first sample."),
    Setting("training", "thin", "whole", "Steps from sample to sample."),
    Setting("training", "shuffled", "truth", "Mini-batches from shuffled epochs (no: fresh subsets)."),
    Setting("training", "momenta", "text", "At the start: zero or thermal (zero)."),
    Setting("training", "start", "text", "A run, by its folder or file, with as many chains: each begins "
            "where that of its number has ended; for train."),
    Setting("training", "dtype", "text", "float32 or float64 (float32)."),
    Setting("search", "steps", "whole", "Steps of those that come to the end (20000)."),
    Setting("search", "batch", "batch", "Examples in a mini-batch, or all of them (32, or all if fewer)."),
    Setting("search", "candidates", "whole", "How many coefficients of each method are tried (128)."),
    Setting("search", "chains", "whole", "Chains of each candidate (2)."),
    Setting("search", "by", "text", "What candidates are judged by: loss or accuracy (loss)."),
    Setting("search", "validation", "number", "The share of the training examples to judge by (0.2)."),
    Setting("search", "seed", "whole", "Of candidates, starts, noise and mini-batches (0)."),
    Setting("search", "shuffled", "truth", "Mini-batches from shuffled epochs (no: fresh subsets)."),
    Setting("search", "dtype", "text", "float32 or float64 (float32)."),
    Setting("search", "fresh", "whole", "Chains of the best of each method, trained anew in the end (10)."),
    Setting("search", "cooled", "truth", "The last tenth of their steps at a lower temperature (yes)."),
)  # fmt: skip
SECTIONS = ("problem", "network", "method", "posterior", "training", "search")
TITLES = {section: f"The {section}" for section in SECTIONS}
READERS: dict[str, Callable[[str, str], Any]] = {
    "number": number, "whole": whole_number, "wholes": sizes, "deviations": deviations,
    "length": whole_or(AUTO), "batch": whole_or("all"),
}  # fmt: skip
METAVARS = {
    "number": "NUMBER", "whole": "WHOLE", "wholes": "SIZES", "text": "TEXT", "coefficient": "NUMBER",
    "deviations": "NUMBER", "stepsize": "NUMBER", "length": "WHOLE", "batch": "WHOLE", "names": "COLUMN",
}  # fmt: skip


def keys(section: str) -> list[str]:
    """What a section of the settings may have; of methods, also what was registered since, and parts."""
    names = [setting.name for setting in SETTINGS if setting.section == section]
    if section != "method":
        return names
    return list(dict.fromkeys([*names, *(a.name for a in arguments()), "parts"]))


def takes_settings(*sections: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of some sections; it gets what was said as its argument `given`."""
    chosen = [setting for setting in SETTINGS if setting.section in sections]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        others = [
            p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "given"
        ]

        @wraps(command)
        def wrapped(**values: Any) -> None:
            options = {setting: values.pop(setting.argument) for setting in chosen}
            given = {setting: value for setting, value in options.items() if value not in (None, [])}
            command(given=given, **values)

        parameters = [*others, *map(_parameter, chosen)]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapped

    return decorate


def _problems() -> list[str]:
    from heatbath.runs.serialise import RECIPES

    return list(RECIPES)


NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "--problem": _problems, "--method": known, "--task": lambda: TASKS, "--activation": lambda: ACTIVATIONS,
    "--init": lambda: ("torch", "gaussian", "zeros"), "--momenta": lambda: ("zero", "thermal"),
    "--dtype": lambda: ("float32", "float64"), "--by": lambda: ("loss", "accuracy"),
    "--class-weight": lambda: ("balanced",),
}  # fmt: skip


def completing(flag: str) -> Callable[[str], list[str]] | None:
    """What the shell offers after an option that takes one of some names."""
    if flag not in NAMES:
        return None
    return lambda incomplete: [name for name in NAMES[flag]() if name.startswith(incomplete)]


def _parameter(setting: Setting) -> inspect.Parameter:
    """The option of a setting as Typer takes it."""
    flag = f"{setting.flag}/--no-{setting.flag[2:]}" if setting.kind == "truth" else setting.flag
    panel = TITLES[setting.section]
    option = typer.Option(
        flag,
        help=setting.meaning,
        rich_help_panel=panel,
        metavar=METAVARS.get(setting.kind),
        autocompletion=completing(setting.flag),
        show_default=False,
    )
    kind = {"truth": bool | None, "names": list[str] | None}.get(setting.kind, str | None)
    return inspect.Parameter(
        setting.argument, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def sections_of(given: dict[Setting, Any]) -> Settings:
    """What options say, as sections of values; coefficients stay text, and are read with the method."""
    sections: Settings = {}
    for setting, value in given.items():
        read = READERS.get(setting.kind)
        section = sections.setdefault(setting.section, {})
        section[setting.name] = read(setting.flag, value) if read else value
    return sections
