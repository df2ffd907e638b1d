"""Words as the page shows them: their letters with their shares of h, or what is wrong with them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from heatbath.checks import FRICTION, real
from heatbath.explorer.page_settings import LETTERS, RunSettings
from heatbath.partition import Partition
from heatbath.splitting import NAMED, gradients


def checked_word(run: RunSettings, part: str, word: str, gamma: Any = None) -> dict[str, Any]:
    """Whether a part of a run may have this word, and what its letters are; nothing is changed."""
    methods = {str(key): method for key, method in run.base.methods.items()}
    try:
        if part not in methods:
            raise ValueError(f"there is no part {part[:40]!r}: accepted are {', '.join(methods)}")
        method = methods[part]
        if not method.spelled:
            raise ValueError(f"{type(method).__name__} has no word that can be chosen")
        if not 0 < len(word) <= LETTERS:
            raise ValueError(f"a word of 1 to {LETTERS} letters is needed, got {len(word)}")
        values: dict[str, Any] = {"word": word}
        if gamma is not None and hasattr(method, "gamma"):
            values["gamma"] = real("gamma", math.inf if gamma == "inf" else gamma, FRICTION)
        spelled = replace(method, **values)
        Partition(
            {**run.base.methods, **{key: spelled for key in run.base.methods if str(key) == part}}, run.base.h
        )
    except (ValueError, TypeError) as error:
        return {"ok": False, "letters": [], "gradients": None, "order": None, "text": str(error)}
    order = NAMED.get(word)
    return {
        "ok": True,
        "letters": [{"letter": s.letter, "share": float(s.fraction)} for s in spelled.substeps],
        "gradients": gradients(spelled.substeps),
        "order": None if order is None else {"position": order.position, "joint": order.joint},
        "text": "",
    }
