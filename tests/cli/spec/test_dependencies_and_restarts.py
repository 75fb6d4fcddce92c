"""Restart policies as users write them."""

from __future__ import annotations

import pytest

from cli.exit_codes import CommandError
from cli.spec.dependencies_and_restarts import restart_of
from wire.job.start_conditions import Restart, RestartWhen


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None, None), None),
        (("never:1", None, None), Restart(RestartWhen.NEVER, 1)),
        (("on-failure", None, None), Restart(RestartWhen.ON_FAILURE, 3)),
        (
            ("on-failure:5", "1m", "75,130-132"),
            Restart(RestartWhen.ON_FAILURE, 5, 60, 600, (75, 130, 131, 132)),
        ),
        (("always", "20m", None), Restart(RestartWhen.ALWAYS, None, 1_200, 1_200)),
        (("always:2", "0s:0s", None), Restart(RestartWhen.ALWAYS, 2, 0, 0)),
    ],
)
def test_restart_policies(given: tuple[str | None, str | None, str | None], expected: Restart | None) -> None:
    assert restart_of(*given) == expected


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            ("sometimes", None, None),
            "'sometimes' is not a policy; write never, on-hardware, on-failure, always",
        ),
        (("on-failure:0", None, None), "'0' is not a number of restarts"),
        (("on-failure:x", None, None), "'x' is not a number of restarts"),
        (("on-failure", "5m:1m", None), "the first time must not be longer than the second"),
        (("on-failure", "5", None), "has no unit"),
        (("on-failure", None, "0"), "are not exit codes"),
        (("on-failure", None, "x"), "cannot read 'x'"),
        ((None, "5s", None), "need --restart"),
    ],
)
def test_invalid_restart_policy_is_refused(
    given: tuple[str | None, str | None, str | None], told: str
) -> None:
    with pytest.raises(CommandError, match=told):
        restart_of(*given)
