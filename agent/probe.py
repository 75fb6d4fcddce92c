"""Asks NVML, in a process of its own: a driver that hangs takes this process along and nobody else.

Writes JSON lines: what the GPUs are; then, every few seconds and whenever a line comes in on stdin, one line
per GPU with its reading and `{"done": true}` after the last. A line each, so that it can be told on which GPU
a driver hangs. Xid events come when they happen.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Collection, NamedTuple

import pynvml

PR_SET_PDEATHSIG = 1
_MIB = 1 << 20
_MOST = 1 << 53
_EVENTS_MS = 60_000
_UNABLE = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_NoPermission,
    pynvml.NVMLError_NotFound,
)
"""This GPU, driver or user cannot have that answer; nothing is wrong with the GPU."""
_THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "too hot",
    0x40: "too hot (hardware)",
    0x80: "power brake",
}
_speaking = threading.Lock()


class Device(NamedTuple):
    """What work can be given: a GPU, or a MIG instance of `whole`."""

    uuid: str
    handle: Any
    whole: Any
    mig: str = ""


def main(
    pause_s: float, again: bool = False, skip: Collection[str] = (), sys_root: Path = Path("/sys")
) -> None:
    """Answer until nobody listens; one line with `error` if NVML is not there.

    A probe that takes the place of another passes over some GPUs, and asks for nothing twice that stays as it
    is: the less it asks before the first reading, the better it shows on which GPU the driver hangs.
    """
    _die_with_the_agent()
    try:
        pynvml.nvmlInit()
        devices = _devices(skip)
        if not again:
            devices = [device for device in devices if _answers(device)]
            _say({"gpus": _facts(devices, sys_root), **_versions()})
        _say({"named": [device.uuid for device in devices]})
        threading.Thread(target=_hear_xids, args=(devices,), daemon=True).start()
        while True:
            for device in devices:
                _say(_look(device))
            _say({"done": True})
            if select.select([0], [], [], pause_s)[0] and not os.read(0, 4_096):
                break
    except BrokenPipeError:
        pass
    except Exception as error:  # NVML's own, and whatever nonsense of a driver leads to
        _say({"error": str(error) or type(error).__name__})
    os._exit(0)  # whatever still waits for events has nobody to tell


def _die_with_the_agent() -> None:
    """While the driver hangs nothing is written, so that nobody listens would never be noticed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _say(words: dict[str, Any]) -> None:
    with _speaking:
        rest = memoryview(json.dumps(words).encode() + b"\n")
        while rest:
            rest = rest[os.write(1, rest) :]


# --- what there is ---


def _devices(skip: Collection[str]) -> list[Device]:
    """Those that can be named."""
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            whole = Device(_text(pynvml.nvmlDeviceGetUUID(handle)), handle, handle)
            if whole.uuid not in skip:
                found += [each for each in _instances(handle) or [whole] if each.uuid not in skip]
        except pynvml.NVMLError:
            continue
    return found


def _answers(device: Device) -> bool:
    """One that fell off the bus before we came has nothing to tell of itself."""
    try:
        pynvml.nvmlDeviceGetMemoryInfo(device.handle)
    except pynvml.NVMLError:
        return False
    return True


def _instances(handle: Any) -> list[Device]:
    """The MIG instances of a GPU that is divided; they are what work can be given, and it is not."""
    if not _asked(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0], 0):
        return []
    found = []
    for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except pynvml.NVMLError:
            continue  # this slice is not made
        profile = _text(pynvml.nvmlDeviceGetName(instance)).rpartition(" ")[2]
        found.append(Device(_text(pynvml.nvmlDeviceGetUUID(instance)), instance, handle, profile))
    return found


def _versions() -> dict[str, str]:
    driver = _asked(lambda: _text(pynvml.nvmlSystemGetDriverVersion()), "")
    cuda = _asked(pynvml.nvmlSystemGetCudaDriverVersion_v2, 0)
    return {"driver": driver, "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else ""}


def _facts(devices: list[Device], sys_root: Path) -> list[dict[str, Any]]:
    buses = [_text(pynvml.nvmlDeviceGetPciInfo(device.whole).busId) for device in devices]
    reached = [set() if device.mig else _reached(device.whole) for device in devices]
    return [
        {
            "index": index,
            "uuid": device.uuid,
            "model": _text(pynvml.nvmlDeviceGetName(device.whole)),
            "memory_mib": pynvml.nvmlDeviceGetMemoryInfo(device.handle).total // _MIB,
            "numa": _numa(buses[index], sys_root),
            "pci_bus": buses[index],
            "links": [
                other
                for other in range(len(devices))
                if other != index
                and not devices[other].mig
                and (buses[other] in reached[index] or reached[index] & reached[other])
            ],
            "compute": _asked(partial(_compute, device.whole), ""),
            "mig": device.mig,
            "power_limit_w": _asked(partial(pynvml.nvmlDeviceGetEnforcedPowerLimit, device.whole), 0) // 1000,
        }
        for index, device in enumerate(devices)
    ]


def _compute(handle: Any) -> str:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return f"{major}.{minor}"


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


# --- how they do ---


def _look(device: Device) -> dict[str, Any]:
    """One GPU's reading, or what is wrong with it."""
    handle, whole = device.handle, device.whole
    try:
        up, links = _links(whole) if not device.mig else (0, 0)
        return {
            "uuid": device.uuid,
            "sample": {
                "uuid": device.uuid,
                "utilisation": _asked(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu, 0),
                "memory_used_mib": _asked(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used // _MIB, 0),
                "power_w": _asked(lambda: pynvml.nvmlDeviceGetPowerUsage(whole) // 1000, 0),
                "temperature_c": _asked(lambda: pynvml.nvmlDeviceGetTemperature(whole, 0), 0),
                "clock_mhz": _asked(lambda: pynvml.nvmlDeviceGetClockInfo(whole, pynvml.NVML_CLOCK_SM), 0),
                "memory_clock_mhz": _asked(
                    lambda: pynvml.nvmlDeviceGetClockInfo(whole, pynvml.NVML_CLOCK_MEM), 0
                ),
                "throttle": _throttle(whole),
                "ecc_corrected": _ecc(whole, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
                "ecc_uncorrected": _ecc(whole, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
                "rows_remapped": _asked(lambda: sum(pynvml.nvmlDeviceGetRemappedRows(whole)[:2]), 0),
                "links_up": up,
                "links": links,
            },
            "energy_mj": _asked(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(whole), None),
            "processes": [
                (each.pid, (each.usedGpuMemory or 0) // _MIB)
                for each in _asked(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle), [])
            ],
        }
    except pynvml.NVMLError as error:
        return {"uuid": device.uuid, "error": str(error)}


def _links(handle: Any) -> tuple[int, int]:
    """NVLinks that are up, and all there are."""
    up = there = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            up += pynvml.nvmlDeviceGetNvLinkState(handle, link)
            there += 1
        except (*_UNABLE, pynvml.NVMLError_InvalidArgument):
            break  # links are numbered without gaps
    return up, there


def _throttle(handle: Any) -> list[str]:
    bits = _asked(lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle), 0)
    return [word for bit, word in _THROTTLES.items() if bits & bit]


def _ecc(handle: Any, kind: int) -> int:
    counter = pynvml.NVML_VOLATILE_ECC  # since the driver was loaded
    found: int = _asked(lambda: pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter), 0)
    return found


def _hear_xids(devices: list[Device]) -> None:
    """The driver's own words on what went wrong; for ever."""
    try:
        events = pynvml.nvmlEventSetCreate()
        for device in devices:
            pynvml.nvmlDeviceRegisterEvents(device.whole, pynvml.nvmlEventTypeXidCriticalError, events)
    except pynvml.NVMLError:
        return  # not on this GPU, or not in this virtual machine
    while True:
        try:
            event = pynvml.nvmlEventSetWait(events, _EVENTS_MS)
            bus = _text(pynvml.nvmlDeviceGetPciInfo(event.device).busId)
            _say({"xid": int(event.eventData), "pci_bus": bus})
        except pynvml.NVMLError_Timeout:
            continue
        except pynvml.NVMLError:
            time.sleep(1.0)  # a GPU that is lost makes every wait fail at once
        except OSError:
            return


def _asked(question: Callable[[], Any], otherwise: Any) -> Any:
    """What this GPU cannot answer has a value of its own; that it is gone is an error."""
    try:
        found = question()
    except _UNABLE:
        return otherwise
    # Some drivers say in numbers that they do not know: all bits are set, or none but the sign.
    return otherwise if isinstance(found, int) and not 0 <= found <= _MOST else found


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
