"""The inbox: the inputs that wait for the engine, with the futures of the callers that wait for replies."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from controller.core.model.decision.decision import Reply
from controller.core.model.inputs.controller_inputs import ApplyConfig
from controller.core.model.inputs.input import Input

PendingInput = tuple[Input, "asyncio.Future[Reply] | None"]
"""An input, and the future of its reply. The future is None if no caller waits for a reply."""
MAX_BATCH = 2_000
"""The most inputs in one batch. With this number, the disk sync of the commit costs little per input, and
replies are still fast.
"""


class Inbox:
    """The inputs that have arrived, in the order of their arrival. They are taken in batches."""

    def __init__(self) -> None:
        self._inputs: deque[PendingInput] = deque()
        self._single_inputs = 0
        """The number of inputs that must be taken one by one, because one of them crashes the engine."""

    def __len__(self) -> int:
        return len(self._inputs)

    def __iter__(self) -> Iterator[PendingInput]:
        return iter(self._inputs)

    @property
    def one_by_one(self) -> bool:
        """Return whether the next batch has only one input, because the inputs of a batch that has crashed
        the engine are taken one by one.
        """
        return self._single_inputs > 0

    def put(self, given: Input, reply: asyncio.Future[Reply] | None = None) -> None:
        self._inputs.append((given, reply))

    def put_first(self, given: Input) -> None:
        """Put an input before all other inputs."""
        self._inputs.appendleft((given, None))

    def put_back(self, batch: Sequence[PendingInput]) -> None:
        """Put a batch that has crashed the engine before all other inputs. Each of its inputs is then a batch
        of its own.
        """
        self._inputs.extendleft(reversed(batch))
        # Add 1 for the input ControllerStarted, which the daemon may put before the batch.
        self._single_inputs = len(batch) + 1

    def take_batch(self) -> list[PendingInput]:
        """Remove and return the inputs of the next batch: up to MAX_BATCH inputs, or one input if inputs are
        taken one by one.
        """
        most = MAX_BATCH
        if self._single_inputs:
            most, self._single_inputs = 1, self._single_inputs - 1
        # End the batch before a new configuration. To apply it, the engine is built again from a copy of its
        # state, and the copy must contain only changes that are on disk.
        for index, (given, _) in enumerate(islice(self._inputs, most)):
            if isinstance(given, ApplyConfig):
                most = max(1, index)
                break
        return [self._inputs.popleft() for _ in range(min(len(self._inputs), most))]


def refuse(batch: Iterable[PendingInput], failure: Exception) -> None:
    """Raise the exception `failure` in every caller that waits for a reply to an input of the batch."""
    for _, future in batch:
        if future is not None and not future.done():
            future.set_exception(failure)
            # Read the exception once. Otherwise asyncio logs a warning if the caller no longer waits for the
            # reply.
            future.exception()
