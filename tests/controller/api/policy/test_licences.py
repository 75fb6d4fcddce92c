"""Licences over HTTP: shown with their holders; an invalid request is refused with its field."""

from __future__ import annotations

from tests.controller.api.running_controller import RunningController


async def test_licences_are_empty_when_none_is_configured(api: RunningController) -> None:
    status, body = await api.get("/v1/licences")
    assert (status, body["licences"]) == (200, [])
    status, problem = await api.post("/v1/jobs", {"spec": {"command": ["true"], "licences": {"matlab": 1}}})
    assert (status, problem["where"]) == (400, "spec.licences.matlab")
    status, problem = await api.post("/v1/jobs", {"spec": {"command": ["true"], "licences": {"a b": 1}}})
    assert (status, problem["where"]) == (400, "spec.licences")
