"""`python -m controller.store`: verifies a store. The controller runs it as a separate process. It prints
JSON lines with the progress and the report.

The database URL is read from the first line of stdin. The URL is not an argument, because other users could
see a password in an argument.
"""

from __future__ import annotations

import os
import sys

from controller.store.errors import StoreFailure
from controller.store.read_only_store import StoreReader
from wire.api.service.store import VerifyLine
from wire.codec import dumps, encode


def main() -> int:
    """Verify the store. Return 0 if no problem was found, else 1."""
    os.nice(10)
    try:
        report = StoreReader(sys.stdin.readline().strip()).verify(
            lambda what, count: _say(VerifyLine(doing=what, count=count))
        )
    except StoreFailure as failure:
        _say(VerifyLine(done=True, problems=(failure.message,)))
        return 1
    _say(report.last_line())
    return 0 if report.good else 1


def _say(line: VerifyLine) -> None:
    sys.stdout.write(dumps(encode(line)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
