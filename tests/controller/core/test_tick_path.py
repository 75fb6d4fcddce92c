"""Counts the functions and modules that one scheduling cycle enters when it places one job. A change that
makes this path longer fails here.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from controller.core.model.decision.effects import StartAttempt
from controller.core.model.inputs import controller_inputs
from tests.engine_harness import EngineHarness, spec
from wire import dataclass as generated_methods

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = tuple(f"{ROOT / name}/" for name in ("controller", "wire"))
MOST_FUNCTIONS = 77
MOST_MODULES = 19


@dataclass
class CallCounter:
    """Counts the calls of this project's Python functions while it is active.

    1. Count each call that `sys.setprofile` reports of a function in `controller` or `wire`. A lambda, a
       generator expression and (until Python 3.11) a list comprehension count as functions of their own.
    2. Do not count methods that a dataclass generates, such as `__init__`, because no module of the project
       has their code. For the same reason, leave out `wire/dataclass.py`, which makes the first instances of
       each class in a loop in place of the generated method.
    """

    calls: dict[CodeType, int] = field(default_factory=dict)

    def __enter__(self) -> CallCounter:
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGES):
            self.calls[code] = self.calls.get(code, 0) + 1

    @property
    def functions(self) -> set[str]:
        return {
            f"{_module(code)}:{code.co_firstlineno} {code.co_qualname}"
            for code in self.calls
            if code.co_filename != generated_methods.__file__
        }

    @property
    def modules(self) -> set[str]:
        return {each.partition(":")[0] for each in self.functions}


def _module(code: CodeType) -> str:
    return str(Path(code.co_filename).relative_to(ROOT))


def place_one_job(gpus: float) -> CallCounter:
    """Trace the Tick that places the only job on four idle nodes of 8 GPUs. The job is the first one with its
    request, so nothing about the request is cached by an earlier Tick.
    """
    harness = EngineHarness()
    for number in range(4):
        harness.join(f"n{number}")
    harness.tick()
    harness.submit(spec(gpus))
    with CallCounter() as counter:
        decision = harness.engine.handle(controller_inputs.Tick(), harness.now)
    assert [type(each) for each in decision.effects] == [StartAttempt]
    return counter


def test_a_tick_that_places_one_job_enters_few_functions_and_modules() -> None:
    counter = place_one_job(gpus=1)
    print(f"{sum(counter.calls.values())} calls, {len(counter.functions)} functions", *counter.modules)
    assert len(counter.functions) <= MOST_FUNCTIONS, sorted(counter.functions)
    assert len(counter.modules) <= MOST_MODULES, sorted(counter.modules)


def test_a_job_without_gpus_enters_no_module_about_gpus() -> None:
    counter = place_one_job(gpus=0)
    assert len(counter.functions) < MOST_FUNCTIONS
    assert [each for each in counter.modules if "gpu" in each] == [
        "controller/core/placement/gpu_selection.py"
    ]
