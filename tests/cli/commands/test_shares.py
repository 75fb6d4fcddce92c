"""corral shares: its arguments and its table."""

from __future__ import annotations

import re

import pytest
import typer

from cli.commands.policy.shares import ShareFlags, table
from cli.exit_codes import CommandError
from tests.cli.flag_groups import parsed
from wire.api.policy.shares import ShareView, ShareWeight
from wire.cluster.quota import UNLIMITED


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["3.0"], ShareWeight("vision", 3.0)),
        (["--soft", "500"], ShareWeight("vision", None, 500.0)),
        (["--soft", "0.5", "--hard", "none"], ShareWeight("vision", None, 0.5, UNLIMITED)),
        (["0.5", "--hard", "0"], ShareWeight("vision", 0.5, None, 0.0)),
    ],
)
def test_share_arguments_are_parsed(given: list[str], meant: ShareWeight) -> None:
    assert parsed(ShareFlags, "vision", *given).change() == meant


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "nothing to change"),
        (["--soft", "much"], "'much' is not an amount"),
        (["1.0", "--hard", "-1"], "'-1' is not an amount"),
        (["1.0", "--hard", "1e9"], "'1e9' is not an amount"),
    ],
)
def test_invalid_share_arguments_are_refused(given: list[str], told: str) -> None:
    with pytest.raises((CommandError, typer.BadParameter), match=re.escape(told)):
        parsed(ShareFlags, "vision", *given).change()


def test_share_table_shows_the_limit_that_stops_a_share_and_its_end() -> None:
    def view(path: tuple[str, ...], stopped: str, until: float | None, **more: float) -> ShareView:
        share = "/".join(path[-2:]) if len(path) == 3 else path[-1]
        return ShareView(path, share, 1.0, 1.0, 9.0, 2.0, 0.5, False, stopped=stopped, until=until, **more)

    rows = [
        view(("lab",), "", None, soft=4.0),
        view(("lab", "vision"), "vision", 7_300.0, hard=9.0),
        view(("lab", "vision", "ada"), "vision", None),
    ]
    lines = [" ".join(line.split()) for line in table(100.0).lines(rows, None)]
    assert lines[1] == "lab 1 100.0% 9.00 4/- 2 0.5000"
    assert lines[2] == "vision 1 100.0% 9.00 -/9 2 0.5000 stopped by the hard limit, for 2h00m at most"
    assert lines[3] == "ada 1 100.0% 9.00 2 0.5000 stopped by the hard limit of vision"
