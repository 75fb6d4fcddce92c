"""Asks NVML, in a process of its own: a driver that hangs takes this process along and nobody else.

Writes one JSON line with what the GPUs are, then one with their readings every few seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable

import pynvml

PR_SET_PDEATHSIG = 1
_MIB = 1 << 20


def main(pause_s: float, sys_root: Path = Path("/sys")) -> None:
    """Answer until nobody listens; one line with `error` if NVML is not there."""
    _die_with_the_agent()
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
        _say({"gpus": _facts(handles, sys_root)})
        while True:
            _say({"samples": [_sample(handle) for handle in handles]})
            time.sleep(pause_s)
    except pynvml.NVMLError as error:
        _say({"error": str(error)})
    except BrokenPipeError:
        sys.stderr.close()  # or the interpreter complains about its own stdout


def _die_with_the_agent() -> None:
    """While the driver hangs nothing is written, so that nobody listens would never be noticed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _say(words: dict[str, Any]) -> None:
    print(json.dumps(words), flush=True)


def _facts(handles: list[Any], sys_root: Path) -> list[dict[str, Any]]:
    buses = [_text(pynvml.nvmlDeviceGetPciInfo(handle).busId) for handle in handles]
    reached = [_reached(handle) for handle in handles]
    return [
        {
            "index": index,
            "uuid": _text(pynvml.nvmlDeviceGetUUID(handle)),
            "model": _text(pynvml.nvmlDeviceGetName(handle)),
            "memory_mib": pynvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB,
            "numa": _numa(buses[index], sys_root),
            "pci_bus": buses[index],
            "links": [
                other
                for other in range(len(handles))
                if other != index and (buses[other] in reached[index] or reached[index] & reached[other])
            ],
        }
        for index, handle in enumerate(handles)
    ]


def _reached(handle: Any) -> set[str]:
    """The PCI addresses at the far ends of a GPU's NVLinks: other GPUs, or switches they share."""
    found = set()
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(handle, link):
                found.add(_text(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId))
        except pynvml.NVMLError:
            continue  # this link, or NVLink as such, is not there
    return found


def _numa(bus: str, sys_root: Path) -> int:
    """NVML writes the PCI domain with eight digits, /sys with four; -1 means that nobody knows."""
    try:
        text = (sys_root / "bus/pci/devices" / bus[-12:].lower() / "numa_node").read_text(encoding="ascii")
        return max(0, int(text))
    except (OSError, ValueError):
        return 0


def _sample(handle: Any) -> dict[str, Any]:
    return {
        "uuid": _text(pynvml.nvmlDeviceGetUUID(handle)),
        "utilisation": _asked(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        "memory_used_mib": _asked(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used // _MIB),
        "power_w": _asked(lambda: pynvml.nvmlDeviceGetPowerUsage(handle) // 1000),
        "temperature_c": _asked(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
    }


def _asked(question: Callable[[], int]) -> int:
    """What this GPU cannot answer is 0; that it is gone is an error."""
    with contextlib.suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return question()
    return 0


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
