"""GPUs: made up ones that can be believed, and real NVML through a library compiled for the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent import probe
from agent.gpus import Readings, UnknownGpus
from agent.loop import Loop
from agent.nvml import NoNvml, NvmlGpus
from agent.simulated import SimulatedGpus
from tests.agent.driving import PATIENCE_S, Driven, eventually
from wire.frames import AgentFrame, GpuHealthChanged, GpuHold, GpuReport, GpuSample
from wire.words import GpuHealth

# --- simulated ---


def test_the_same_node_has_the_same_gpus() -> None:
    first, again, other = (SimulatedGpus(name, "8xH100").facts for name in ("a", "a", "b"))
    assert first == again
    assert not {gpu.uuid for gpu in first} & {gpu.uuid for gpu in other}


def test_a_mix_has_sockets_and_islands() -> None:
    facts = SimulatedGpus("a", "8xH100,4xA100-40G,2xL40S").facts
    assert [gpu.index for gpu in facts] == [*range(14)]
    assert len({gpu.uuid for gpu in facts}) == len({gpu.pci_bus for gpu in facts}) == 14
    assert [gpu.numa for gpu in facts] == [0] * 4 + [1] * 4 + [0, 0, 1, 1] + [0, 1]
    assert facts[0].links == (1, 2, 3, 4, 5, 6, 7)
    assert facts[9].links == (8, 10, 11)
    assert facts[12].links == ()
    assert {gpu.memory_mib for gpu in facts} == {81_559, 40_960, 46_068}


@pytest.mark.parametrize("text", ["", "8", "xH100", "0xH100", "8xH10", "8xH100,", "8 x H100"])
def test_what_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(UnknownGpus, match="write 8xH100"):
        SimulatedGpus("a", text)


def test_a_divided_gpu_is_so_many_devices_of_their_own() -> None:
    facts = SimulatedGpus("a", "2xA100-40G:3g.20gb/1g.5gb*4,1xA100-40G").facts
    assert [gpu.index for gpu in facts] == [*range(11)]
    assert [gpu.mig for gpu in facts] == ["3g.20gb", *["1g.5gb"] * 4] * 2 + [""]
    assert [gpu.memory_mib for gpu in facts[:2]] == [20_480, 5_120]
    assert [gpu.numa for gpu in facts] == [0] * 5 + [1] * 5 + [0]
    assert len({gpu.uuid for gpu in facts}) == 11
    assert all(gpu.uuid.startswith("MIG-") and not gpu.links for gpu in facts[:10])
    assert {gpu.compute for gpu in facts} == {"8.0"}


@pytest.mark.parametrize(
    ("text", "said"),
    [("1xA100:8g.5gb", "not a MIG profile"), ("1xA100:1g.5gb*8", "more than the seven slices")],
)
def test_how_a_gpu_cannot_be_divided_is_said(text: str, said: str) -> None:
    with pytest.raises(UnknownGpus, match=said):
        SimulatedGpus("a", text)


def test_readings_follow_the_load() -> None:
    gpus = SimulatedGpus("a", "2xH100")
    busy, idle = gpus.facts
    samples = [gpus.sample({busy.uuid: 1000}) for _ in range(20)][-1]
    told = {each.uuid: each for each in samples}
    assert told[busy.uuid].utilisation > 75
    assert told[busy.uuid].power_w > 5 * told[idle.uuid].power_w
    assert told[busy.uuid].memory_used_mib > 60_000
    assert told[busy.uuid].temperature_c > told[idle.uuid].temperature_c + 20
    assert told[idle.uuid].utilisation == 0


def test_only_what_changed_is_told() -> None:
    readings = Readings()
    assert readings.changed([GpuSample("a", 50), GpuSample("b", 0)])
    assert readings.changed([GpuSample("a", 53), GpuSample("b", 0)]) == ()
    assert readings.changed([GpuSample("a", 55), GpuSample("b", 0)]) == (GpuSample("a", 55),)


def test_an_attempt_sees_its_gpus_and_loads_them(run: Callable[..., Driven]) -> None:
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
        for frame in agent.said
        if isinstance(frame, GpuReport)
        for each in frame.samples
    )


# --- NVML ---


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a libnvidia-ml.so.1 that does as it is told."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).parent / "nvml.c"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(source)], check=True
    )
    return folder


@pytest.fixture
def word(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the library reads what to say."""
    file = tmp_path / "word"
    file.write_text("0")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("CORRAL_TEST_NVML", str(file))
    return file


def test_nvml_names_the_gpus(word: Path) -> None:
    first, second = NvmlGpus().facts
    assert (first.index, first.uuid, first.model) == (
        0,
        "GPU-00000000-0000-0000-0000-000000000000",
        "Test GPU",
    )
    assert (first.memory_mib, first.pci_bus) == (16 * 1024, "00000000:3B:00.0")
    assert (first.links, second.links) == ((1,), (0,))


def test_nvml_readings_trouble_and_recovery(word: Path) -> None:
    gpus = NvmlGpus(pause_s=0.02, patience_s=0.5)
    loop, told = Loop(), list[AgentFrame]()
    gpus.watch(loop, dict, told.append)
    uuid = gpus.facts[0].uuid

    def until(wanted: Callable[[AgentFrame], bool]) -> None:
        loop.after(PATIENCE_S, lambda: pytest.fail(f"waited in vain; heard {told}"))
        seen = len(told)
        while not any(map(wanted, told[seen:])):
            loop.turn()

    def reads(percent: int) -> Callable[[AgentFrame], bool]:
        wanted = GpuSample(uuid, percent, 1024, 123, 0)
        return lambda frame: isinstance(frame, GpuReport) and wanted in frame.samples

    until(reads(0))
    replace(word, "88")
    until(reads(88))
    replace(word, "hang")
    until(lambda frame: isinstance(frame, GpuHealthChanged) and "has not answered" in frame.why)
    replace(word, "40")
    until(lambda frame: frame == GpuHealthChanged(uuid, GpuHealth.OK))
    replace(word, "lost")
    until(lambda frame: frame == GpuHealthChanged(uuid, GpuHealth.SUSPECT, "GPU is lost"))
    replace(word, "10")
    until(reads(10))


def children() -> set[str]:
    """Processes that this one has started and that live, zombies left out."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {pid for pid in listed if ") Z " not in Path(f"/proc/{pid}/stat").read_text()}


def test_a_driver_that_hangs_at_once_is_said(word: Path) -> None:
    replace(word, "hang")
    before = children()
    with pytest.raises(UnknownGpus, match="NVML has not answered"):
        NvmlGpus(patience_s=0.5)
    deadline = time.monotonic() + 10
    while children() - before:
        assert time.monotonic() < deadline, "the probe lives on"
        time.sleep(0.01)


def test_a_host_without_nvml_is_told_from_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this host has GPUs")
    with pytest.raises(NoNvml):
        NvmlGpus()


def test_the_socket_of_a_gpu_is_read_from_sys(tmp_path: Path) -> None:
    device = tmp_path / "bus" / "pci" / "devices" / "0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    assert probe._numa("00000000:3B:00.0", tmp_path) == 1
    (device / "numa_node").write_text("-1\n")
    assert probe._numa("00000000:3B:00.0", tmp_path) == 0
    assert probe._numa("00000000:AF:00.0", tmp_path) == 0


def replace(file: Path, text: str) -> None:
    """Change what a reader sees in one step."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, file)
