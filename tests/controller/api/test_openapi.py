"""The OpenAPI document matches the routes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from controller.api.server.openapi import document
from controller.api.server.request import Route
from controller.api.server.routes import ROUTES
from tests.controller.api.running_controller import RunningController


def refs(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"]
        for value in part.values():
            yield from refs(value)
    elif isinstance(part, list):
        for value in part:
            yield from refs(value)


async def test_openapi_lists_every_route_and_defines_every_reference(api: RunningController) -> None:
    status, document = await api.get("/v1/openapi.json")
    assert status == 200
    assert document["openapi"] == "3.1.0"
    assert set(document["info"]) >= {"title", "version"}
    documented = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert documented == {(route.method, route.path) for route in ROUTES}
    schemas = document["components"]["schemas"]
    assert {ref.removeprefix("#/components/schemas/") for ref in refs(document)} <= set(schemas)
    assert {"SubmitRequest", "JobSpec", "JobView", "Problem", "StreamBatch"} <= set(schemas)


async def test_every_operation_of_openapi_is_complete(api: RunningController) -> None:
    _, document = await api.get("/v1/openapi.json")
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"].endswith(".")
            named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))
            assert all(each["description"] for each in operation["responses"].values())
            assert {"200", "201"} & set(operation["responses"])
            assert {"400", "403", "503"} <= set(operation["responses"])


@pytest.mark.parametrize("route", ROUTES, ids=lambda each: f"{each.method} {each.path}")
def test_summary_of_an_operation_is_plain_and_clear_alone(route: Route) -> None:
    """The summary is the first line of the handler's docstring. A reader of the API sees no more than it."""
    summary = document((route,))["paths"][route.path][route.method.lower()]["summary"]
    assert re.fullmatch(r"[A-Z][a-z]+(-[a-z]+)?,? [^\n]*\.", summary), "a verb, and one line"
    assert not re.search(r"\b(it|this|they|them|those|what)\b", summary, re.IGNORECASE)


async def test_openapi_schema_of_a_body_forbids_additional_fields(api: RunningController) -> None:
    _, document = await api.get("/v1/openapi.json")
    spec = document["components"]["schemas"]["JobSpec"]
    assert spec["additionalProperties"] is False
    assert spec["required"] == ["command"]
    assert spec["properties"]["gpus"]["type"] == "number"
    submit = document["paths"]["/v1/jobs"]["post"]
    assert submit["requestBody"]["required"] is True
    assert set(submit["responses"]) >= {"201", "413", "422", "507"}
    resume = document["paths"]["/v1/nodes/{node}/resume"]["post"]
    assert resume["requestBody"]["required"] is False


async def test_openapi_statuses_follow_from_path_and_body(api: RunningController) -> None:
    _, document = await api.get("/v1/openapi.json")
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert ("404" in operation["responses"]) >= ("{" in path)
            assert ("413" in operation["responses"]) == ("requestBody" in operation)
    drain = document["paths"]["/v1/nodes/{node}/drain"]["post"]
    body = drain["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/NodeDrain"}, "the handler's second parameter"
