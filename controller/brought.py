"""Plugins in a plain Python file that scheduler.toml names: no package, nothing to install."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Unreadable(Exception):
    """A file that brings no plugins, and why."""


@dataclass(frozen=True, slots=True)
class Brought:
    """A plugin of a file; it can be loaded like an installed one."""

    name: str
    value: str
    plugin: type[Any]

    def load(self) -> type[Any]:
        """It is there already."""
        return self.plugin


@functools.cache
def brought(path: Path, kinds: tuple[tuple[str, tuple[str, ...]], ...]) -> Mapping[str, Sequence[Brought]]:
    """The plugins of a file by kind; a class is of the first kind whose methods it has."""
    found: dict[str, list[Brought]] = {kind: [] for kind, _ in kinds}
    for name, each in vars(_module(path)).items():
        if not (isinstance(each, type) and dataclasses.is_dataclass(each) and each.__module__ == _name(path)):
            continue
        for kind, methods in kinds:
            if all(callable(getattr(each, method, None)) for method in methods):
                called = getattr(each, "name", None)
                found[kind].append(
                    Brought(called if isinstance(called, str) else name, f"{path}:{name}", each)
                )
                break
    if not any(found.values()):
        raise Unreadable("holds no plugin: a frozen dataclass with a name and the methods of its kind")
    return found


def _name(path: Path) -> str:
    return f"corral_plugins_{path.stem}"


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(_name(path), path)
    if spec is None or spec.loader is None or not path.is_file():
        raise Unreadable("is not a Python file" if path.exists() else "is not there")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_name(path)] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the code of strangers: anything may come out of it
        line = next((f", line {number}" for number in _lines(error, path)), "")
        raise Unreadable(f"cannot be loaded ({type(error).__name__}: {error}{line})") from error
    return module


def _lines(error: Exception, path: Path) -> list[int]:
    """Lines of the file that the error went through, the last first."""
    found: list[int] = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            found.insert(0, trace.tb_lineno)
        trace = trace.tb_next
    return found
