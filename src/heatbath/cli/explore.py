"""`heatbath explore`: the explorer, in the browser."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from heatbath.cli.errors import FAILURE, USAGE, Json, emit, ending


def explore(
    host: Annotated[
        str,
        typer.Option(help="The address to serve; all but this computer's own need the token in the link."),
    ] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="The port (default: a free one).")] = None,
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
    json: Json = False,
) -> None:
    """Watch two methods train, live, in the browser, and move their temperatures while they do.

    Ctrl-C ends it.

    heatbath explore

    heatbath explore --host 0.0.0.0 --port 8000 --no-browser
    """
    from heatbath.cli.summaries import as_json
    from heatbath.explorer import explore as start

    with ending(USAGE):
        served = start(host, port, browser)
    with served, suppress(KeyboardInterrupt), ending(FAILURE):
        emit(as_json({"url": served.url}) if json else f"explorer: {served.url} (Ctrl-C ends it)\n")
        served.wait()
