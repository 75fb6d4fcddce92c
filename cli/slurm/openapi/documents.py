"""Prints objects as JSON or YAML in the form of Slurm 22.05."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cli.slurm.arguments import Arguments

_SLURM = {"version": {"major": 22, "micro": 8, "minor": 5}, "release": "22.05.8"}
OPENAPI = {"type": "openapi/v0.0.38", "name": "Slurm OpenAPI v0.0.38"}
OPENAPI_DB = {"type": "openapi/dbv0.0.38", "name": "Slurm OpenAPI DB v0.0.38"}


def wanted(arguments: Arguments) -> bool:
    return arguments.has("json") or arguments.has("yaml")


def print_document(kind: str, objects: Sequence[Any], plugin: Mapping[str, str], arguments: Arguments) -> int:
    """Print a document with these objects, in JSON or, with --yaml, in YAML. `kind` is the key of the list of
    objects, such as jobs. Return exit code 0.
    """
    whole = {"meta": {"plugin": dict(plugin), "Slurm": _SLURM}, "errors": [], kind: list(objects)}
    if arguments.has("yaml"):
        print("%YAML 1.1\n--- !!map")
        print("\n".join(_members(whole, "")))
        print("...")
    else:
        print(json.dumps(whole, indent=2))
    return 0


def _members(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, each in value.items():
        yield from _entry(f"{indent}!!str {name}:", each, indent)


def _entry(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield f"{head} !!map{'' if value else ' {}'}"
        yield from _members(value, indent + "  ")
    elif isinstance(value, (list, tuple)):
        yield f"{head} !!seq{'' if value else ' []'}"
        for each in value:
            yield from _entry(f"{indent}-", each, indent)
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: Any) -> str:
    if value is None:
        return "!!null null"
    if isinstance(value, bool):
        return f"!!bool {str(value).lower()}"
    if isinstance(value, int):
        return f"!!int {value}"
    if isinstance(value, float):
        return f"!!float {value}"
    # Write texts in double quotes with the escapes of JSON, because YAML reads such texts in the same way.
    return f"!!str {json.dumps(value)}"
