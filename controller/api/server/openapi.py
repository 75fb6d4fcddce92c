"""Builds the OpenAPI document from the routes and wire.api."""

from __future__ import annotations

import functools
import json
from http import HTTPStatus
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from controller.api.server.examples import EXAMPLES
from controller.api.server.request import Call, Route
from wire import VERSION
from wire.api.problem import Problem
from wire.api.service.cluster import StreamBatch

ALWAYS = (400, 401, 403, 500, 503)
"""The HTTP statuses of refusals that every route may return."""


async def show(_call: Call) -> web.Response:
    """Return the OpenAPI document of the API."""
    return web.Response(body=_document(), content_type="application/json")


@functools.cache
def _document() -> bytes:
    from controller.api.server.routes import ROUTES

    return json.dumps(document(ROUTES), ensure_ascii=False, indent=1).encode()


def document(routes: tuple[Route, ...]) -> dict[str, Any]:
    schemas, refs = _schemas(routes)
    paths: dict[str, Any] = {}
    for route in routes:
        operation = paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, refs)
        if route.body:
            schema = schemas[route.body.__name__]
            operation["requestBody"] = {
                "required": bool(schema.get("required")),
                "content": {"application/json": _content(route.body, refs)},
            }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Corral",
            "version": VERSION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "On the unix socket the kernel reports the caller; TCP needs a bearer token.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(routes: tuple[Route, ...]) -> tuple[dict[str, Any], dict[type[Any], dict[str, Any]]]:
    answers = {route.answer for route in routes if not route.media} | {Problem, StreamBatch}
    bodies = {route.body for route in routes if route.body}
    kinds = sorted(answers | bodies, key=lambda kind: kind.__name__)
    wanted: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        (kind.__name__, "validation", TypeAdapter(kind)) for kind in kinds
    ]
    refs, top = TypeAdapter.json_schemas(wanted, ref_template="#/components/schemas/{model}")
    schemas = top["$defs"]
    for schema in schemas.values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return schemas, {kind: dict(refs[kind.__name__, "validation"]) for kind in kinds}


def _operation(route: Route, refs: dict[type[Any], dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.handle.__module__.rpartition('.')[2]}.{route.handle.__name__}",
        "summary": route.about,
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": {str(route.status): _answer(route, refs)},
    }
    by_path = (404,) if "{" in route.path else ()
    by_body = (413,) if route.body else ()
    for status in sorted({*ALWAYS, *by_path, *by_body, *route.refuses}):
        operation["responses"][str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": refs[Problem]}},
        }
    return operation


def _content(kind: type[Any], refs: dict[type[Any], dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of a JSON body. Add an example if EXAMPLES has one."""
    content: dict[str, Any] = {"schema": refs[kind]}
    if kind in EXAMPLES:
        content["example"] = json.loads(TypeAdapter(kind).dump_json(EXAMPLES[kind], exclude_defaults=True))
    return content


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in route.path.split("/")
        if part.startswith("{")
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    found = []
    for each in route.query:
        schema: dict[str, Any] = {"type": "array", "items": each.schema} if each.many else dict(each.schema)
        if each.default is not None and not each.many:
            schema["default"] = int(each.default) if isinstance(each.default, bool) else each.default
        parameter = {"name": each.name, "in": "query", "description": each.about, "schema": schema}
        found.append({**parameter, "required": True} if each.required else parameter)
    return found


def _answer(route: Route, refs: dict[type[Any], dict[str, Any]]) -> dict[str, Any]:
    if not route.media:
        content = {"application/json": _content(route.answer, refs)}
    elif route.media == "text/event-stream":
        content = {route.media: {"schema": {"type": "string", "contentSchema": refs[StreamBatch]}}}
    else:
        content = {route.media: {"schema": {}}}
    return {"description": route.about, "content": content}
