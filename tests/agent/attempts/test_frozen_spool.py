"""A spool that an agent of commit c9bfdb4 wrote: an agent of today reads its records and its logs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.agent.agent_process import AgentProcess
from wire.agent.orders import Settle

FROZEN = Path(__file__).parents[1] / "frozen_spool"


def test_spool_of_an_old_version_is_taken_over(run: Callable[..., AgentProcess], spool: Path) -> None:
    shutil.copytree(FROZEN, spool)
    for path in (spool, *spool.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    agent = run()
    [unsettled] = agent.hello().attempts
    assert (unsettled.job, unsettled.attempt, unsettled.code, unsettled.why) == (2, 1, 7, "")
    assert (agent.log(1), agent.log(1, "stderr")) == (b"words\n", b"trouble\n")
    assert agent.log(2) == b"more\n"
    agent.send(Settle(2, 1))
    agent.start(2, "true", attempt=2)
    assert agent.ended(2, attempt=2).code == 0
