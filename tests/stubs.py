"""The types of the classes that `heatbath.torch.optim.classes` makes, for type checkers.

`python -m tests.stubs` writes them to src/heatbath/torch/optim/classes.pyi.
"""

import inspect
from pathlib import Path

PLACE = Path(__file__).parent.parent / "src" / "heatbath" / "torch" / "optim" / "classes.pyi"
HEAD = """\
# Written by python -m tests.stubs: the classes that classes.py makes, as type checkers see them.
from collections.abc import Iterable
from typing import Any, Literal

from torch import Tensor, nn

from heatbath.methods import Method
from heatbath.methods.schedules import Value
from heatbath.torch.optim.optimizer import Partitioned
from heatbath.torch.optim.posterior import LossPosterior

def method_class(method: type[Method]) -> type[Partitioned]: ...
def preset_class(name: str) -> type[Partitioned]: ...
def __getattr__(name: str) -> type[Partitioned]: ...
"""


def stub_text() -> str:
    """Return the text of the stub file."""
    from heatbath.methods import known_methods
    from heatbath.methods.presets import PRESETS
    from heatbath.torch.optim import classes

    own = [name for name, kind in known_methods().items() if kind.__module__.startswith("heatbath.")]
    lines = [HEAD]
    for name in (*PRESETS, *own):
        arguments = []
        starred = False
        made = getattr(classes, name)
        text = inspect.cleandoc(made.__doc__).split("\n\n")[0]
        for p in inspect.signature(made).parameters.values():
            if p.kind is p.KEYWORD_ONLY and not starred:
                arguments.append("*")
                starred = True
            default = "" if p.default is p.empty else f" = {p.default!r}"
            arguments.append(f"{p.name}: {p.annotation}{default}")
        listed = "".join(f"        {argument},\n" for argument in ("self", *arguments))
        head = f'class {name}(Partitioned):\n    """{text}\n\n    See `heatbath.{name}`.\n    """\n\n'
        lines.append(f"{head}    def __init__(\n{listed}    ) -> None: ...\n")
    return "\n".join(lines)


if __name__ == "__main__":
    PLACE.write_text(stub_text(), encoding="utf-8")
