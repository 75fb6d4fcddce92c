"""The OpenAPI document matches the routes."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from controller.api.server.examples import EXAMPLES
from controller.api.server.openapi import document
from controller.api.server.request import Route
from controller.api.server.routes import ROUTES
from tests.controller.api.running_controller import RunningController
from tests.controller.api.server.api_reference import reference
from wire.codec import decode

REFERENCE = Path(__file__).parents[4] / "docs" / "api-reference.md"


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


@functools.cache
def whole_document() -> dict[str, Any]:
    return document(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda each: f"{each.method} {each.path}")
def test_summary_of_an_operation_is_plain_and_clear_alone(route: Route) -> None:
    """The summary is the first line of the handler's docstring. A reader of the API sees no more than it."""
    summary = whole_document()["paths"][route.path][route.method.lower()]["summary"]
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


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_example_of_a_body_decodes_to_the_same_object(kind: type[Any]) -> None:
    text = TypeAdapter(kind).dump_json(EXAMPLES[kind], exclude_defaults=True)
    assert decode(kind, json.loads(text)) == EXAMPLES[kind], "as clients decode it"
    adapter = TypeAdapter(kind)
    assert adapter.validate_json(text, strict=True, extra="forbid") == EXAMPLES[kind], "as the server does"


def test_examples_are_in_the_document() -> None:
    paths = document(ROUTES)["paths"]
    bodies = [route for route in ROUTES if route.body in EXAMPLES]
    assert len(bodies) >= 25
    for route in bodies:
        operation = paths[route.path][route.method.lower()]
        assert "example" in operation["requestBody"]["content"]["application/json"]


async def test_examples_of_requests_are_understood_by_a_controller(api: RunningController) -> None:
    paths = document(ROUTES)["paths"]
    for route in ROUTES:
        if route.body in EXAMPLES and "{" not in route.path and not route.slow and route.path != "/v1/config":
            content = paths[route.path][route.method.lower()]["requestBody"]["content"]["application/json"]
            status, answer = await api.ask(route.method, route.path, data=json.dumps(content["example"]))
            assert status != 400, (route.path, answer)


def test_reference_page_is_that_of_the_document() -> None:
    text = reference(document(ROUTES))
    if os.environ.get("CORRAL_RENEW_GOLDEN"):
        REFERENCE.write_text(text)
    assert REFERENCE.read_text() == text, "CORRAL_RENEW_GOLDEN=1 renews the page; read the difference"
