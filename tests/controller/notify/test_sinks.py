"""What HTTP sinks send to a real server, and how secrets are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.config.tables.notify import SinkSection
from controller.notify.messages import Message, Notice
from controller.notify.sinks.delivery_error import DeliveryFailed, secret_of
from controller.notify.sinks.http import post
from tests.receivers import hook

TEXT = "Job 7 (<train> @all & co) failed."
NOTICE = Notice("mine.failed", 1.0, "job 7 failed", TEXT, "See more: corral logs 7", "7", "ada")
MESSAGE = Message("a-1-1", "chat", (NOTICE,), 1.0, 1.0, to="ada-jobs")


@pytest.fixture
def url_file(tmp_path: Path) -> Path:
    path = tmp_path / "url"
    path.touch(0o600)
    return path


async def test_bodies_of_chat_services(url_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NTFY_TOKEN", "tk_1")
    with hook() as receiver:
        url_file.write_text(receiver.url)
        for kind in ("slack", "mattermost"):
            await post(SinkSection(kind=kind, url_file=str(url_file)), MESSAGE, "lab", "")
        ntfy = SinkSection(kind="ntfy", url=receiver.url, topic="all", secret_env="NTFY_TOKEN")
        await post(ntfy, MESSAGE, "lab", "https://head/{job}")
    slack, mattermost, phone = receiver.bodies()
    assert slack["text"].startswith("[lab] job 7 failed\nJob 7 (&lt;train&gt; @all &amp; co) failed.")
    assert "@all" not in mattermost["text"]
    assert (phone["topic"], phone["title"]) == ("ada-jobs", "[lab] job 7 failed")
    assert phone["message"] == f"{TEXT}\nSee more: corral logs 7\nhttps://head/7\n"
    headers, _ = receiver.requests[2]
    assert headers["authorization"] == "Bearer tk_1"
    assert headers["x-corral-id"] == "a-1-1"
    assert "webhook-signature" not in headers


@pytest.mark.parametrize(
    ("order", "final", "message"),
    [
        (302, True, "answered 302"),
        (404, True, "answered 404: as ordered"),
        (429, False, "answered 429"),
        (503, False, "answered 503"),
        ("cut", False, "the connection to 127.0.0.1 failed"),
        ("hang", False, "did not answer within 1 s"),
    ],
)
async def test_a_failure_says_why_and_names_no_secret(
    order: object, final: bool, message: str, url_file: Path
) -> None:
    with hook() as receiver:
        receiver.orders.append(order)
        url_file.write_text(f"{receiver.url}/secret-path")
        sink = SinkSection(kind="slack", url_file=str(url_file), timeout_s=1.0)
        with pytest.raises(DeliveryFailed) as failed:
            await post(sink, MESSAGE, "lab", "")
    assert message in failed.value.message
    assert failed.value.final is final
    assert "secret-path" not in failed.value.message


def test_a_secret_that_every_user_may_read_is_refused(url_file: Path, tmp_path: Path) -> None:
    url_file.write_text(" key \n")
    assert secret_of(str(url_file), None) == "key"
    url_file.chmod(0o644)
    for path, message in ((url_file, "every user may read"), (tmp_path / "none", "cannot be read")):
        with pytest.raises(DeliveryFailed, match=message):
            secret_of(str(path), None)
    with pytest.raises(DeliveryFailed, match="is not set"):
        secret_of(None, "NO_SUCH_VARIABLE")
