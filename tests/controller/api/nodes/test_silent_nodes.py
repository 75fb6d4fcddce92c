"""The tables of queue, nodes and GPUs for a silent node and for a cordoned GPU."""

from __future__ import annotations

from cli.output.table_columns import gpu_table, node_table, nodes_or_reason
from controller.api.handlers.service.events import name_gpu
from controller.api.views.event_sentences import sentence
from controller.api.views.resources import job_view, node_view
from controller.core.model.inputs import agent_inputs
from tests.engine_harness import EngineHarness, spec
from wire.agent.reports import GpuSample
from wire.api.nodes import NodeView
from wire.names import GpuHealth


def shown(harness: EngineHarness, name: str) -> NodeView:
    node = harness.state.nodes.by_name[name]
    readings = {gpu.uuid: GpuSample(gpu.uuid, 50, 1_000, 300, 60) for gpu in node.facts.gpus}
    return node_view(harness.state, node, readings)


def cell(row: object, table: object, title: str) -> str:
    [column] = [each for each in table.columns if each.title == title]  # type: ignore[attr-defined]
    text: str = column.text(row)
    return text


def test_silent_node_shows_no_readings_and_its_jobs_say_so() -> None:
    harness = EngineHarness()
    harness.join("h1")
    harness.join("h2")
    job = harness.submit(spec(16, nodes=2))
    harness.tick()
    harness.start(job)
    before = shown(harness, "h2").gpus[0]
    assert [cell(before, gpu_table(), title) for title in ("HEALTH", "TEMP", "FREE")] == ["ok", "60°C", "0"]
    harness.tell(agent_inputs.LinkWentDown("h2", "cable"))
    away = shown(harness, "h2").gpus[0]
    titles = ("HEALTH", "FREE", "BUSY", "MEMORY", "POWER", "TEMP", "CLOCK")
    assert [cell(away, gpu_table(), title) for title in titles] == [
        "unknown", "-", "-", "-/80G", "-", "-", "-",
    ]  # fmt: skip
    view = job_view(harness.engine, harness.job(job))
    assert (view.silent, nodes_or_reason(view)) == (("h2",), "h1,h2 (silent)")


def test_cordoned_gpu_does_not_count_as_in_use() -> None:
    harness = EngineHarness()
    harness.join("h1", gpus=4)
    harness.tell(agent_inputs.GpuReported("h1", "GPU-h1-3", GpuHealth.LOST, "Xid 79"))
    assert cell(shown(harness, "h1"), node_table(), "GPUS") == "0/4"
    job = harness.submit(spec(2))
    harness.tick()
    harness.start(job)
    harness.tell(
        agent_inputs.GpuReported("h1", f"GPU-h1-{harness.gpus_of(job)[0]}", GpuHealth.LOST, "Xid 79")
    )
    assert cell(shown(harness, "h1"), node_table(), "GPUS") == "2/4"


def test_events_name_gpus_by_node_and_index() -> None:
    harness = EngineHarness()
    harness.join("h1")
    facts = {"node": "h1", "uuid": "GPU-h1-2", "health": "lost", "why": "Xid 79", "at": 1.0}
    name_gpu(harness.state, facts)
    assert sentence("GpuHealthRecorded", facts).startswith("GPU h1:2 is lost")
    gone = {**facts, "node": "h9"}
    del gone["gpu"]
    name_gpu(harness.state, gone)
    assert "GPU GPU-h1-2 of node h9 is lost" in sentence("GpuHealthRecorded", gone)
