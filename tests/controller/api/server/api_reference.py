"""Writes docs/api-reference.md from the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

HEAD = """# Reference of the HTTP API

This page is generated from the OpenAPI document (`/v1/openapi.json`); a test compares it, and
`CORRAL_RENEW_GOLDEN=1` writes it again. [api.md](api.md) explains the API, and [access.md](access.md) shows
who may use which route.

Every route may also refuse a request with 400, 401, 403, 500 or 503. A refusal has the body `Problem`.

## Routes
"""
ALWAYS = {"400", "401", "403", "500", "503"}


def reference(document: Mapping[str, Any]) -> str:
    """Return the page for this OpenAPI document: all routes, then all bodies."""
    lines = [HEAD]
    for path, methods in sorted(document["paths"].items()):
        for method, operation in methods.items():
            lines += _operation(method.upper(), path, operation)
    lines.append("## Bodies\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += _schema(name, schema)
    return "\n".join(lines).rstrip() + "\n"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {method} {path}\n"
    yield f"{operation['summary']}\n"
    body = operation.get("requestBody")
    if body is not None:
        content = body["content"]["application/json"]
        yield f"- Body{'' if body['required'] else ' (optional)'}: {_type(content['schema'])}"
        if "example" in content:
            yield f"  such as `{json.dumps(content['example'], ensure_ascii=False)}`"
    for status, answer in sorted(operation["responses"].items()):
        if status.startswith("2"):
            [(media, content)] = answer["content"].items()
            kind = _type(content["schema"]) if media == "application/json" else f"`{media}`"
            yield f"- Answer {status}: {kind}"
    more = sorted({*operation["responses"]} - ALWAYS - {"200", "201"})
    if more:
        yield f"- Refusals: {', '.join(more)}"
    query = [each for each in operation["parameters"] if each["in"] == "query"]
    if query:
        yield "\n| parameter | type | |\n|---|---|---|"
    for each in query:
        need = "Required. " if each.get("required") else ""
        yield f"| `{each['name']}` | {_type(each['schema'])} | {need}{_cell(each['description'])} |"
    yield ""


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    if "description" in schema:
        yield " ".join(schema["description"].split("\n\n")[0].split()) + "\n"
    if "enum" in schema:
        yield f"One of {', '.join(f'`{each}`' for each in schema['enum'])}.\n"
    fields = schema.get("properties", {})
    if fields:
        yield "| field | type | default |\n|---|---|---|"
    for field, kind in fields.items():
        default = "required" if field in schema.get("required", ()) else _default(kind)
        yield f"| `{field}` | {_type(kind)} | {default} |"
    yield ""


def _default(kind: Mapping[str, Any]) -> str:
    return f"`{json.dumps(kind['default'], ensure_ascii=False)}`" if "default" in kind else ""


def _type(kind: Mapping[str, Any]) -> str:
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in kind:
        return " or ".join(_type(each) for each in kind["anyOf"])
    if "enum" in kind:
        return ", ".join(f"`{each}`" for each in kind["enum"])
    if kind.get("type") == "array":
        items = [_type(each) for each in kind.get("prefixItems", ())] or [_type(kind.get("items", {}))]
        return f"list of {', '.join(items)}"
    if kind.get("type") == "object":
        values = kind.get("additionalProperties")
        return f"object of {_type(values)}" if isinstance(values, dict) and values else "object"
    return str(kind.get("type", "any value"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
