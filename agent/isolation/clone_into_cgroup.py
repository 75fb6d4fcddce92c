"""Forks a child directly into a v2 cgroup, with the system call clone3. Python has no function for this
call.
"""

from __future__ import annotations

import ctypes
import os
import signal

_CLONE3 = 435
"""The number of the system call clone3. It is the same on every architecture except Alpha."""
_INTO_CGROUP = 0x2_0000_0000
_ARGUMENTS = 11
_syscall = ctypes.PyDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


def fork_into(directory: str) -> int:
    """Fork a child directly into this v2 cgroup. Return the pid of the child; in the child, return 0. The
    calling process must have only one thread. Raise OSError if the kernel refuses.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        arguments = (ctypes.c_uint64 * _ARGUMENTS)()
        arguments[0], arguments[4], arguments[10] = _INTO_CGROUP, signal.SIGCHLD, descriptor
        pid: int = _syscall(_CLONE3, ctypes.byref(arguments), ctypes.c_size_t(ctypes.sizeof(arguments)))
        if pid < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return pid
    finally:
        os.close(descriptor)
