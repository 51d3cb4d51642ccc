"""Ports on loopback."""

import contextlib
import random
import socket
from pathlib import Path

# The ports that the system gives to whoever names none: the first and the last one.
_OF_THE_SYSTEM = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST = 10_000


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, all different.

    Not of the system's own where there are others: seconds pass until the program that is to
    listen has started, and what the system gave away meanwhile would end it.
    """
    others = range(_FIRST, int(_OF_THE_SYSTEM.read_text().split()[0]))
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in [*random.sample(others, len(others)), *[0] * count]:
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind(("127.0.0.1", port))
                found.append(one.getsockname()[1])
            if len(found) == count:
                break
    return found


def answers(port: int) -> bool:
    """Whether a program takes connections at this port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
