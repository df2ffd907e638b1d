"""The explorer: watch heat baths work, live, in the browser.

`explore` starts a server for this computer, with one page on it: two runs side by side, whose temperatures
can be moved while they run. What the page and the server say to each other stands in `messages`.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import time
import webbrowser
from typing import Any

from heatbath._internal.checks import whole
from heatbath.explorer.address import LOOPBACK, bound_socket, is_loopback

HEIGHT = 820  # pixels of the frame in a notebook
PATIENCE = 30.0  # seconds in which a server must have started, or ended


class Served:
    """A server that runs in a thread of its own, at `url`, until `close`."""

    def __init__(self, host: str, port: int, token: str | None, framed: bool = False) -> None:
        try:
            import uvicorn

            from heatbath.explorer.messages import READ
            from heatbath.explorer.server import Explorer
        except ImportError as error:
            if error.name not in ("starlette", "uvicorn", "websockets"):
                raise
            raise ImportError(
                f"the explorer needs {error.name}, an extra: pip install 'heatbath[explorer]'"
            ) from error
        self._socket = bound_socket(host, port)
        self.port = int(self._socket.getsockname()[1])
        self.token = token
        name = socket.gethostname() if host in ("0.0.0.0", "::") else host
        name = f"[{name}]" if ":" in name else name
        self.url = f"http://{name}:{self.port}/" + ("" if token is None else f"?token={token}")
        config = uvicorn.Config(
            Explorer(token, framed=framed).app(), log_level="warning", lifespan="on", ws="websockets-sansio",
            ws_max_size=READ, ws_per_message_deflate=False, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="heatbath-explorer", daemon=True
        )
        self._thread.start()
        end = time.monotonic() + PATIENCE
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                self.close()
                raise RuntimeError("the explorer's server did not start: see the messages above")
            time.sleep(0.01)

    def __repr__(self) -> str:
        return f"<explorer at {self.url}, {'running' if self.running else 'closed'}>"

    @property
    def running(self) -> bool:
        """Whether it serves pages."""
        return self._thread.is_alive()

    def wait(self) -> None:
        """Return when it has ended."""
        while self.running:
            self._thread.join(0.2)  # in pieces: Ctrl-C is heard between them

    def close(self) -> None:
        """End the server and all its runs."""
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        self._socket.close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def explore(host: str = LOOPBACK, port: int | None = None, browser: bool = True) -> Served:
    """Start the explorer, and open it in the browser; in a notebook, show it in a frame.

    It serves this computer only, unless `host` is another address of it (0.0.0.0 for all): then the address
    has a token in it, which whoever opens it needs. `port` None finds a free one. The server runs in the
    background until `close()`, or until Python ends.
    """
    if port is not None:
        whole("port", port, low=0, high=65_536)
    prefix = os.environ.get("JUPYTERHUB_SERVICE_PREFIX") if _in_notebook() else None
    guarded = prefix is not None or not is_loopback(host)
    framed = browser and _in_notebook()
    served = Served(host, port or 0, secrets.token_urlsafe(16) if guarded else None, framed)
    if framed:
        from IPython.display import IFrame, display

        address = served.url
        if prefix is not None:  # a hub's proxy serves it at this place, whatever the hub is called
            address = f"{prefix}proxy/{served.port}/?token={served.token}"
        display(IFrame(address, "100%", HEIGHT))
    elif browser:
        webbrowser.open(served.url)
    return served


def _in_notebook() -> bool:
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config
