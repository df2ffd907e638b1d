"""Doctests in docstrings, shown as code: to Markdown alone their >>> are quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>>.*(?:\n.+)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts each doctest into a block of code."""

    def on_instance(self, *, obj: griffe.Object, **others: Any) -> None:
        """Wrap the doctests of one object's docstring."""
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
