"""Calls the plugins of a configuration with an example node, to find failing plugins before a controller uses
them.
"""

from __future__ import annotations

from controller.core.engine import Engine
from controller.core.model.inputs import agent_inputs, controller_inputs, job_inputs
from controller.core.pipeline.pipeline import Pipeline
from controller.core.state.state import State
from wire.agent.reports import GpuFacts, Hello, NodeFacts
from wire.job.spec import JobSpec

_GPU = GpuFacts(index=0, uuid="GPU-example", model="NVIDIA H100 80GB HBM3", memory_mib=81_559)
_NODE = NodeFacts(cpu_milli=64_000, memory_mib=512 * 1024, gpus=(_GPU,))


def failing_plugins(pipeline: Pipeline) -> tuple[str, ...]:
    """Return a text with the name and the error of each plugin that fails when a job with one GPU is placed
    on an example node."""
    engine = Engine(pipeline, State(pipeline.order, sharing=pipeline.sharing))
    engine.handle(agent_inputs.AgentSaidHello("example", Hello("example", "0", "boot", "i", _NODE)), 0.0)
    engine.handle(job_inputs.Submit(JobSpec(command=("true",), gpus=1.0), "example"), 0.0)
    engine.handle(controller_inputs.Tick(), 0.0)
    return pipeline.breaker.failing
