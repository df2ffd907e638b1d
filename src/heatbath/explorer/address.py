"""Host names and sockets of the explorer's server."""

from __future__ import annotations

import ipaddress
import socket

LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Return True if a host is this computer's own loopback address.

    A name that only begins with "127." doesn't count: anybody can register one.
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket bound to a host and port, so that no other program takes the port.

    Port 0 finds a free one.

    Raises
    ------
    OSError
        If the address can't be served.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server_socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server_socket.bind(address)
        except OSError:
            server_socket.close()
            raise
    except OSError as error:
        remedy = "choose another --port, or none for a free one" if port else "choose another --host"
        raise OSError(f"{host}, port {port}, cannot be served ({error.strerror}): {remedy}") from None
    return server_socket
