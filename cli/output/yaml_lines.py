"""Writes data as YAML, one item on each line. Non-ASCII characters are escaped, so that all YAML parsers read
the same text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "y", "n", "null"))
"""Words that need quotation marks, because YAML 1.1 reads them as booleans or null."""


def yaml_lines(data: Any) -> Iterator[str]:
    """Yield the lines of a YAML document with this data. Example: [{"job": 7}] gives `- job: 7`."""
    if isinstance(data, dict) and data:
        for key, value in data.items():
            inner = isinstance(value, dict | list) and value
            yield f"{_scalar(key)}:" if inner else f"{_scalar(key)}: {_scalar(value)}"
            yield from (f"  {line}" for line in yaml_lines(value) if inner)
    elif isinstance(data, list) and data:
        for value in data:
            first, *rest = yaml_lines(value)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(data)


def _scalar(value: Any) -> str:
    """Return a value as JSON on one line, because JSON is also valid YAML. Simple strings are written without
    quotation marks.
    """
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        return re.sub(r"[^\x00-\x7e]", _escaped, json.dumps(value, ensure_ascii=False))
    text = json.dumps(value)
    # Add a decimal point, because YAML 1.1 would read 1e-05 as a string.
    return text.replace("e", ".0e") if isinstance(value, float) and "e" in text and "." not in text else text


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"
