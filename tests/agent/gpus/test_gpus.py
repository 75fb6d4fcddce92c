"""GPUs: simulated ones, and real NVML through a library compiled for the test."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.controller_channel import AgentExit
from agent.event_loop import EventLoop
from agent.gpus import nvml_probe
from agent.gpus.interface import NO_SUCH_GPU, GpusUnknown, ReportedReadings
from agent.gpus.late_driver import LateDriverGpus
from agent.gpus.nvml_gpus import NvmlGpus, NvmlMissing
from agent.gpus.process_owners import GpuHolder, ListHolders, simulated_load
from agent.gpus.reset import ResetCommand
from agent.gpus.simulated import SimulatedGpus
from agent.processes.process_marks import mark_code
from tests.agent.agent_process import PATIENCE_S, AgentProcess, eventually
from tests.agent.fake_nvml import FakeNvml, uuid
from wire import gpudescription
from wire.agent.frames import AgentFrame
from wire.agent.orders import CheckGpu, GpuHold, ResetGpu
from wire.agent.reports import (
    GpuChecked,
    GpuProcess,
    GpuProcesses,
    GpuReport,
    GpuReset,
    GpuSample,
    GpuTrouble,
)
from wire.names import TroubleKind

# --- simulated ---


def simulated_gpus(node: str, groups: str) -> SimulatedGpus:
    return SimulatedGpus(node, gpudescription.parse_simulated(f"simulated:{groups}"))


def test_simulated_gpus_of_a_node_are_always_the_same() -> None:
    first, again, other = (simulated_gpus(name, "8xH100").facts for name in ("a", "a", "b"))
    assert first == again
    assert not {gpu.uuid for gpu in first} & {gpu.uuid for gpu in other}


def test_simulated_gpu_mix_has_sockets_and_islands() -> None:
    facts = simulated_gpus("a", "8xH100,4xA100-40G,2xL40S").facts
    assert [gpu.index for gpu in facts] == [*range(14)]
    assert len({gpu.uuid for gpu in facts}) == len({gpu.pci_bus for gpu in facts}) == 14
    assert [gpu.numa for gpu in facts] == [0] * 4 + [1] * 4 + [0, 0, 1, 1] + [0, 1]
    assert facts[0].links == (1, 2, 3, 4, 5, 6, 7)
    assert facts[9].links == (8, 10, 11)
    assert facts[12].links == ()
    assert {gpu.memory_mib for gpu in facts} == {81_559, 40_960, 46_068}


def test_mig_gpu_is_split_into_devices() -> None:
    facts = simulated_gpus("a", "2xA100-40G:3g.20gb/1g.5gb*4,1xA100-40G").facts
    assert [gpu.index for gpu in facts] == [*range(11)]
    numbers = [*(f"{gpu}:{part}" for gpu in range(2) for part in range(5)), "2"]
    assert [gpu.number for gpu in facts] == numbers
    assert [gpu.mig for gpu in facts] == ["3g.20gb", *["1g.5gb"] * 4] * 2 + [""]
    assert [gpu.memory_mib for gpu in facts[:2]] == [20_480, 5_120]
    assert [gpu.numa for gpu in facts] == [0] * 5 + [1] * 5 + [0]
    assert len({gpu.uuid for gpu in facts}) == 11
    assert all(gpu.uuid.startswith("MIG-") and not gpu.links for gpu in facts[:10])
    assert {gpu.compute for gpu in facts} == {"8.0"}


def test_readings_follow_the_load() -> None:
    gpus = simulated_gpus("a", "2xH100")
    busy, idle = gpus.facts
    samples = [gpus.sample({busy.uuid: 1000}) for _ in range(20)][-1]
    by_uuid = {each.uuid: each for each in samples}
    assert by_uuid[busy.uuid].utilisation > 75
    assert by_uuid[busy.uuid].power_w > 5 * by_uuid[idle.uuid].power_w
    assert by_uuid[busy.uuid].memory_used_mib > 60_000
    assert by_uuid[busy.uuid].temperature_c > by_uuid[idle.uuid].temperature_c + 20
    assert by_uuid[idle.uuid].utilisation == 0


def test_idle_gpus_have_memory_in_use_and_no_load() -> None:
    gpus = simulated_gpus("a", "1xH100,1xH100:idle")
    samples = gpus.sample({gpu.uuid: 1000 for gpu in gpus.facts})
    assert [each.utilisation > 75 for each in samples] == [True, False]
    assert samples[1].utilisation == 0
    assert samples[1].memory_used_mib > 60_000


@pytest.mark.parametrize(
    ("percent", "load"), [("0", 0.0), ("25", 0.25), ("300", 1.0), ("-1", 0.0), ("many", 1.0), ("nan", 1.0)]
)
def test_a_job_sets_the_load_of_its_simulated_gpus(percent: str, load: float) -> None:
    assert simulated_load({"CORRAL_SIMULATED_LOAD": percent}) == load
    assert simulated_load({}) == 1.0


def test_the_load_of_a_job_is_in_the_readings(run: Callable[..., AgentProcess]) -> None:
    agent = run("--gpus", "simulated:2xH100")
    first, second = (gpu.uuid for gpu in agent.hello().facts.gpus)
    agent.start(1, "sleep", "1000", gpus=(GpuHold(first, 1000),), env={"CORRAL_SIMULATED_LOAD": "0"})
    agent.start(2, "sleep", "1000", gpus=(GpuHold(second, 1000),))

    def readings(said: list[object]) -> bool:
        latest = {s.uuid: s for each in said if isinstance(each, GpuReport) for s in each.samples}
        idle, busy = latest.get(first), latest.get(second)
        return (
            idle is not None
            and busy is not None
            and idle.memory_used_mib > 60_000
            and (idle.utilisation, busy.utilisation > 75) == (0, True)
        )

    agent.until(readings)  # type: ignore[arg-type]


def test_only_changed_readings_are_reported() -> None:
    readings = ReportedReadings()
    assert readings.changed([GpuSample("a", 50), GpuSample("b", 0)])
    assert readings.changed([GpuSample("a", 53), GpuSample("b", 0)]) == ()
    assert readings.changed([GpuSample("a", 55), GpuSample("b", 0)]) == (GpuSample("a", 55),)
    assert readings.changed([GpuSample("c", 3)])
    assert readings.changed([GpuSample("c", 6)]), "because it is no longer idle"


def test_an_attempt_sees_its_gpus_and_loads_them(run: Callable[..., AgentProcess]) -> None:
    agent = run("--gpus", "simulated:2xA100")
    mine, other = (gpu.uuid for gpu in agent.hello().facts.gpus)
    agent.start(
        1, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $CORRAL_GPUS; sleep 1000", gpus=(GpuHold(mine, 500),)
    )
    agent.start(2, "sh", "-c", "echo ${CUDA_VISIBLE_DEVICES-unset}.")
    agent.ended(2)
    assert agent.log(2) == b".\n"
    eventually(lambda: agent.log(1) == f"{mine} 1\n".encode())

    def busy(said: list[object]) -> bool:
        samples = [each for frame in said if isinstance(frame, GpuReport) for each in frame.samples]
        return any(each.uuid == mine and each.utilisation > 30 for each in samples)

    agent.until(busy)
    assert not any(
        each.uuid == other and each.utilisation
        for frame in agent.received
        if isinstance(frame, GpuReport)
        for each in frame.samples
    )


# --- NVML ---


@pytest.fixture
def fake_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A fake NVML library with two GPUs."""
    made = FakeNvml(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


HANGS_S = 1.0
"""For tests of a driver that hangs. A busy machine needs longer than this for an answer at times."""


class Watching:
    """An agent's GPUs, and the frames that it sends about them."""

    def __init__(self, holders: ListHolders = list, patience_s: float = 20.0) -> None:
        self.gpus = NvmlGpus(pause_s=0.02, patience_s=patience_s)
        self.loop, self.sent_frames = EventLoop(), list[AgentFrame]()
        self.gpus.watch(self.loop, holders, self.sent_frames.append)

    def until(self, wanted: Callable[[AgentFrame], bool]) -> AgentFrame:
        """Wait for the first frame that meets the condition."""
        seen, deadline = len(self.sent_frames), time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for frame in self.sent_frames[seen:]:
                if wanted(frame):
                    return frame
            self.loop.run_once()
        raise AssertionError(f"no such frame arrived; received {self.sent_frames}")

    def sample(self, index: int, **wanted: object) -> GpuSample:
        """The next reading of a GPU that has these values."""

        def fits(frame: AgentFrame) -> bool:
            return isinstance(frame, GpuReport) and any(map(right, frame.samples))

        def right(sample: GpuSample) -> bool:
            return sample.uuid == uuid(index) and all(getattr(sample, k) == v for k, v in wanted.items())

        frame = self.until(fits)
        assert isinstance(frame, GpuReport)
        return next(filter(right, frame.samples))

    def trouble(self, index: int, kind: TroubleKind, words: str = "") -> GpuTrouble:
        """The next trouble of this kind that is reported for a GPU."""
        frame = self.until(
            lambda frame: (
                isinstance(frame, GpuTrouble)
                and (frame.uuid, frame.kind) == (uuid(index), kind)
                and words in frame.why
            )
        )
        assert isinstance(frame, GpuTrouble)
        return frame

    def check(self, index: int) -> GpuChecked:
        """The result of a GPU check."""
        self.gpus.schedule_check(uuid(index), 0.0)
        frame = self.until(lambda frame: isinstance(frame, GpuChecked) and frame.uuid == uuid(index))
        assert isinstance(frame, GpuChecked)
        return frame

    def blamed(self) -> set[str]:
        """Every GPU with a reported trouble."""
        return {frame.uuid for frame in self.sent_frames if isinstance(frame, GpuTrouble)}


def test_nvml_gpus_have_names(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_answers(driver="555.42.02", cuda=12050, gpus=3)
    fake_nvml.set_answers(1, power_limit_w=400)
    gpus = NvmlGpus()
    first, second, third = gpus.facts
    assert (first.index, first.uuid, first.model) == (0, uuid(0), "Test GPU")
    assert (first.memory_mib, first.pci_bus) == (16 * 1024, "00000000:3B:00.0")
    assert (first.links, second.links, third.links) == ((1,), (0,), ())
    assert (second.power_limit_w, second.compute, second.mig) == (400, "9.0", "")
    assert (gpus.driver, gpus.cuda) == ("555.42.02", "12.5")


def test_mig_instances_replace_their_gpu(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_answers(1, mig=2, power_w=321)
    watching = Watching()
    whole, first, second = watching.gpus.facts
    assert [gpu.index for gpu in (whole, first, second)] == [0, 1, 2]
    assert [gpu.number for gpu in (whole, first, second)] == ["0", "1:0", "1:1"]
    assert (first.mig, first.memory_mib, first.pci_bus) == ("1g.10gb", 10_240, second.pci_bus)
    assert (whole.links, first.links, first.uuid[:4]) == ((), (), "MIG-")
    frame = watching.until(lambda frame: isinstance(frame, GpuReport))
    assert isinstance(frame, GpuReport)
    assert [(each.uuid, each.power_w) for each in frame.samples][1:] == [
        (first.uuid, 321),
        (second.uuid, 321),
    ]


def test_all_nvml_readings_are_reported(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_answers(
        0, busy=88, used_mib=9000, power_w=612, celsius=71, mhz=1980, memory_mhz=2619, throttle=0x24
    )
    fake_nvml.set_answers(0, corrected=3, uncorrected=1, remapped=2, links=18, links_down=1)
    watching = Watching()
    assert watching.sample(0) == GpuSample(
        uuid(0), 88, 9000, 612, 71, 1980, 2619, ("power cap", "too hot"), 3, 1, 2, 17, 18
    )
    fake_nvml.set_answers(0, corrected=4)
    watching.sample(0, ecc_corrected=4)
    fake_nvml.set_answers(0, ecc=0, celsius=None, throttle=1)
    watching.sample(0, ecc_corrected=0, temperature_c=0, throttle=())
    assert watching.blamed() == set(), "what a GPU cannot answer is no illness"


def test_invalid_nvml_readings_are_omitted(fake_nvml: FakeNvml) -> None:
    """Some drivers set all bits of a reading that they do not know."""
    fake_nvml.set_answers(0, corrected=-1, uncorrected=-1, celsius=-40, busy=12)
    sample = Watching().sample(0, utilisation=12)
    assert (sample.ecc_corrected, sample.ecc_uncorrected, sample.temperature_c) == (0, 0, 0)


def test_one_gpu_is_lost_and_returns_while_another_is_read(fake_nvml: FakeNvml) -> None:
    watching = Watching()
    watching.sample(0)
    fake_nvml.set_answers(1, lost=1)
    watching.trouble(1, TroubleKind.LOST, "GPU is lost")
    fake_nvml.set_answers(0, busy=77)
    watching.sample(0, utilisation=77)
    assert watching.check(1) == GpuChecked(uuid(1), False, "GPU is lost")
    fake_nvml.set_answers(1, lost=0)
    assert watching.check(1).ok
    assert watching.blamed() == {uuid(1)}


def test_driver_that_hangs_on_one_gpu_is_reported_for_that_gpu(fake_nvml: FakeNvml) -> None:
    watching = Watching(patience_s=HANGS_S)
    watching.sample(1)
    fake_nvml.set_answers(1, hang=1)
    watching.trouble(1, TroubleKind.SILENT, "does not answer")
    fake_nvml.set_answers(0, busy=66)
    watching.sample(0, utilisation=66)
    assert not watching.check(1).ok, "the look hangs like everything else, and the agent does not"
    fake_nvml.set_answers(0, busy=88)
    watching.sample(0, utilisation=88)
    fake_nvml.set_answers(1, hang=0)
    assert watching.check(1).ok
    assert watching.blamed() == {uuid(1)}


def test_driver_that_hangs_on_all_gpus_is_reported_for_all(fake_nvml: FakeNvml) -> None:
    watching = Watching(patience_s=HANGS_S)
    watching.sample(0)
    fake_nvml.set_answers(hang=1)
    watching.trouble(1, TroubleKind.SILENT, "does not answer")
    assert watching.blamed() == {uuid(0), uuid(1)}
    fake_nvml.set_answers(hang=0)
    assert watching.check(1).ok
    assert watching.check(0).ok


@pytest.mark.parametrize("what", ["one GPU", "the driver"])
def test_hung_driver_is_detected_within_ten_seconds(fake_nvml: FakeNvml, what: str) -> None:
    began = NvmlGpus.__init__.__defaults__
    assert began is not None
    pause_s, _, hang_s = began
    # one pause between readings, then silence, then the same time for a second probe, each noticed within 1 s
    assert pause_s + 2 * (hang_s + min(1.0, hang_s / 4)) <= 10.0
    watching = Watching(patience_s=HANGS_S)
    watching.sample(0)
    fake_nvml.set_answers(**({"hang": 1} if what == "the driver" else {}))
    if what == "one GPU":
        fake_nvml.set_answers(1, hang=1)
    watching.trouble(1, TroubleKind.SILENT)
    assert watching.blamed() == ({uuid(1)} if what == "one GPU" else {uuid(0), uuid(1)})


def test_pending_row_remap_is_read(fake_nvml: FakeNvml) -> None:
    watching = Watching()
    watching.sample(0, remap_pending=False)
    fake_nvml.set_answers(0, remap_pending=1)
    watching.sample(0, remap_pending=True)


def test_change_of_mig_instances_restarts_the_agent(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = Watching()
    watching.sample(0)
    fake_nvml.set_answers(1, mig=2)
    with pytest.raises(AgentExit):
        watching.until(lambda _: False)


def test_lost_nvlinks_restart_the_agent(fake_nvml: FakeNvml) -> None:
    watching = Watching()
    watching.sample(0)
    fake_nvml.set_answers(0, links_down=1)
    with pytest.raises(AgentExit):
        watching.until(lambda _: False)


def test_xid_is_reported_for_its_gpu(fake_nvml: FakeNvml) -> None:
    watching = Watching()
    watching.sample(0)
    deadline = time.monotonic() + PATIENCE_S
    while not watching.blamed():  # on a busy machine the probe begins to listen after its first reading
        assert time.monotonic() < deadline
        fake_nvml.xid(1, 79)
        for _ in range(20):
            watching.loop.run_once()
    assert watching.blamed() == {uuid(1)}
    fake_nvml.xid(0, 13)
    assert watching.trouble(0, TroubleKind.XID).xid == 13
    again = Watching()
    again.sample(0)
    assert again.blamed() == set(), "what was told before is not told to those who come later"


def test_gpus_of_a_host_without_nvml_events_are_read(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_answers(deaf=1)
    fake_nvml.set_answers(0, busy=12)
    assert Watching().sample(0).utilisation == 12


def proof(watching: Watching, *indices: int) -> str:
    """The refusal when a job asks for these GPUs; empty if they are free."""
    refusals: list[str] = []
    watching.gpus.wait_until_clean([uuid(index) for index in indices], refusals.append)
    deadline = time.monotonic() + PATIENCE_S
    while not refusals and time.monotonic() < deadline:
        watching.loop.run_once()
    return refusals[0]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for free GPU memory, so that a test need not wait."""
    monkeypatch.setattr("agent.gpus.nvml_gpus.CLEAN_TIMEOUT_S", 0.5)


def test_clean_gpus_are_given_to_a_job(fake_nvml: FakeNvml) -> None:
    assert proof(Watching(), 0, 1) == ""


def test_gpu_with_another_process_is_not_given_to_a_job(fake_nvml: FakeNvml, hasty: None) -> None:
    watching = Watching()
    watching.sample(0)
    fake_nvml.set_answers(1, processes=f"{os.getpid()}:700")
    why = proof(watching, 0, 1)
    assert why.startswith(f"GPU 1 is held by pid {os.getpid()} (")
    assert watching.blamed() == {uuid(1)}
    assert proof(watching, 0) == ""
    assert not watching.check(1).ok
    fake_nvml.set_answers(1, processes=None)
    assert watching.check(1).ok
    assert proof(watching, 1) == ""


def test_memory_freed_late_is_waited_for(
    fake_nvml: FakeNvml, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = Watching()
    watching.sample(0)
    fake_nvml.set_answers(0, used_mib=9_000)
    assert proof(watching, 0) == "GPU 0 has 9000 MiB in use and no process (its driver alone needs 512 MiB)"
    assert watching.blamed() == {uuid(0)}
    fake_nvml.set_answers(0, used_mib=600)
    # because on a busy machine the next reading may be from before the memory was freed
    monkeypatch.setattr("agent.gpus.nvml_gpus.CLEAN_TIMEOUT_S", PATIENCE_S)
    assert proof(watching, 0) == ""


def test_jobs_that_share_a_gpu_do_not_block_each_other(fake_nvml: FakeNvml, hasty: None) -> None:
    mine = subprocess.Popen(["sleep", "1000"])
    try:
        fake_nvml.set_answers(0, processes=f"{mine.pid}:4096", used_mib=5_000)
        other = GpuHolder(7, 1, "ada", "sleep", mine.pid, None, (GpuHold(uuid(0), 500),))
        watching = Watching(lambda: [other])
        assert proof(watching, 0) == ""
        assert watching.blamed() == set()
    finally:
        mine.kill()
        mine.wait()


def test_memory_left_on_a_gpu_after_its_job_is_reported(fake_nvml: FakeNvml, hasty: None) -> None:
    holders = [GpuHolder(7, 1, "ada", "train", os.getpid(), None, (GpuHold(uuid(0), 1000),))]
    watching = Watching(lambda: holders)
    watching.sample(0)
    fake_nvml.set_answers(0, used_mib=7_000, busy=50)
    watching.sample(0, memory_used_mib=7_000)
    holders.clear()
    fake_nvml.set_answers(0, used_mib=7_001, busy=0)
    assert "in use and no process" in watching.trouble(0, TroubleKind.UNCLEAN).why


def test_attempt_does_not_start_on_a_gpu_in_use(
    fake_nvml: FakeNvml, run: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    fake_nvml.set_answers(0, processes=f"{os.getpid()}:700")
    agent = run("--gpus", "nvml")
    mark = tmp_path / "ran"
    agent.start(1, "touch", str(mark), gpus=(GpuHold(uuid(0), 1000),))
    status = agent.ended(1)
    assert status.why.startswith(f"gpu_held: GPU 0 is held by pid {os.getpid()} (")
    assert status.started_at is None
    assert not mark.exists()
    agent.start(2, "true", gpus=(GpuHold(uuid(1), 1000),))
    assert agent.ended(2).code == 0


def test_check_of_a_missing_gpu_fails(run: Callable[..., AgentProcess]) -> None:
    agent = run("--gpus", "none")
    agent.send(CheckGpu("GPU-7"))
    agent.until(lambda said: GpuChecked("GPU-7", False, NO_SUCH_GPU) in said)


def test_simulated_gpu_passes_every_check(run: Callable[..., AgentProcess]) -> None:
    agent = run("--gpus", "simulated:1xH100")
    [gpu] = agent.hello().facts.gpus
    agent.send(CheckGpu(gpu.uuid, 0.01))
    agent.until(lambda said: GpuChecked(gpu.uuid, True) in said)


def test_gpu_processes_are_reported_with_owner_and_job(fake_nvml: FakeNvml) -> None:
    mine = subprocess.Popen(["sleep", "1000"])
    try:
        ours = GpuHolder(7, 1, "ada", "sleep", mine.pid, None, (GpuHold(uuid(0), 1000),))
        fake_nvml.set_answers(0, processes=f"{mine.pid}:4096,{os.getpid()}:512")
        watching = Watching(lambda: [ours])
        frame = watching.until(lambda frame: isinstance(frame, GpuProcesses))
        assert isinstance(frame, GpuProcesses)
        first, second = frame.processes
        me = pwd.getpwuid(os.getuid()).pw_name
        assert first == GpuProcess(uuid(0), mine.pid, me, "sleep 1000", 4096, 7)
        assert (second.pid, second.job, second.memory_mib) == (os.getpid(), None, 512)
        fake_nvml.set_answers(0, processes="")
        watching.until(lambda frame: frame == GpuProcesses(()))
    finally:
        mine.kill()
        mine.wait()


def test_processes_of_dockers_containers_are_known_by_their_mark(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    spool = str(tmp_path)
    marks = {"CORRAL_SPOOL": f"{spool}/attempts/7.1", "CORRAL_MARK": mark_code("key", "7.1", os.getuid())}
    inside = subprocess.Popen(["sleep", "1000"], env={**os.environ, **marks})
    try:
        ours = GpuHolder(7, 1, "ada", "sleep", 1, None, (GpuHold(uuid(0), 500),), spool, "key")
        for gpu in (0, 1):
            fake_nvml.set_answers(gpu, processes=f"{inside.pid}:4096")
        watching = Watching(lambda: [ours])
        frame = watching.until(lambda frame: isinstance(frame, GpuProcesses))
        assert isinstance(frame, GpuProcesses)
        assert {each.uuid: each.job for each in frame.processes} == {uuid(0): 7, uuid(1): None}
        assert proof(watching, 0) == "", "another job may share the GPU"
    finally:
        inside.kill()
        inside.wait()


def children() -> set[str]:
    """Child processes that are alive, without zombies."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {pid for pid in listed if ") Z " not in Path(f"/proc/{pid}/stat").read_text()}


def test_driver_that_hangs_at_the_start_is_reported(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_answers(hang=1)
    before = children()
    with pytest.raises(GpusUnknown, match="NVML has not answered"):
        NvmlGpus(patience_s=0.5)
    deadline = time.monotonic() + PATIENCE_S
    while children() - before:
        assert time.monotonic() < deadline, "the probe lives on"
        time.sleep(0.01)


def test_host_without_nvml_is_distinguished_from_a_hung_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this host has GPUs")
    with pytest.raises(NvmlMissing):
        NvmlGpus()


def turn_for(loop: EventLoop, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        loop.run_once()


def test_driver_loaded_after_the_agent_started_is_found(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_answers(unloaded=1)
    with pytest.raises(NvmlMissing, match="Driver Not Loaded"):
        NvmlGpus()
    gpus, loop = LateDriverGpus(interval_s=0.01, timeout_s=0.2), EventLoop()
    assert gpus.facts == ()
    before = children()
    gpus.watch(loop, list, [].append)
    while not children() - before:
        loop.run_once()
    fake_nvml.set_answers(unloaded=None)
    with pytest.raises(AgentExit):
        turn_for(loop, PATIENCE_S)


def test_numa_node_of_a_gpu_is_read_from_sysfs(tmp_path: Path) -> None:
    device = tmp_path / "bus" / "pci" / "devices" / "0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    assert nvml_probe._numa("00000000:3B:00.0", tmp_path) == 1
    (device / "numa_node").write_text("-1\n")
    assert nvml_probe._numa("00000000:3B:00.0", tmp_path) == 0
    assert nvml_probe._numa("00000000:AF:00.0", tmp_path) == 0


# --- resets ---

RESET = """#!/bin/sh
# The driver refuses to reset a GPU that somebody reads.
for child in $(cat /proc/$PPID/task/$PPID/children); do
    grep -q agent.gpus.nvml_probe /proc/$child/cmdline && echo "in use by process $child" && exit 2
done
echo "$@" >> {log}
{more}
"""


def resetter(place: Path, more: str = "") -> tuple[tuple[str, ...], Path]:
    """A reset program, and the file in which it logs its arguments."""
    script, log = place / "reset", place / "resets"
    script.write_text(RESET.format(log=log, more=more))
    script.chmod(0o755)
    return (str(script), "-i"), log


def was_reset(agent: AgentProcess) -> GpuReset:
    """Wait for the answer."""
    return agent.until(lambda said: next((each for each in said if isinstance(each, GpuReset)), None))


@pytest.fixture
def rigged(run: Callable[..., AgentProcess], fake_nvml: FakeNvml) -> AgentProcess:
    """An agent with the fake_nvml's GPUs."""
    assert fake_nvml.file.exists()
    return run("--gpus", "nvml")


def test_readings_pause_during_a_gpu_reset(rigged: AgentProcess, tmp_path: Path) -> None:
    command, log = resetter(tmp_path)
    rigged.send(ResetGpu(uuid(1), command))
    assert was_reset(rigged) == GpuReset(uuid(1), True)
    assert log.read_text() == f"-i {uuid(1)}\n"
    rigged.send(CheckGpu(uuid(1)))
    rigged.until(lambda said: GpuChecked(uuid(1), True) in said)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("echo 'Insufficient permissions'; exit 3", "Insufficient permissions (exit code 3)"),
        ("exit 1", "exit code 1"),
    ],
)
def test_failed_reset_reports_its_cause(rigged: AgentProcess, tmp_path: Path, more: str, why: str) -> None:
    command, _ = resetter(tmp_path, more)
    rigged.send(ResetGpu(uuid(0), command))
    assert was_reset(rigged) == GpuReset(uuid(0), False, why)


def test_missing_reset_program_is_reported(rigged: AgentProcess) -> None:
    rigged.send(ResetGpu(uuid(0), ("/no/such/program",)))
    assert was_reset(rigged) == GpuReset(uuid(0), False, "/no/such/program: No such file or directory")


def test_gpu_with_a_job_is_not_reset(rigged: AgentProcess, tmp_path: Path) -> None:
    rigged.start(1, "sleep", "1000", gpus=(GpuHold(uuid(0), 1_000),))
    rigged.started(1)
    command, log = resetter(tmp_path)
    rigged.send(ResetGpu(uuid(0), command))
    assert was_reset(rigged) == GpuReset(uuid(0), False, "a job is on it")
    assert not log.exists()


def test_check_cancels_a_pending_reset(rigged: AgentProcess, tmp_path: Path) -> None:
    command, log = resetter(tmp_path)
    rigged.send(ResetGpu(uuid(0), command, after_s=0.2), CheckGpu(uuid(0)))
    rigged.send(ResetGpu(uuid(1), command, after_s=0.5))
    assert was_reset(rigged) == GpuReset(uuid(1), True)
    assert log.read_text() == f"-i {uuid(1)}\n"


def test_hanging_reset_is_stopped() -> None:
    loop, errors = EventLoop(), []
    ResetCommand(loop, ("sleep", "1000"), errors.append, timeout_s=0.1)
    while not errors:
        loop.run_once()
    assert errors == ["it took longer than 0.1 s"]
