"""Loads plugins from the Python files that the key `files` of [plugins] lists."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wire import trusted_paths
from wire.trusted_paths import UntrustedPath


class PluginFileError(Exception):
    """Raised for a plugin file that cannot be used; the message has the reason."""


@dataclass(frozen=True, slots=True)
class FilePlugin:
    """A plugin class from a plugin file, with the same attributes as a Python entry point."""

    name: str
    value: str
    plugin: type[Any]

    def load(self) -> type[Any]:
        return self.plugin


@functools.cache
def plugins_in(
    path: Path, kinds: tuple[tuple[str, tuple[str, ...]], ...]
) -> Mapping[str, Sequence[FilePlugin]]:
    """Return the plugins of a file, by kind, such as "filter". `kinds` has the methods of each kind. The kind
    of a class is the first one in `kinds` for which the class has all methods.
    """
    found: dict[str, list[FilePlugin]] = {kind: [] for kind, _ in kinds}
    for name, each in vars(_module(path)).items():
        if not (isinstance(each, type) and dataclasses.is_dataclass(each) and each.__module__ == _name(path)):
            continue
        for kind, methods in kinds:
            if all(callable(getattr(each, method, None)) for method in methods):
                called = getattr(each, "name", None)
                found[kind].append(
                    FilePlugin(called if isinstance(called, str) else name, f"{path}:{name}", each)
                )
                break
    if not any(found.values()):
        raise PluginFileError(
            "contains no plugin: a frozen dataclass with a name and the methods of its kind"
        )
    return found


def _name(path: Path) -> str:
    return f"corral_plugins_{path.stem}"


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(_name(path), path)
    if spec is None or spec.loader is None or not path.is_file():
        raise PluginFileError("is not a Python file" if path.exists() else "is not there")
    if os.geteuid() == 0:
        try:
            trusted_paths.check_file(str(path))
        except UntrustedPath as error:
            raise PluginFileError(f"is not loaded: {error}") from None
    module = importlib.util.module_from_spec(spec)
    # Add the module to sys.modules before its code runs, because a dataclass in the code looks up its own
    # module there.
    sys.modules[_name(path)] = module
    try:
        spec.loader.exec_module(module)
    # Catch every exception, because the plugin file is code of a site and may raise any.
    except Exception as error:
        line = next((f", line {number}" for number in _lines(error, path)), "")
        raise PluginFileError(f"cannot be loaded ({type(error).__name__}: {error}{line})") from error
    return module


def _lines(error: Exception, path: Path) -> list[int]:
    """Return the line numbers of the file in the traceback of the error, the innermost call first."""
    found: list[int] = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            found.insert(0, trace.tb_lineno)
        trace = trace.tb_next
    return found
