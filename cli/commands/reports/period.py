"""The flag --since of reports about the time until now."""

from __future__ import annotations

from typing import Annotated

from cli.flags import option
from wire import amounts

Since = Annotated[
    float,
    option(
        "--since",
        "TIME",
        "Start of the period: TIME before now (e.g. 30d). Default: 7d.",
        parser=amounts.seconds,
    ),
]
