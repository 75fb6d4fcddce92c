"""Random JSON values: values that fit a schema of the OpenAPI document, with some that do not."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Mapping
from typing import Any

WRONG = 0.12
"""The part of the values that do not fit their schema."""
DEPTH = 6
STRANGE: tuple[Any, ...] = (
    *(
        "",
        " ",
        "\x00",
        "\x1b[2J",
        "\u202e",
        "\ud800",
        "../../etc/passwd",
        "%2e%2e%2f",
        "a" * 5_000,
        "𝟙",
        "1e999",
    ),
    *(
        "7_[0-99999999]",
        "7_[0-",
        "-1",
        "0x10",
        "١٢",
        "null",
        "*",
        "user:",
        "SHARE:x=y",
        "{}",
        "\r\nX: y",
        "~root",
    ),
    *(0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63), 10**30, 0.1, -0.0, 1e-320, 1e308, True, False, None),
    *([], {}, [[]], [None], {"": None}, {"a": {"a": {"a": []}}}, [1] * 300),
)
WORDS = (
    *(
        "true",
        "default",
        "vision",
        "speech",
        "gpu01",
        "gpu02",
        "gpu99",
        "0",
        "1",
        "2",
        "7",
        "7_0",
        "ada",
        "bo",
    ),
    *("ops", "root", "user", "project", "queue", "train", "1h", "2:00", "NORMAL", "HIGH", "stdout", "short"),
)


class Values:
    """Makes random values for the schemas of one OpenAPI document.

    1. With the chance WRONG, take a strange value, whatever the schema asks.
    2. Otherwise follow the schema: references, alternatives, objects with all required and some other fields.
    3. Words are often names of things that exist, so that requests get past the first check.
    """

    def __init__(self, document: Mapping[str, Any], rng: random.Random) -> None:
        self._schemas = document["components"]["schemas"]
        self._rng = rng
        self.known: list[str] = [*WORDS]
        """Words that are used as values, such as ids of jobs and tokens."""

    def of(self, schema: Mapping[str, Any], depth: int = 0) -> Any:
        """Return a random value for this schema."""
        rng = self._rng
        if rng.random() < WRONG / (1 + depth):
            return self.strange()
        if "$ref" in schema:
            return self.of(self._schemas[schema["$ref"].rpartition("/")[2]], depth)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self.of(rng.choice(schema[word]), depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return rng.choice(schema["enum"])
        if schema.get("examples") and rng.random() < 0.3:
            return rng.choice(schema["examples"])
        return self._of_type(schema, depth)

    def strange(self) -> Any:
        return self._rng.choice(STRANGE)

    def word(self) -> str:
        """Return a word, mostly one that names something."""
        rng = self._rng
        if rng.random() < 0.8:
            return rng.choice(self.known)
        return "".join(rng.choices(string.printable, k=rng.randint(0, 12)))

    def _of_type(self, schema: Mapping[str, Any], depth: int) -> Any:
        rng, kind = self._rng, schema.get("type")
        if kind == "object" or "properties" in schema:
            required = schema.get("required", ())
            few = 0.5 if depth < 2 else 0.1
            fields = schema.get("properties", {})
            made = {
                name: self.of(each, depth + 1)
                for name, each in fields.items()
                if name in required or (depth < DEPTH and rng.random() < few * min(1.0, 6 / len(fields)))
            }
            if isinstance(more := schema.get("additionalProperties"), Mapping) and depth < DEPTH:
                made |= {self.word(): self.of(more, depth + 1) for _ in range(rng.randint(0, 2))}
            return made
        if kind == "array":
            items = schema.get("items") or {"type": "string"}
            return [self.of(items, depth + 1) for _ in range(rng.randint(0, 3))] if depth < DEPTH else []
        if kind == "string":
            return self.word()
        if kind == "integer":
            return rng.choice((0, 1, 2, 3, 8, 60, rng.randint(-5, 10**6)))
        if kind == "number":
            return rng.choice((0, 1, 0.5, 60.0, 3_600.0, rng.uniform(-1, 1e6), 2e9))
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "null":
            return None
        return self.strange()


def body_of(value: Any, rng: random.Random) -> bytes:
    """Return the value as JSON; sometimes damaged."""
    text = json.dumps(value).encode()
    chance = rng.random()
    if chance < 0.02:
        return text[: rng.randint(0, len(text))]
    if chance < 0.03:
        return b"[" * 50_000
    if chance < 0.04:
        place = rng.randint(0, len(text))
        return text[:place] + bytes(rng.randrange(256) for _ in range(4)) + text[place:]
    return text
