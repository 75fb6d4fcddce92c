"""Actions on many jobs, some of which belong to other users."""

from __future__ import annotations

from tests.cli.conftest import Corral
from tests.cli.fake_controller import FakeController, job


def test_action_on_jobs_of_other_users_asks_for_confirmation(fake: FakeController, corral: Corral) -> None:
    fake.put(job(1), job(2, user="bob"), job(3, user="bob"), job(4, user="eve"))
    done = corral("job", "cancel", "all", url=fake.url)
    assert done.returncode == 2
    assert "3 of these 4 jobs belong to other users (bob 2, eve 1). Cancel all of them?" in done.stderr
    assert "--yes" in done.stderr
    assert not [each for each in fake.peer.requests if b'"only_tell":false' in each.body], "nothing was done"
    assert corral("job", "cancel", "all", "--yes", url=fake.url).returncode == 0
    assert corral("job", "hold", "1-3", url=fake.url).returncode == 2


def test_action_on_own_or_named_jobs_asks_nothing(fake: FakeController, corral: Corral) -> None:
    fake.put(job(1), job(2), job(3, user="bob"))
    assert corral("job", "cancel", "1-2", url=fake.url).returncode == 0
    assert corral("job", "cancel", "3", url=fake.url).returncode == 0
    assert corral("job", "cancel", "all", "--dry-run", url=fake.url).returncode == 0
