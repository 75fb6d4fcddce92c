"""Licences over HTTP: shown with who holds them; what cannot be had is refused with its place."""

from __future__ import annotations

from tests.controller.api.running_controller import RunningController


async def test_a_cluster_without_licences_has_none(api: RunningController) -> None:
    status, body = await api.get("/v1/licences")
    assert (status, body["licences"]) == (200, [])
    status, problem = await api.post("/v1/jobs", {"spec": {"command": ["true"], "licences": {"matlab": 1}}})
    assert (status, problem["where"]) == (400, "spec.licences.matlab")
    status, problem = await api.post("/v1/jobs", {"spec": {"command": ["true"], "licences": {"a b": 1}}})
    assert (status, problem["where"]) == (400, "spec.licences")
