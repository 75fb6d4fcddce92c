"""Writes and reads the messages (frames) between controller and agent. Each frame is one line with a JSON
object. The field "t" of the object is the kind of the frame.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Union, get_args

from wire.agent.orders import (
    CheckGpu,
    CloseShell,
    Go,
    Leave,
    Note,
    OpenShell,
    Ping,
    ReadLog,
    ResetGpu,
    ResizeShell,
    Save,
    SearchLog,
    Settle,
    ShellInput,
    ShellSignal,
    ShellTaken,
    Signal,
    Start,
    Stop,
    StopReading,
    TimeLimit,
)
from wire.agent.reports import (
    GpuChecked,
    GpuProcesses,
    GpuReport,
    GpuReset,
    GpuTrouble,
    HealthReport,
    Hello,
    LogChunk,
    LogFound,
    Pong,
    Report,
    ShellEnded,
    ShellOutput,
)
from wire.agent.steps import (
    InputTaken,
    OpenTask,
    RunTask,
    StepCall,
    StepHello,
    StepNumber,
    StepsReport,
    TaskAway,
)
from wire.codec import Malformed, decode, dumps, encode

MAX_FRAME = 64 * 1024 * 1024
MOST = 1 << 53
"""The largest whole number in a message. Every JSON reader handles whole numbers up to 2^53 exactly. Sums of
a few such numbers fit into the columns of the database.
"""

AgentFrame = Union[
    Hello,
    Report,
    GpuReport,
    GpuProcesses,
    GpuTrouble,
    GpuChecked,
    GpuReset,
    HealthReport,
    LogChunk,
    LogFound,
    Pong,
    ShellOutput,
    ShellEnded,
    StepsReport,
    StepNumber,
    StepCall,
    OpenTask,
    RunTask,
    InputTaken,
    ShellInput,
    ShellTaken,
    ShellSignal,
    CloseShell,
]
ControllerFrame = Union[
    Start,
    Go,
    Stop,
    TimeLimit,
    Signal,
    Save,
    Note,
    Settle,
    ReadLog,
    SearchLog,
    StopReading,
    CheckGpu,
    ResetGpu,
    Ping,
    Leave,
    OpenShell,
    ShellInput,
    ShellTaken,
    ResizeShell,
    CloseShell,
    ShellSignal,
    StepCall,
    StepNumber,
    ShellOutput,
    ShellEnded,
    InputTaken,
    TaskAway,
]
Frame = Union[AgentFrame, ControllerFrame, StepHello]
"""All messages: those that agents send, those that the controller sends, and StepHello. Only srun sends
StepHello, on the Unix socket of the agent of its node. On this socket, srun and the agent also send each
other the messages about steps and tasks, such as StepCall and RunTask.
"""

_SHORT_NAMES = {"GpuReport": "gpus", "LogChunk": "log"}
"""The classes whose messages have a short kind. For all other classes, the kind is the class name in snake
case, such as `step_call` for StepCall.
"""
_NAMES = {
    kind: _SHORT_NAMES.get(kind.__name__) or re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    for kind in get_args(Frame)
}
_KINDS: dict[str, type[Any]] = {name: kind for kind, name in _NAMES.items()}


def _whole(digits: str) -> int:
    number = int(digits)
    if abs(number) > MOST:
        raise ValueError(f"a number of {len(digits)} digits")
    return number


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is too large a number")
    return number


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a number")


_JSON = json.JSONDecoder(parse_int=_whole, parse_float=_finite, parse_constant=_refuse)


def pack(frame: Frame) -> bytes:
    """Return the message as one line that ends with a newline. File names that are not valid UTF-8 are
    preserved.
    """
    return (dumps({"t": _NAMES[type(frame)], **encode(frame)}) + "\n").encode("utf-8", "surrogatepass")


def unpack(line: bytes) -> Frame:
    """Return the message in this line. Raise Malformed if the kind of the message or one of its fields is
    unknown, or if a field has a wrong value.
    """
    try:
        data = _JSON.decode(line.decode("utf-8", "surrogatepass"))
        if b"\\ud" in line.lower():
            # Refuse half a surrogate pair, which databases cannot store: encode() raises an error for it.
            dumps(data).encode()
    except (ValueError, RecursionError) as error:
        raise Malformed("frame", f"not JSON: {error}") from None
    name = data.pop("t", None) if isinstance(data, dict) else None
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise Malformed("frame", "unknown kind of frame")
    frame: Frame = decode(kind, data)
    return frame
