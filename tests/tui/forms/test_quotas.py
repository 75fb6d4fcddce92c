"""Quotas: the list, setting and unsetting, and the form as plain data."""

from __future__ import annotations

import shlex

import pytest
from textual.widgets import Button

from cli.commands.policy.quota import quota_of
from tests.tui.recorded import Tenants, quotas
from tests.tui.screens import Screen, press, settled, until
from tui.data.lists.tenant_lists import quota_state
from tui.dialogs.confirm import ConfirmDialog
from tui.dialogs.form_dialog import FormDialog
from tui.forms import quota as form
from wire.api.forecasts import QuotaEdit
from wire.cluster.quota import Limits, Quota

VISION = next(quota for quota in quotas() if quota.name == "vision")


async def test_quota_view_shows_usage_before_limits() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "5")
        await until(pilot, lambda: "alice" in screen.text())
        lines = {line.split()[1]: line.split() for line in screen.text().splitlines()[4:8]}
        assert lines["alice"][2:6] == ["8/8", "5/20", "2", "32"]
        assert lines["vision"][2] == "10/8"
        await press(pilot, *"jjj")
        assert "project   vision  set at run time" in screen.text()
        assert "gpu-hours     322.75      2000         ·         ·" in screen.text()
        await press(pilot, "j")
        assert "policy    all users" in screen.text()
        assert "its jobs are never preempted or moved" in screen.text()


async def test_quota_form_sends_only_changes() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "5")
        await until(pilot, lambda: "alice" in screen.text())
        await press(pilot, "j", "E", *"0", "tab", "backspace", "tab", "x")
        assert "corral quota set user alice gpus=80 soft.gpus=none cpus=x" in screen.text()
        assert "write 4 or 0.5" in screen.text()
        await press(pilot, "ctrl+s")
        assert isinstance(screen.screen, FormDialog)
        await press(pilot, "backspace", "4")
        await until(pilot, lambda: "1 starts later" in screen.text())
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: "quota of user alice set" in screen.text())
        wanted = Quota(Limits(cpu_milli=4000, gpus=80), Limits(gpus=-1))
        assert screen.ordered == [("quota", ("user", "alice", wanted))]


async def test_new_quota_needs_a_name_and_errors_are_shown_at_the_line() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "5", "N", "tab", *"nobody", "tab", "8")
        assert "corral quota set user nobody gpus=8" in screen.text()
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: "must be printable" in screen.text() and "Take another." in screen.text())
        assert screen.screen.focused is not None
        assert screen.screen.focused.name == "name"
        await press(pilot, *["backspace"] * 6, *"carl", "ctrl+s")
        await until(pilot, lambda: screen.ordered)
        assert screen.ordered == [("quota", ("user", "carl", Quota(Limits(gpus=8.0))))]


async def test_unset_quota_asks_first_and_only_for_set_quotas() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "5")
        await until(pilot, lambda: "alice" in screen.text())
        await press(pilot, "U")
        assert "nothing to unset: these limits are those of scheduler.toml" in screen.text()
        await press(pilot, "j", "U")
        assert isinstance(screen.screen, ConfirmDialog)
        assert screen.screen.query_one("#back", Button).has_focus
        assert "corral quota unset user alice" in screen.text()
        await until(pilot, lambda: "1 starts later" in screen.text())
        await press(pilot, "enter")
        assert screen.ordered == []
        await press(pilot, "U", "right", "enter")
        await until(pilot, lambda: screen.ordered)
        assert screen.ordered == [("unset quota", ("user", "alice"))]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("", "state:^(queued|scheduled|running)$"),
        ("j", "user:^(alice)$ state:^(queued|scheduled|running)$"),
        ("jjj", "project:^(vision)$"),
        ("jjjj", "queue:^(default)$ state:^(queued|scheduled|running)$"),
    ],
)
async def test_jobs_of_a_quota_are_those_that_count_towards_it(keys: str, expected: str) -> None:
    """Only the quota of the project vision limits GPU-hours, to which ended jobs have added."""
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "5")
        await until(pilot, lambda: "alice" in screen.text())
        await press(pilot, *keys, "enter")
        assert screen.queue_view.filter_text == expected
        ended = {job.state.value for job in screen.queue_view.listing if job.state.terminal}
        assert bool(ended) is (keys == "jjj")


async def test_empty_quota_view_shows_how_to_begin() -> None:
    for read_only in (False, True):
        screen = Screen(tenants=Tenants(quotas=()), read_only=read_only)
        async with screen.run_test(size=(80, 24)) as pilot:
            await settled(pilot)
            await press(pilot, "5")
            await until(pilot, lambda: "and no jobs" in screen.text())  # noqa: B023 - done with it before the next
            assert ("N sets one" in screen.text()) is not read_only


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ({"hard gpus": "16", "borrow gpus": "8"}, Quota(Limits(gpus=16.0))),
        ({"hard gpus": "8", "borrow gpus": ""}, Quota(borrow=Limits(gpus=-1))),
        (
            {"hard memory": "1.5T", "soft cpus": "2.5", "hard running": "9", "hard gpu-hours": "none"},
            Quota(Limits(memory_mib=1_572_864, running=9, gpu_hours=-1), Limits(cpu_milli=2500)),
        ),
    ],
)
def test_shown_command_sets_the_same_quota(typed: dict[str, str], expected: Quota) -> None:
    shown = form.edit(VISION)
    read = shown.read(typed)
    assert (read.request, read.wrong) == (QuotaEdit("project", "vision", expected), {})
    assert quota_of(shlex.split(shown.command(typed))[5:]) == expected


def test_invalid_quota_field_is_reported_at_its_line() -> None:
    typed = {"of": "user", "name": "carl", "soft queued": "3", "borrow gpus": "1", "hard memory": "16"}
    assert form.new().read(typed).wrong == {
        "soft queued": "only a hard limit on queued jobs has an effect",
        "borrow gpus": "only projects borrow from each other",
        "hard memory": "write 16M or 16G, or none",
    }
    assert form.new().read({"of": "team", "hard gpus": "1"}).wrong.keys() == {"of", "name"}


def test_quota_states() -> None:
    assert [quota_state(quota) for quota in quotas()] == ["", "full", "", "borrows", ""]
