"""Runs a module's main in a network namespace: `python -m tests.in_network_namespace NAMESPACE MODULE …`.

A controller in the namespace connects to its hosts again within about a second after a link is repaired.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys

from controller.nodes import reconnecting

CLONE_NEWNET = 0x40000000


def main() -> None:
    """Enter the namespace and run the module."""
    _, namespace, *words = sys.argv
    descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    os.close(descriptor)
    # Because the pauses between tries would grow with each cut, up to 30 s.
    reconnecting.LONGEST_PAUSE_S = 0.5
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
