"""The probe process. It reads the GPUs with NVML, so that a hanging driver blocks only this process.

The probe writes JSON lines. The first line describes the GPUs, the second line has their UUIDs. Every few
seconds, and whenever a line arrives on stdin, the probe reads all GPUs: it writes one line with a reading for
each GPU, and `{"done": true}` after the last GPU. If the driver hangs on a GPU, the probe writes no line for
this GPU and for all later GPUs. Xid events (GPU errors) are written when they occur.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
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
_ROUNDS = 15
"""The number of rounds (readings of all GPUs) between two searches for new GPUs and MIG instances. A probe
that replaces an earlier one does not search.
"""
_UNSUPPORTED = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_NoPermission,
    pynvml.NVMLError_NotFound,
)
"""Errors that a healthy GPU returns for a value that the GPU or its driver does not support."""
_THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "too hot",
    0x40: "too hot (hardware)",
    0x80: "power brake",
}
_write_lock = threading.Lock()


class Device(NamedTuple):
    """A GPU or MIG instance that jobs can use. For a MIG instance, `whole` is the NVML handle of the whole
    GPU.
    """

    uuid: str
    handle: Any
    whole: Any
    number: str
    """The number that the driver gives the GPU, such as `3`, or `2:1` for the second MIG instance of GPU 2.
    """
    mig: str = ""


def main() -> None:
    """Write readings. The arguments of the process are the pause between two readings in seconds, the word
    `first` or `again` (for a probe that replaces an earlier probe), and the GPUs to skip.
    """
    pause_s, order, *skip = sys.argv[1:]
    write_readings(float(pause_s), order == "again", skip)


def write_readings(
    pause_s: float, again: bool = False, skip: Collection[str] = (), sys_root: Path = Path("/sys")
) -> None:
    """Write readings until the agent closes the pipe. If NVML does not work, write a line with `error` and
    exit.

    `again` is True for a probe that replaces an earlier one. Such a probe skips the GPUs in `skip`. It does
    not write the line that describes the GPUs: if the driver hung while the probe reads this description, the
    agent could not find out on which GPU.
    """
    _die_with_the_agent()
    try:
        pynvml.nvmlInit()
        devices = _devices(skip)
        if not again:
            devices = [device for device in devices if _is_readable(device)]
            _write_line({"gpus": _facts(devices, sys_root), **_versions()})
        known = {device.uuid for device in devices}
        _write_line({"named": sorted(known)})
        threading.Thread(target=_write_xids, args=(devices,), daemon=True).start()
        rounds = 0
        while True:
            for device in devices:
                _write_line(_read_gpu(device))
            _write_line({"done": True})
            rounds += 1
            if not (again or rounds % _ROUNDS) and {each.uuid for each in _devices(skip)} - known:
                _write_line({"changed": True})
            if select.select([0], [], [], pause_s)[0] and not os.read(0, 4_096):
                break
    except BrokenPipeError:
        pass
    except Exception as error:
        # Catch every exception, because a broken driver may also return values that cannot be decoded.
        _write_line({"error": str(error) or type(error).__name__})
    os._exit(0)  # Exit at once, because a thread may still wait for Xid events (errors of the GPU).


def _die_with_the_agent() -> None:
    """Let the kernel kill this process when the agent exits, because a probe that hangs in the driver cannot
    notice that the agent has closed the pipe.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _write_line(words: dict[str, Any]) -> None:
    with _write_lock:
        rest = memoryview(json.dumps(words).encode() + b"\n")
        while rest:
            rest = rest[os.write(1, rest) :]


# --- the description of the GPUs, for the first line of output ---


def _devices(skip: Collection[str]) -> list[Device]:
    """Return the GPUs and MIG instances that NVML lists, without those in `skip` and without GPUs for which
    NVML returns an error.
    """
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            whole = Device(_text(pynvml.nvmlDeviceGetUUID(handle)), handle, handle, str(index))
            if whole.uuid not in skip:
                found += [each for each in _instances(whole) or [whole] if each.uuid not in skip]
        except pynvml.NVMLError:
            continue
    return found


def _is_readable(device: Device) -> bool:
    """Return whether NVML can read this GPU. NVML fails for a GPU that has fallen off the bus."""
    try:
        pynvml.nvmlDeviceGetMemoryInfo(device.handle)
    except pynvml.NVMLError:
        return False
    return True


def _instances(whole: Device) -> list[Device]:
    """Return the MIG instances of a GPU; empty if MIG is not enabled. Jobs get the instances and not the
    whole GPU.
    """
    handle = whole.handle
    if not _value(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0], 0):
        return []
    found: list[Device] = []
    for slot in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
        except pynvml.NVMLError:
            continue  # Skip this index, because the GPU has no MIG instance with this index.
        profile = _text(pynvml.nvmlDeviceGetName(instance)).rpartition(" ")[2]
        number = f"{whole.number}:{len(found)}"
        found.append(Device(_text(pynvml.nvmlDeviceGetUUID(instance)), instance, handle, number, profile))
    return found


def _versions() -> dict[str, str]:
    driver = _value(lambda: _text(pynvml.nvmlSystemGetDriverVersion()), "")
    cuda = _value(pynvml.nvmlSystemGetCudaDriverVersion_v2, 0)
    return {"driver": driver, "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else ""}


def _facts(devices: list[Device], sys_root: Path) -> list[dict[str, Any]]:
    buses = [_text(pynvml.nvmlDeviceGetPciInfo(device.whole).busId) for device in devices]
    reached = [set() if device.mig else _nvlink_ends(device.whole) for device in devices]
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
            "compute": _value(partial(_compute, device.whole), ""),
            "mig": device.mig,
            "label": device.number if device.number != str(index) else "",
            "power_limit_w": _value(partial(pynvml.nvmlDeviceGetEnforcedPowerLimit, device.whole), 0) // 1000,
        }
        for index, device in enumerate(devices)
    ]


def _compute(handle: Any) -> str:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return f"{major}.{minor}"


def _nvlink_ends(handle: Any) -> set[str]:
    """Return the PCI addresses of the devices to which the NVLinks of a GPU lead. Each device is another GPU,
    or a switch that several GPUs share.
    """
    found = set()
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(handle, link):
                found.add(_text(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId))
        except pynvml.NVMLError:
            continue  # The GPU has no NVLink with this index.
    return found


def _numa(bus: str, sys_root: Path) -> int:
    """Return the NUMA node of a GPU; 0 if unknown. `bus` is the PCI address from NVML. The first four digits
    of the address are left out, because a PCI domain has four digits in /sys and eight in NVML.
    """
    try:
        text = (sys_root / "bus/pci/devices" / bus[-12:].lower() / "numa_node").read_text(encoding="ascii")
        return max(0, int(text))
    except (OSError, ValueError):
        return 0


# --- readings of the GPUs, for the later lines of output ---


def _read_gpu(device: Device) -> dict[str, Any]:
    """Return the data of the output line for one GPU: its reading, or the error that NVML raised."""
    handle, whole = device.handle, device.whole
    try:
        up, links = _links(whole) if not device.mig else (0, 0)
        return {
            "uuid": device.uuid,
            "sample": {
                "uuid": device.uuid,
                "utilisation": _value(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu, 0),
                "memory_used_mib": _value(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used // _MIB, 0),
                "power_w": _value(lambda: pynvml.nvmlDeviceGetPowerUsage(whole) // 1000, 0),
                "temperature_c": _value(lambda: pynvml.nvmlDeviceGetTemperature(whole, 0), 0),
                "clock_mhz": _value(lambda: pynvml.nvmlDeviceGetClockInfo(whole, pynvml.NVML_CLOCK_SM), 0),
                "memory_clock_mhz": _value(
                    lambda: pynvml.nvmlDeviceGetClockInfo(whole, pynvml.NVML_CLOCK_MEM), 0
                ),
                "throttle": _throttle(whole),
                "ecc_corrected": _ecc(whole, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
                "ecc_uncorrected": _ecc(whole, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
                "rows_remapped": _value(lambda: sum(pynvml.nvmlDeviceGetRemappedRows(whole)[:2]), 0),
                "links_up": up,
                "links": links,
                "remap_pending": _value(lambda: bool(pynvml.nvmlDeviceGetRemappedRows(whole)[2]), False),
            },
            "energy_mj": _value(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(whole), None),
            "processes": [
                (each.pid, (each.usedGpuMemory or 0) // _MIB)
                for each in _value(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle), [])
            ],
        }
    except pynvml.NVMLError as error:
        return {"uuid": device.uuid, "error": str(error)}


def _links(handle: Any) -> tuple[int, int]:
    """Return the number of active NVLinks of a GPU, and the number of all its NVLinks."""
    up = there = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            up += pynvml.nvmlDeviceGetNvLinkState(handle, link)
            there += 1
        except (*_UNSUPPORTED, pynvml.NVMLError_InvalidArgument):
            break  # The GPU has no further NVLinks, because NVLinks are numbered without gaps.
    return up, there


def _throttle(handle: Any) -> list[str]:
    bits = _value(lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle), 0)
    return [word for bit, word in _THROTTLES.items() if bits & bit]


def _ecc(handle: Any, kind: int) -> int:
    counter = pynvml.NVML_VOLATILE_ECC  # Use the error counter that is reset when the driver is loaded.
    found: int = _value(lambda: pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter), 0)
    return found


def _write_xids(devices: list[Device]) -> None:
    try:
        events = pynvml.nvmlEventSetCreate()
        for device in devices:
            pynvml.nvmlDeviceRegisterEvents(device.whole, pynvml.nvmlEventTypeXidCriticalError, events)
    except pynvml.NVMLError:
        # Report no Xid events (errors of the GPU), because the GPU or the virtual machine does not support
        # them.
        return
    while True:
        try:
            event = pynvml.nvmlEventSetWait(events, _EVENTS_MS)
            bus = _text(pynvml.nvmlDeviceGetPciInfo(event.device).busId)
            _write_line({"xid": int(event.eventData), "pci_bus": bus})
        except pynvml.NVMLError_Timeout:
            continue
        except pynvml.NVMLError:
            time.sleep(1.0)  # Pause, because after the loss of a GPU every wait fails at once.
        except OSError:
            return


def _value(read: Callable[[], Any], otherwise: Any) -> Any:
    """Call `read`, which reads one value with NVML, and return the value. If the GPU does not support the
    value, return `otherwise`. Raise NVMLError for a lost GPU.
    """
    try:
        found = read()
    except _UNSUPPORTED:
        return otherwise
    # Treat a number with all bits set, or with only the sign bit set, as unknown: some drivers return it for
    # a missing value.
    return otherwise if isinstance(found, int) and not 0 <= found <= _MOST else found


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
