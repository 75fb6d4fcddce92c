"""GPUs as NVML knows them, asked by a probe process (probe.py) that may hang without hanging the agent."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Collection, Sequence

from agent.gpus import NOT_THERE, SAMPLE_S, Measure, Readings, Tell, Then, UnknownGpus, ignore
from agent.holders import Holders, loads, owner_of
from agent.loop import Loop
from agent.resets import Reset
from wire.codec import decode
from wire.frames import (
    GpuChecked,
    GpuFacts,
    GpuProcess,
    GpuProcesses,
    GpuReport,
    GpuReset,
    GpuSample,
    GpuTrouble,
)
from wire.words import TroubleKind

PATIENCE_S = 30.0
"""Without persistence mode the first question to eight GPUs takes many seconds."""
PROVE_S = 5.0
"""How long the memory of a job that is over may take to come back."""
LEFT_MIB = 512
_AGAIN_S = 0.2
_HOME = str(Path(__file__).absolute().parent.parent)
_CODE = (
    "import sys; sys.path.append(sys.argv[1]); from agent.probe import main; "
    "main(float(sys.argv[2]), sys.argv[3] == 'again', sys.argv[4:])"
)


class NoNvml(UnknownGpus):
    """This host has no NVML, or none that works."""


class Silenced(Exception):
    """The probe will say no more; says in words why."""


class Probe:
    """One probe process: the first, or one that takes its place and passes over some GPUs."""

    def __init__(self, pause_s: float, again: bool = False, skip: Collection[str] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE, _HOME, str(pause_s), "again" if again else "first", *sorted(skip)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.descriptor = self._process.stdout.fileno()
        self._unfinished = b""

    def read(self, patience_s: float = 0.0) -> list[dict[str, Any]]:
        """What it said, if anything within this time; raises Silenced when that is a refusal or the end."""
        lines: list[bytes] = []
        deadline = time.monotonic() + patience_s
        while not lines:
            pause = max(0.0, deadline - time.monotonic())
            if not select.select([self.descriptor], [], [], pause)[0]:
                return []
            data = os.read(self.descriptor, 1 << 16)
            if not data:
                raise Silenced("the process that asks NVML has ended; is pynvml installed?")
            *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        words: list[dict[str, Any]] = [json.loads(line) for line in lines]
        for each in words:
            if "error" in each and "uuid" not in each:
                raise Silenced(each["error"])
        return words

    def ask(self) -> None:
        """Have it look at once instead of in a while."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(b"look\n")
            self._process.stdin.flush()

    @property
    def gone(self) -> bool:
        """Has the process ended?"""
        return self._process.poll() is not None

    def end(self) -> None:
        """Make it go; a process stuck in the driver stays, but has nobody to tell."""
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._process.stdout.close()
        with suppress(OSError):
            self._process.stdin.close()
        self._process.kill()
        self._process.poll()


@dataclass(frozen=True)
class Proof:
    """Somebody waits to be told that these GPUs are clean."""

    uuids: tuple[str, ...]
    then: Then
    deadline: float


class NvmlGpus:
    """The GPUs of this host; raises UnknownGpus when NVML does not name them."""

    numa_nodes = 0
    real = True

    def __init__(self, pause_s: float = SAMPLE_S, patience_s: float = PATIENCE_S) -> None:
        self._pause_s = pause_s
        self._patience_s = patience_s
        self._readings = Readings()
        self._trouble: dict[str, str] = {}
        self._hung: set[str] = set()
        """Those a probe hung on: the next ones pass over them, so that the others go on being read."""
        self._least: dict[str, int] = {}
        """The least memory ever seen in use on each GPU that nobody was on: what the driver takes itself."""
        self._proofs: list[Proof] = []
        self._were_held: set[str] = set()
        self._ordered: dict[str, int] = {}
        self._looking: dict[str, int] = {}
        """The looks that were ordered and those under way, by their number."""
        self._resetting = ""
        self._round: dict[str, dict[str, Any]] = {}
        self._probe: Probe | None = Probe(pause_s)
        self._named: set[str] | None = None
        self._heard = time.monotonic()
        self.driver = self.cuda = ""
        self.facts = self._first_answer(self._probe)

    def watch(self, loop: Loop, holders: Holders, tell: Tell, measure: Measure = ignore) -> None:
        """Pass on readings that changed; say so when a GPU or all of NVML is silent, and when it is back."""
        self._loop, self._holders, self._tell, self._measure = loop, holders, tell, measure
        assert self._probe is not None
        loop.read(self._probe.descriptor, self._hear)
        loop.after(self._patience_s, self._check)

    def _first_answer(self, probe: Probe) -> tuple[GpuFacts, ...]:
        try:
            for words in probe.read(self._patience_s):
                if "gpus" in words:
                    self.driver, self.cuda = words["driver"], words["cuda"]
                    facts = tuple(decode(GpuFacts, gpu) for gpu in words["gpus"])
                    self._named = {gpu.uuid for gpu in facts}
                    return facts
        except Silenced as error:
            probe.end()
            raise NoNvml(str(error)) from None
        probe.end()
        raise UnknownGpus(f"NVML has not answered for {self._patience_s:.0f} s; the driver may hang")

    # --- hand-over ---

    def prove(self, uuids: Sequence[str], then: Then) -> None:
        """Asked of the driver now, and again for a while: what the job before left takes a moment to go."""
        proof = Proof(tuple(uuids), then, time.monotonic() + PROVE_S)
        self._proofs.append(proof)
        self._loop.after(PROVE_S + self._patience_s, partial(self._prove_in_vain, proof))
        self._ask()

    def _ask(self) -> None:
        if self._probe is not None:
            self._probe.ask()

    def _prove_in_vain(self, proof: Proof) -> None:
        if proof in self._proofs:
            self._proofs.remove(proof)
            proof.then("the driver does not answer")

    def _judge(self, told: dict[str, dict[str, Any]], processes: tuple[GpuProcess, ...]) -> None:
        """Those who wait for proof, by a reading that was made after they asked."""
        held = loads(self._holders())
        for proof in self._proofs[:]:
            if not told.keys() >= set(proof.uuids):
                continue
            stains = {uuid: self._stain(uuid, told[uuid], processes, held) for uuid in proof.uuids}
            unclean = {uuid: why for uuid, why in stains.items() if why}
            if unclean and time.monotonic() < proof.deadline:
                self._loop.after(_AGAIN_S, self._ask)
                continue
            self._proofs.remove(proof)
            for uuid, why in unclean.items():
                self._say(uuid, TroubleKind.UNCLEAN, why)
            proof.then(next(iter(unclean.values()), ""))

    def _stain(
        self, uuid: str, words: dict[str, Any], processes: tuple[GpuProcess, ...], held: dict[str, int]
    ) -> str:
        """Who is on it past the queue, or what is left in its memory; nothing if it is clean."""
        gpu = next(gpu for gpu in self.facts if gpu.uuid == uuid)
        index = gpu.index
        if "error" in words:
            return f"GPU {index}: {words['error']}"
        there = [each for each in processes if each.uuid == uuid]
        for each in there:
            if each.job is None:
                return f"GPU {index} is held by pid {each.pid} ({each.user}: {each.command})"
        used = int(words["sample"]["memory_used_mib"])
        if there or uuid in held:
            return ""
        # Where an agent has never seen the GPU empty, the driver is taken to need a fiftieth of it.
        least = self._least.get(uuid, max(1_024, gpu.memory_mib // 50))
        self._least[uuid] = least = min(used, least)
        left = used - least
        return f"GPU {index} has {left} MiB in use by nobody to be seen" if left > LEFT_MIB else ""

    # --- looks ---

    def check(self, uuid: str, after_s: float) -> None:
        """Look at it when the time has come; what is asked again is asked anew."""
        number = self._ordered[uuid] = self._ordered.get(uuid, 0) + 1
        self._loop.after(after_s, partial(self._look, uuid, number))

    def _look(self, uuid: str, number: int) -> None:
        """Ask the driver at once; one that hung before gets another chance in a new probe."""
        if self._ordered.get(uuid) != number:
            return
        if self._resetting:
            self._loop.after(_AGAIN_S, partial(self._look, uuid, number))
            return
        found = next((gpu for gpu in self.facts if gpu.uuid == uuid), None)
        if found is None:
            self._tell(GpuChecked(uuid, False, NOT_THERE))
            return
        self._looking[uuid] = number
        self._loop.after(2 * self._patience_s, partial(self._look_in_vain, uuid, number))
        if self._probe is None or uuid in self._hung:
            self._hung -= {gpu.uuid for gpu in self.facts if gpu.pci_bus == found.pci_bus}
            self._end()
            self._begin()
        else:
            self._probe.ask()

    def _look_in_vain(self, uuid: str, number: int) -> None:
        if self._looking.get(uuid) == number:
            self._seen(uuid, self._trouble.get(uuid) or "NVML does not answer")

    def _seen(self, uuid: str, trouble: str) -> None:
        if self._looking.pop(uuid, None) is not None:
            self._trouble[uuid] = trouble
            self._tell(GpuChecked(uuid, not trouble, trouble))

    # --- resets ---

    def reset(self, uuid: str, command: Sequence[str], after_s: float) -> None:
        """When its time has come, unless a look was ordered meanwhile."""
        number = self._ordered[uuid] = self._ordered.get(uuid, 0) + 1
        self._loop.after(after_s, partial(self._reset, uuid, number, tuple(command)))

    def _reset(self, uuid: str, number: int, command: tuple[str, ...]) -> None:
        if self._ordered.get(uuid) != number:
            return
        if all(gpu.uuid != uuid for gpu in self.facts):
            self._tell(GpuReset(uuid, False, NOT_THERE))
        elif uuid in loads(self._holders()):
            self._tell(GpuReset(uuid, False, "a job is on it"))
        elif self._resetting:  # one after the other: each needs the driver for itself
            self._loop.after(_AGAIN_S, partial(self._reset, uuid, number, command))
        else:
            self._resetting = uuid
            self._end()  # who reads a GPU keeps it from being reset
            Reset(self._loop, [*command, uuid], partial(self._was_reset, uuid))

    def _was_reset(self, uuid: str, why: str) -> None:
        self._resetting = ""
        self._hung.discard(uuid)
        self._trouble.pop(uuid, None)
        self._begin()
        self._tell(GpuReset(uuid, not why, why))

    # --- the probe's life ---

    def _check(self) -> None:
        """Every so often: is the probe there, and does it speak?"""
        silent = time.monotonic() - self._heard
        if self._resetting:
            pass
        elif self._probe is None:
            self._begin()
        elif silent >= self._patience_s:
            self._blame(f"NVML has not answered for {silent:.0f} s")
            self._end()
            self._begin()
        self._loop.after(self._patience_s, self._check)

    def _begin(self) -> None:
        self._probe, self._heard = Probe(self._pause_s, True, self._hung), time.monotonic()
        self._named, self._round = None, {}
        self._loop.read(self._probe.descriptor, self._hear)

    def _end(self) -> None:
        if self._probe is not None:
            self._loop.read(self._probe.descriptor, None)
            self._probe.end()
            self._probe = None

    def _blame(self, why: str) -> None:
        """It hangs on the first GPU that it has not told of in this round; before any are named, on NVML."""
        asked = [gpu.uuid for gpu in self.facts if self._named is not None and gpu.uuid in self._named]
        culprit = next((uuid for uuid in asked if uuid not in self._round), None)
        if culprit is None:
            self._hung.clear()
            self._say_all(why)
        else:
            bus = next(gpu.pci_bus for gpu in self.facts if gpu.uuid == culprit)
            for gpu in self.facts:
                if gpu.pci_bus == bus:  # MIG instances of a GPU hang together
                    self._hung.add(gpu.uuid)
                    self._say(gpu.uuid, TroubleKind.SILENT, why)

    # --- what it says ---

    def _hear(self) -> None:
        assert self._probe is not None
        try:
            for words in self._probe.read():
                self._heard = time.monotonic()
                self._take(words)
        except Silenced as error:
            self._end()
            self._say_all(str(error))

    def _take(self, words: dict[str, Any]) -> None:
        if "named" in words:
            self._named = set(words["named"])
            for gpu in self.facts:
                if gpu.uuid not in self._named and gpu.uuid not in self._hung:
                    self._say(gpu.uuid, TroubleKind.LOST, "NVML does not name it any more")
        elif "done" in words:
            told, self._round = self._round, {}
            self._finish(told)
        elif "xid" in words:
            for gpu in self.facts:
                if gpu.pci_bus == words["pci_bus"]:
                    self._tell(GpuTrouble(gpu.uuid, TroubleKind.XID, xid=words["xid"]))
        else:
            self._round[words["uuid"]] = words

    def _finish(self, told: dict[str, dict[str, Any]]) -> None:
        """All GPUs of a round are there."""
        processes = self._processes(told)
        held = loads(self._holders())
        for uuid, words in told.items():
            # Left-over memory is only held against a GPU when somebody asks for proof: it may be about to go.
            stain = "" if uuid in held else self._stain(uuid, words, processes, held)
            stranger = stain if any(each.uuid == uuid and each.job is None for each in processes) else ""
            kind = TroubleKind.LOST if "error" in words else TroubleKind.UNCLEAN
            self._say(uuid, kind, words.get("error", "") or stranger)
            self._seen(uuid, words.get("error", "") or stain)
        for uuid in self._were_held - held.keys():
            self.prove((uuid,), lambda _why: None)  # what a job leaves behind is told as trouble by itself
        self._were_held = set(held)
        self._judge(told, processes)
        samples = [decode(GpuSample, words["sample"]) for words in told.values() if "sample" in words]
        self._measure(samples)
        news = self._readings.changed(samples)
        if news:
            self._tell(GpuReport(news))
        if self._readings.others(processes):
            self._tell(GpuProcesses(processes))

    def _processes(self, told: dict[str, dict[str, Any]]) -> tuple[GpuProcess, ...]:
        holders = self._holders()
        found = []
        for uuid, words in told.items():
            for pid, memory_mib in words.get("processes", ()):
                owner = owner_of(pid, holders)
                job = owner.holder.job if owner.holder else None
                found.append(GpuProcess(uuid, pid, owner.user, owner.command, memory_mib, job))
        return tuple(found)

    def _say_all(self, trouble: str) -> None:
        for gpu in self.facts:
            self._say(gpu.uuid, TroubleKind.SILENT, trouble)

    def _say(self, uuid: str, kind: TroubleKind, trouble: str) -> None:
        """Trouble is told once. That it is over is found by the looks that the controller orders."""
        if trouble != self._trouble.get(uuid, ""):
            self._trouble[uuid] = trouble
            if trouble:
                self._tell(GpuTrouble(uuid, kind, trouble))
        if trouble:
            self._seen(uuid, trouble)
