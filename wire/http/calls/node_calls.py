"""The calls about nodes and their GPUs, and about hosts that become nodes."""

from __future__ import annotations

from typing import Optional

from wire.api.nodes import (
    GpuList,
    HostKey,
    NodeAction,
    NodeDrain,
    NodeList,
    NodeMarks,
    NodeRequest,
    NodeView,
    Preflight,
)
from wire.api.service.engines import EngineList, EngineTest, EngineView
from wire.http.calls.api_calls import ApiCalls, quoted


class NodeCalls(ApiCalls):
    def nodes(self) -> NodeList:
        return self._get(NodeList, "/v1/nodes")

    def node(self, name: str) -> NodeView:
        return self._get(NodeView, f"/v1/nodes/{quoted(name)}")

    def gpus(self) -> GpuList:
        return self._get(GpuList, "/v1/gpus")

    def drain(
        self, name: str, why: str = "", empty_by: Optional[float] = None, dry_run: bool = False
    ) -> NodeView:
        """Drain a node: the node gets no new jobs, and running jobs continue. With `empty_by` (seconds since
        1970), jobs that end before this time may still start. Jobs that still run at this time are moved or
        ended.
        """
        body = NodeDrain(why, empty_by, dry_run)
        return self._post(NodeView, f"/v1/nodes/{quoted(name)}/drain", body)

    def resume(self, name: str) -> NodeView:
        """Let a drained node get new jobs again."""
        return self._post(NodeView, f"/v1/nodes/{quoted(name)}/resume", NodeAction())

    def preflight(self, request: NodeRequest) -> Preflight:
        """Check whether a host can run an agent, before or after the host is added as a node."""
        return self._post(Preflight, "/v1/preflight", request)

    def add_node(self, request: NodeRequest) -> NodeView:
        """Add a node. If the node exists, change the settings of its connection."""
        return self._post(NodeView, "/v1/nodes", request)

    def trust(self, name: str, host_key: str) -> NodeView:
        """Replace the pinned SSH host key of a node by `host_key`."""
        return self._post(NodeView, f"/v1/nodes/{quoted(name)}/trust", HostKey(host_key))

    def remove_node(self, name: str) -> NodeView:
        """Remove a node and return its last state."""
        return self._post(NodeView, f"/v1/nodes/{quoted(name)}/remove", NodeAction())

    def mark(self, name: str, marks: NodeMarks) -> NodeView:
        return self._post(NodeView, f"/v1/nodes/{quoted(name)}/marks", marks)

    def declare_lost(self, name: str) -> NodeView:
        """Declare a node lost: the node does not report, and no job runs on the node any more. The jobs of
        the node can then be queued again.
        """
        return self._post(NodeView, f"/v1/nodes/{quoted(name)}/lost", NodeAction())

    def cordon_gpu(self, name: str, gpu: str, why: str = "") -> NodeView:
        return self._post(NodeView, f"/v1/nodes/{quoted(name)}/gpus/{quoted(gpu)}/cordon", NodeAction(why))

    def resume_gpu(self, name: str, gpu: str) -> NodeView:
        """Let a cordoned GPU get jobs again. The GPU must pass a check first."""
        return self._post(NodeView, f"/v1/nodes/{quoted(name)}/gpus/{quoted(gpu)}/resume", NodeAction())

    def engines(self) -> EngineList:
        """Return all execution engines."""
        return self._get(EngineList, "/v1/engines")

    def engine(self, name: str) -> EngineView:
        return self._get(EngineView, f"/v1/engines/{quoted(name)}")

    def test_engine(self, name: str) -> EngineTest:
        """Let the controller read the state of an execution engine once. Nothing is changed."""
        return self._post(EngineTest, f"/v1/engines/{quoted(name)}/test", NodeAction())

    def drain_engine(self, name: str, why: str = "") -> EngineView:
        """Drain all nodes of an execution engine."""
        return self._post(EngineView, f"/v1/engines/{quoted(name)}/drain", NodeAction(why))

    def resume_engine(self, name: str) -> EngineView:
        """End the drain of an execution engine."""
        return self._post(EngineView, f"/v1/engines/{quoted(name)}/resume", NodeAction())
