"""The execution engines on which the contract suite runs, each with the real system behind it."""

from __future__ import annotations

import importlib.util
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from types import ModuleType

from controller.engines.contract import EngineScope, ExecutionEngine
from controller.engines.tags import prefix_of
from tests.controller.engines.fake_engine import STORE

EXAMPLES = Path(__file__).parents[3] / "examples"


class EngineSetup(ABC):
    """One engine for the contract suite. `begin` starts the system behind it, or skips the test."""

    image = ""
    """The image of jobs, for engines that need one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.scope = EngineScope("tried", prefix_of(STORE), str(directory), 30.0)

    async def begin(self) -> None:  # noqa: B027 - some systems need no start
        """Start the system behind the engine."""

    @abstractmethod
    def engine(self) -> ExecutionEngine:
        """Return a new engine on the system, as a restarted controller makes it."""

    async def end(self) -> None:  # noqa: B027 - some systems need no end
        """Stop the system behind the engine."""


def example_module(name: str) -> ModuleType:
    """Return the module of a file in examples/."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class ProcessSetup(EngineSetup):
    """The example engine, which runs real processes."""

    def engine(self) -> ExecutionEngine:
        made: ExecutionEngine = (
            example_module("process_engine").ProcessEngineType(4, 4_096).connect(self.scope)
        )
        return made


ENGINE_SETUPS: dict[str, type[EngineSetup]] = {"process": ProcessSetup}
"""The engines that run real jobs. The traps are played on the fake engine, whose answers a test scripts."""
