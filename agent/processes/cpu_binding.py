"""Binds a process to CPUs and NUMA nodes. The fork server must stay small and imports this module, so this
module imports only small modules.
"""

from __future__ import annotations

import ctypes
import os

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "ppc64le": 261, "riscv64": 237}
_PREFERRED, _PREFERRED_MANY = 1, 5
_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)
_libc = ctypes.CDLL(None, use_errno=True)


def bind_process(cpus: list[int], numa: list[int]) -> None:
    """Bind this process and its future children to CPUs. Let these processes take memory from the NUMA nodes
    in `numa` first. Raise OSError if the kernel refuses the CPUs.
    """
    if cpus:
        os.sched_setaffinity(0, cpus)
    number = _SET_MEMPOLICY.get(os.uname().machine)
    if numa and number is not None:
        words = max(numa) // _BITS + 1
        mask = (ctypes.c_ulong * words)()
        for node in numa:
            mask[node // _BITS] |= 1 << node % _BITS
        # Prefer memory of these NUMA nodes, but do not require it, because the job may need more memory than
        # these NUMA nodes have.
        mode = _PREFERRED if len(numa) == 1 else _PREFERRED_MANY
        _libc.syscall(number, mode, mask, words * _BITS + 1)
