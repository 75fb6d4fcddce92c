"""Agents refuse controllers with an epoch below the highest that they have served."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from agent.attempts.leader_epochs import LeaderEpochs
from agent.attempts.spool import Spool, SpoolUnusable
from tests.limits import PATIENCE_S


def opened(root: Path, epoch: int) -> Spool:
    spool = Spool(root, "this-boot")
    spool.open(epoch=epoch)
    return spool


def test_lower_epoch_is_refused_and_equal_or_higher_is_served(spool: Path) -> None:
    for epoch in (3, 3, 5):
        os.close(opened(spool, epoch)._lock)
        assert LeaderEpochs(spool).highest() == epoch
    for epoch in (4, 1):
        with pytest.raises(
            SpoolUnusable, match=f"epoch {epoch}, and this node has served epoch 5"
        ) as refused:
            opened(spool, epoch)
        assert "accept-loss --epoch 5" in str(refused.value)
    assert LeaderEpochs(spool).highest() == 5


def test_controller_without_epochs_is_served(spool: Path) -> None:
    """It is the only controller of its cluster, or of an earlier version."""
    os.close(opened(spool, 7)._lock)
    os.close(opened(spool, 0)._lock)
    assert LeaderEpochs(spool).highest() == 7


def hold(root: Path, epoch: int, ready: Event) -> None:
    opened(root, epoch)
    ready.set()
    Event.wait(multiprocessing.get_context("fork").Event(), PATIENCE_S)


@pytest.mark.parametrize(("present", "newcomer", "evicts"), [(3, 4, True), (4, 3, False)])
def test_agent_of_a_newer_leader_ends_the_agent_of_the_former(
    spool: Path, present: int, newcomer: int, evicts: bool
) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    other = context.Process(target=hold, args=(spool, present, ready))
    other.start()
    try:
        assert ready.wait(PATIENCE_S)
        if evicts:
            opened(spool, newcomer)
            other.join(PATIENCE_S)
            assert other.exitcode == -9
        else:
            with pytest.raises(SpoolUnusable, match="has served epoch 4"):
                opened(spool, newcomer)
            assert other.is_alive()
    finally:
        other.kill()
        other.join()


def test_journal_entry_is_remembered_by_the_next_agent(spool: Path) -> None:
    first = opened(spool, 1)
    assert first.epochs.journal() == ""
    first.epochs.remember_journal("1 20 abcd")
    os.close(first._lock)
    assert opened(spool, 2).epochs.journal() == "1 20 abcd"
