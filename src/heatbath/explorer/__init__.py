"""Watch two runs train side by side in the browser, and change their settings while they run.

`explore` starts a server for this computer and opens its page. The module `messages` documents the messages
between the page and the server.
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

NOTEBOOK_HEIGHT = 820  # pixels of the frame in a notebook
SERVER_TIMEOUT = 30.0  # seconds in which a server must have started, or ended


class Served:
    """A running explorer: a server in a thread of its own.

    `explore` returns one. It is also a context manager that closes the server.

    Parameters
    ----------
    host : str
        Address of this computer to serve.
    port : int
        Port to serve; 0 finds a free one.
    token : str or None
        Token that every address needs, or None.
    framed : bool
        Allow pages of any origin to show the explorer in a frame, as notebooks do.

    Attributes
    ----------
    url : str
        Address of the page, with the token.
    port : int
        Port of the server.
    token : str or None
        The token.

    Raises
    ------
    ImportError
        If the extra `heatbath[explorer]` isn't installed.
    OSError
        If the host and port can't be served.
    RuntimeError
        If the server doesn't start.
    """

    def __init__(self, host: str, port: int, token: str | None, framed: bool = False) -> None:
        """Bind the port, start the server's thread and wait until the server accepts connections."""
        try:
            import uvicorn

            from heatbath.explorer.messages import MAX_RECEIVED_BYTES
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
        self.url = _page_url(host, self.port, token)

        config = uvicorn.Config(
            Explorer(token, framed=framed).app(), log_level="warning", lifespan="on", ws="websockets-sansio",
            ws_max_size=MAX_RECEIVED_BYTES, ws_per_message_deflate=False, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="heatbath-explorer", daemon=True
        )
        self._start()

    def _start(self) -> None:
        """Start the server's thread and wait until the server accepts connections."""
        self._thread.start()
        end = time.monotonic() + SERVER_TIMEOUT
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                self.close()
                raise RuntimeError("the explorer's server did not start: see the messages above")
            time.sleep(0.01)

    def __repr__(self) -> str:
        return f"<explorer at {self.url}, {'running' if self.running else 'closed'}>"

    @property
    def running(self) -> bool:
        """True while the server runs."""
        return self._thread.is_alive()

    def wait(self) -> None:
        """Block until the server has ended."""
        while self.running:
            self._thread.join(0.2)  # a join without end would block Ctrl-C

    def close(self) -> None:
        """End the server and all its runs."""
        self._server.should_exit = True
        self._thread.join(SERVER_TIMEOUT)
        self._socket.close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def explore(host: str = LOOPBACK, port: int | None = None, browser: bool = True) -> Served:
    """Start the explorer and open it in the browser, or show it in a frame in a notebook.

    The server runs in the background until `close()`, or until Python ends.

    Parameters
    ----------
    host : str, optional
        Address to serve. The default serves this computer only. With another address (0.0.0.0 for all of
        them), other computers can open the page if they know its token, which is part of the URL.
    port : int, optional
        Port to serve; by default a free one.
    browser : bool, optional
        Open the page (default True).

    Returns
    -------
    Served
        The server, with its `url`.

    Raises
    ------
    ImportError
        If the extra `heatbath[explorer]` isn't installed.
    OSError
        If the host and port can't be served.

    Examples
    --------
    >>> import heatbath as hb
    >>> with hb.explore(browser=False) as served:
    ...     served.url.startswith("http://127.0.0.1:")
    True
    """
    if port is not None:
        whole("port", port, low=0, high=65_536)
    hub_prefix = os.environ.get("JUPYTERHUB_SERVICE_PREFIX") if _in_notebook() else None
    needs_token = hub_prefix is not None or not is_loopback(host)
    token = secrets.token_urlsafe(16) if needs_token else None
    is_framed = browser and _in_notebook()
    served = Served(host, port or 0, token, is_framed)

    if is_framed:
        _show_in_notebook(served, hub_prefix)
    elif browser:
        webbrowser.open(served.url)
    return served


def _show_in_notebook(served: Served, hub_prefix: str | None) -> None:
    """Show the page in a frame of a notebook, by JupyterHub's proxy if there is a prefix of its addresses."""
    from IPython.display import IFrame, display

    address = served.url
    if hub_prefix is not None:  # the proxy serves the page under this path, whatever the hub's host
        address = f"{hub_prefix}proxy/{served.port}/?token={served.token}"
    display(IFrame(address, "100%", NOTEBOOK_HEIGHT))


def _page_url(host: str, port: int, token: str | None) -> str:
    """Return the address of the page, with this computer's name if all of its addresses are served."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    if ":" in name:  # IPv6
        name = f"[{name}]"
    url = f"http://{name}:{port}/"
    return url if token is None else f"{url}?token={token}"


def _in_notebook() -> bool:
    """Return True in a Jupyter notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config
