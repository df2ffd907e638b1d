"""Addresses that the explorer listens at."""

from __future__ import annotations

import ipaddress
import socket

LOOPBACK = "127.0.0.1"


def is_loopback(name: str) -> bool:
    """Whether a host is this computer for itself: anyone can have a name that begins with 127."""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that is bound, so that nobody else takes the port that was found."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
        except OSError:
            made.close()
            raise
    except OSError as error:
        cure = "choose another --port, or none for a free one" if port else "choose another --host"
        raise OSError(f"{host}, port {port}, cannot be served ({error.strerror}): {cure}") from None
    return made
