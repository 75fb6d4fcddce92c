"""Reads the GPUs of this host with NVML. A separate probe process calls NVML, so that a hanging driver does
not block the agent.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any, Sequence

from agent.controller_channel import AgentExit
from agent.event_loop import EventLoop
from agent.gpus.interface import (
    NO_SUCH_GPU,
    SAMPLE_INTERVAL_S,
    GpusUnknown,
    ReadingsCallback,
    ReasonCallback,
    ReportedReadings,
    SendFrame,
    ignore_readings,
)
from agent.gpus.probe_process import FIRST_ANSWER_S, ProbeEnded, ProbeProcess
from agent.gpus.process_owners import ListHolders, find_owner, held_milli
from agent.gpus.reset import ResetCommand
from wire.agent.reports import (
    GpuChecked,
    GpuFacts,
    GpuProcess,
    GpuProcesses,
    GpuReport,
    GpuReset,
    GpuSample,
    GpuTrouble,
)
from wire.codec import decode
from wire.dataclass import dataclass
from wire.names import TroubleKind

HANG_S = 3.0
"""If the probe writes no line for this many seconds, the driver counts as hanging on a GPU. The next probe
skips this GPU and has the same limit, so that several hanging GPUs are found within 10 s.
"""
LINKS_ROUNDS = 5
"""The agent exits if the number of active NVLinks differs from the number at the start of the agent in this
many consecutive readings.
"""
CLEAN_TIMEOUT_S = 5.0
"""The seconds within which the GPU memory of an ended job must become free."""
CLEAN_MIB = 512
_AGAIN_S = 0.2


class NvmlMissing(GpusUnknown):
    """Raised if this host has no working NVML."""


@dataclass(frozen=True)
class PendingLaunch:
    """A launch, or a check after the end of a job, that waits until the GPUs in `uuids` are clean. `then` is
    called with an empty string when the GPUs are clean. If they are not clean in time, `then` is called with
    the reason.
    """

    uuids: tuple[str, ...]
    then: ReasonCallback
    deadline: float


class NvmlGpus:
    """The GPU source of a host with NVML. Raises GpusUnknown if NVML does not list the GPUs.

    Reading
    1. The probe process reads all GPUs every `pause_s` seconds. It writes one line per GPU, then `done`. This
       is one round.
    2. If no line arrives for `hang_s` seconds, the driver hangs on the first GPU that has no line in this
       round. Report that GPU as SILENT, and start a new probe that skips this GPU.
    3. After each round, report each new fault once, and send the readings that have changed.

    Clean GPUs (`wait_until_clean`)
    1. Request a reading now. A GPU is clean if all processes on the GPU belong to jobs, and if its used
       memory exceeds the memory that the driver itself needs by at most 512 MiB. The memory is not checked
       while the GPU is allocated to an attempt or used by a process of a job.
    2. If a GPU is not clean, repeat the reading for 5 s, because the memory of an ended job may still be
       released. After that report the GPU as UNCLEAN; the launch fails.

    The controller orders checks and resets. A later order for a GPU replaces an earlier one. No probe runs
    during a reset, because open NVML handles prevent the reset.

    Example: the driver hangs on GPU 3 of 0 to 7. The probe writes no line after GPU 2, so GPU 3 is SILENT
    after 3 s, and the next probe reads the other seven GPUs.
    """

    numa_nodes = 0
    real = True

    def __init__(
        self, pause_s: float = SAMPLE_INTERVAL_S, patience_s: float = FIRST_ANSWER_S, hang_s: float = HANG_S
    ) -> None:
        self._pause_s = pause_s
        self._patience_s = patience_s
        self._hang_s = min(hang_s, patience_s)
        self._first_links: dict[tuple[str, int], int] = {}
        """The number of NVLinks of a GPU that were active at the first reading. The keys are (UUID of the
        GPU, number of all its NVLinks).
        """
        self._changed_links_rounds = 0
        self._readings = ReportedReadings()
        self._trouble: dict[str, str] = {}
        self._hung: set[str] = set()
        """GPUs on which the driver hung. New probes skip these GPUs."""
        self._least: dict[str, int] = {}
        """The lowest memory use, in MiB, that was read on each idle GPU. This value counts as the memory that
        the driver itself needs.
        """
        self._pending_launches: list[PendingLaunch] = []
        self._held_before: set[str] = set()
        self._ordered: dict[str, int] = {}
        self._checking: dict[str, int] = {}
        """Checks and resets of a GPU have consecutive numbers. `_ordered` has the number of the last ordered
        check or reset of each GPU, by UUID. `_checking` has the number of the check that runs now.
        """
        self._resetting = ""
        self._round: dict[str, dict[str, Any]] = {}
        self._probe: ProbeProcess | None = ProbeProcess(pause_s)
        self._named: set[str] | None = None
        self._waiting = False
        """True while the probe pauses after a complete round."""
        self._last_line_at = time.monotonic()
        self.driver = self.cuda = ""
        self.facts = self._first_answer(self._probe)

    def watch(
        self,
        loop: EventLoop,
        holders: ListHolders,
        send: SendFrame,
        on_samples: ReadingsCallback = ignore_readings,
    ) -> None:
        self._loop, self._holders, self._send, self._on_samples = loop, holders, send, on_samples
        assert self._probe is not None
        loop.on_readable(self._probe.descriptor, self._read_probe)
        loop.call_later(self._pause_s, self._check_probe)

    def _first_answer(self, probe: ProbeProcess) -> tuple[GpuFacts, ...]:
        try:
            for line in probe.read(self._patience_s):
                if "gpus" in line:
                    self.driver, self.cuda = line["driver"], line["cuda"]
                    facts = tuple(decode(GpuFacts, gpu) for gpu in line["gpus"])
                    self._named = {gpu.uuid for gpu in facts}
                    return facts
        except ProbeEnded as error:
            probe.end()
            raise NvmlMissing(str(error)) from None
        probe.end()
        raise GpusUnknown(f"NVML has not answered for {self._patience_s:.0f} s; the driver may hang")

    # --- waiting until GPUs are clean ---

    def wait_until_clean(self, uuids: Sequence[str], then: ReasonCallback) -> None:
        """Call `then` with an empty string when the GPUs are clean. If the GPUs are not clean within
        CLEAN_TIMEOUT_S seconds, call `then` with the reason.
        """
        pending = PendingLaunch(tuple(uuids), then, time.monotonic() + CLEAN_TIMEOUT_S)
        self._pending_launches.append(pending)
        self._loop.call_later(CLEAN_TIMEOUT_S + self._hang_s, partial(self._launch_timed_out, pending))
        self._ask()

    def _ask(self) -> None:
        if self._probe is not None:
            self._probe.ask()

    def _launch_timed_out(self, pending: PendingLaunch) -> None:
        if pending in self._pending_launches:
            self._pending_launches.remove(pending)
            pending.then("the driver does not answer")

    def _check_pending_launches(
        self, round_lines: dict[str, dict[str, Any]], processes: tuple[GpuProcess, ...]
    ) -> None:
        """Check the launches that wait for clean GPUs. `round_lines` has the newest reading of each GPU, by
        UUID. If the GPUs of a launch are clean, or if the launch has waited too long, call `then` of the
        launch.
        """
        held = held_milli(self._holders())
        for pending in self._pending_launches[:]:
            if not round_lines.keys() >= set(pending.uuids):
                continue
            reasons = {
                uuid: self._why_unclean(uuid, round_lines[uuid], processes, held) for uuid in pending.uuids
            }
            unclean = {uuid: why for uuid, why in reasons.items() if why}
            if unclean and time.monotonic() < pending.deadline:
                self._loop.call_later(_AGAIN_S, self._ask)
                continue
            self._pending_launches.remove(pending)
            for uuid, why in unclean.items():
                self._report(uuid, TroubleKind.UNCLEAN, why)
            pending.then(next(iter(unclean.values()), ""))

    def _why_unclean(
        self, uuid: str, line: dict[str, Any], processes: tuple[GpuProcess, ...], held: dict[str, int]
    ) -> str:
        """Return why a GPU is not clean: NVML cannot read the GPU, a process that no job started uses the
        GPU, or the memory of the GPU is not free. Return an empty string if the GPU is clean.

        `line` is the newest reading of the GPU. `held` has the allocated thousandths of each GPU, by UUID.
        """
        gpu = next(gpu for gpu in self.facts if gpu.uuid == uuid)
        number = gpu.number
        if "error" in line:
            return f"GPU {number}: {line['error']}"
        there = [each for each in processes if each.uuid == uuid]
        for each in there:
            if each.job is None:
                return f"GPU {number} is held by pid {each.pid} ({each.user}: {each.command})"
        used = int(line["sample"]["memory_used_mib"])
        if there or uuid in held:
            return ""
        # Until this GPU has been seen idle, assume that the driver itself uses 2 % of the GPU's memory, and
        # at least 1 GiB.
        least = self._least.get(uuid, max(1_024, gpu.memory_mib // 50))
        self._least[uuid] = least = min(used, least)
        if used - least <= CLEAN_MIB:
            return ""
        return f"GPU {number} has {used} MiB in use and no process (its driver alone needs {least} MiB)"

    # --- checks of GPUs ---

    def schedule_check(self, uuid: str, after_s: float) -> None:
        number = self._ordered[uuid] = self._ordered.get(uuid, 0) + 1
        self._loop.call_later(after_s, partial(self._run_check, uuid, number))

    def _run_check(self, uuid: str, number: int) -> None:
        """Read the GPU now for the check `number`; do nothing if a later check or reset of this GPU was
        ordered. If probes skip this GPU because the driver hung on it, start a probe that reads the GPU.
        """
        if self._ordered.get(uuid) != number:
            return
        if self._resetting:
            self._loop.call_later(_AGAIN_S, partial(self._run_check, uuid, number))
            return
        found = next((gpu for gpu in self.facts if gpu.uuid == uuid), None)
        if found is None:
            self._send(GpuChecked(uuid, False, NO_SUCH_GPU))
            return
        self._checking[uuid] = number
        self._loop.call_later(3 * self._hang_s, partial(self._check_timed_out, uuid, number))
        if self._probe is None or uuid in self._hung:
            self._hung -= {gpu.uuid for gpu in self.facts if gpu.pci_bus == found.pci_bus}
            self._end_probe()
            self._start_probe()
        else:
            self._probe.ask()

    def _check_timed_out(self, uuid: str, number: int) -> None:
        if self._checking.get(uuid) == number:
            self._answer_check(uuid, self._trouble.get(uuid) or "NVML does not answer")

    def _answer_check(self, uuid: str, trouble: str, occupied: bool = False) -> None:
        if self._checking.pop(uuid, None) is not None:
            self._trouble[uuid] = trouble
            self._send(GpuChecked(uuid, not trouble, trouble, bool(trouble) and occupied))

    # --- resets of GPUs ---

    def schedule_reset(self, uuid: str, command: Sequence[str], after_s: float) -> None:
        number = self._ordered[uuid] = self._ordered.get(uuid, 0) + 1
        self._loop.call_later(after_s, partial(self._reset, uuid, number, tuple(command)))

    def _reset(self, uuid: str, number: int, command: tuple[str, ...]) -> None:
        if self._ordered.get(uuid) != number:
            return
        if all(gpu.uuid != uuid for gpu in self.facts):
            self._send(GpuReset(uuid, False, NO_SUCH_GPU))
        elif uuid in held_milli(self._holders()):
            self._send(GpuReset(uuid, False, "a job is on it"))
        elif self._resetting:  # Wait, because only one reset at a time may use the driver.
            self._loop.call_later(_AGAIN_S, partial(self._reset, uuid, number, command))
        else:
            self._resetting = uuid
            self._end_probe()  # End the probe, because a GPU with an open NVML handle cannot be reset.
            ResetCommand(self._loop, [*command, uuid], partial(self._was_reset, uuid))

    def _was_reset(self, uuid: str, why: str) -> None:
        self._resetting = ""
        self._hung.discard(uuid)
        self._trouble.pop(uuid, None)
        self._start_probe()
        self._send(GpuReset(uuid, not why, why))

    # --- start and end of the probe process ---

    def _check_probe(self) -> None:
        """Replace a probe process that has ended or hangs. In the pause between two rounds of readings, a
        probe that writes nothing does not count as hanging.
        """
        silent = time.monotonic() - self._last_line_at - (self._pause_s if self._waiting else 0.0)
        if self._resetting:
            pass
        elif self._probe is None:
            self._start_probe()
        elif silent >= self._hang_s:
            self._report_hang("NVML does not answer; the driver may hang")
            self._end_probe()
            self._start_probe()
        self._loop.call_later(min(1.0, self._hang_s / 4), self._check_probe)

    def _start_probe(self) -> None:
        self._probe, self._last_line_at = ProbeProcess(self._pause_s, True, self._hung), time.monotonic()
        self._named, self._round, self._waiting = None, {}, False
        self._loop.on_readable(self._probe.descriptor, self._read_probe)

    def _end_probe(self) -> None:
        if self._probe is not None:
            self._loop.on_readable(self._probe.descriptor, None)
            self._probe.end()
            self._probe = None

    def _report_hang(self, why: str) -> None:
        """Report the GPU on which the driver hangs, with the reason `why`. This is the first GPU that the
        probe has not read in this round. If the probe has read every GPU, report all GPUs.
        """
        named = [gpu.uuid for gpu in self.facts if self._named is not None and gpu.uuid in self._named]
        hanging = next((uuid for uuid in named if uuid not in self._round), None)
        if hanging is None:
            self._hung.clear()
            self._report_all(why)
        else:
            bus = next(gpu.pci_bus for gpu in self.facts if gpu.uuid == hanging)
            for gpu in self.facts:
                # Report all MIG instances of the GPU too, because they hang together with the GPU.
                if gpu.pci_bus == bus:
                    self._hung.add(gpu.uuid)
                    self._report(gpu.uuid, TroubleKind.SILENT, why)

    # --- messages of the probe process ---

    def _read_probe(self) -> None:
        assert self._probe is not None
        try:
            for line in self._probe.read():
                self._last_line_at = time.monotonic()
                self._handle(line)
        except ProbeEnded as error:
            self._end_probe()
            self._report_all(str(error))

    def _handle(self, line: dict[str, Any]) -> None:
        if "named" in line:
            self._named = set(line["named"])
            for gpu in self.facts:
                if gpu.uuid not in self._named and gpu.uuid not in self._hung:
                    self._report(gpu.uuid, TroubleKind.LOST, "NVML does not list it any more")
        elif "done" in line:
            round_lines, self._round, self._waiting = self._round, {}, True
            self._finish_round(round_lines)
        elif "changed" in line:
            print(
                "agent: NVML lists other GPUs or MIG instances than when this agent started", file=sys.stderr
            )
            raise AgentExit
        elif "xid" in line:
            for gpu in self.facts:
                if gpu.pci_bus == line["pci_bus"]:
                    self._send(GpuTrouble(gpu.uuid, TroubleKind.XID, xid=line["xid"]))
        else:
            self._round[line["uuid"]], self._waiting = line, False

    def _finish_round(self, round_lines: dict[str, dict[str, Any]]) -> None:
        """Handle a complete round of readings of all GPUs: report faults, answer ordered checks, continue
        launches whose GPUs are clean, and send changed readings and process lists.
        """
        processes = self._processes(round_lines)
        held = held_milli(self._holders())
        for uuid, line in round_lines.items():
            # Report a GPU that no attempt holds as unclean only if a process that belongs to no job uses it.
            # Used memory without a process may still belong to a job that has just ended.
            reason = "" if uuid in held else self._why_unclean(uuid, line, processes, held)
            foreign_process = (
                reason if any(each.uuid == uuid and each.job is None for each in processes) else ""
            )
            kind = TroubleKind.LOST if "error" in line else TroubleKind.UNCLEAN
            self._report(uuid, kind, line.get("error", "") or foreign_process)
            self._answer_check(uuid, line.get("error", "") or reason, occupied="error" not in line)
        for uuid in self._held_before - held.keys():
            # Check that the GPU becomes clean after its job. The callback does nothing, because
            # `wait_until_clean` itself reports a GPU that is not clean as faulty.
            self.wait_until_clean((uuid,), lambda _why: None)
        self._held_before = set(held)
        self._check_pending_launches(round_lines, processes)
        samples = [decode(GpuSample, line["sample"]) for line in round_lines.values() if "sample" in line]
        self._check_links(samples)
        self._on_samples(samples, processes)
        changed = self._readings.changed(samples)
        if changed:
            self._send(GpuReport(changed))
        if self._readings.processes_changed(processes):
            self._send(GpuProcesses(processes))

    def _check_links(self, samples: list[GpuSample]) -> None:
        """End the agent if, in LINKS_ROUNDS consecutive rounds, a GPU has another number of active NVLinks
        than at the start of the agent. The next agent then reports the NVLinks, because they are reported
        only in the hello, the first message of an agent.
        """
        now = {(each.uuid, each.links): each.links_up for each in samples}
        self._first_links = begun = {**now, **self._first_links}
        self._changed_links_rounds = (
            self._changed_links_rounds + 1 if any(now[key] != begun[key] for key in now) else 0
        )
        if self._changed_links_rounds >= LINKS_ROUNDS:
            print("agent: other NVLinks are up than when this agent started", file=sys.stderr)
            raise AgentExit

    def _processes(self, round_lines: dict[str, dict[str, Any]]) -> tuple[GpuProcess, ...]:
        holders = self._holders()
        found = []
        for uuid, line in round_lines.items():
            for pid, memory_mib in line.get("processes", ()):
                owner = find_owner(pid, uuid, holders)
                job = owner.holder.job if owner.holder else None
                found.append(GpuProcess(uuid, pid, owner.user, owner.command, memory_mib, job))
        return tuple(found)

    def _report_all(self, trouble: str) -> None:
        for gpu in self.facts:
            self._report(gpu.uuid, TroubleKind.SILENT, trouble)

    def _report(self, uuid: str, kind: TroubleKind, trouble: str) -> None:
        """Report `trouble`, a text about a fault of a GPU, to the controller, unless it was the last reported
        fault of this GPU. If a check of the GPU has been ordered, the check fails. If `trouble` is empty,
        report nothing, because only a check can show that a fault has ended.
        """
        if trouble != self._trouble.get(uuid, ""):
            self._trouble[uuid] = trouble
            if trouble:
                self._send(GpuTrouble(uuid, kind, trouble))
        if trouble:
            self._answer_check(uuid, trouble, kind is TroubleKind.UNCLEAN)
