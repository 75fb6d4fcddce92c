"""Notifications on a real controller: webhooks and mail that fail and are tried again, killed controllers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w

from tests.receivers import Hook, hook
from tests.systems import System
from wire.job.spec import JobSpec
from wire.notify import NotifySettings, OutboxView

SECRET = "whsec_" + base64.b64encode(b"a key of the webhook").decode()


def failing(system: System, *, name: str = "train") -> str:
    """Submit a job that fails, and return its label."""
    with system.client() as client:
        job = client.submit(JobSpec(("sh", "-c", "exit 3"), name=name)).ids[0]
    system.await_jobs([job])
    return str(job)


def with_hook(system: System, url: str) -> System:
    secret = Path(system.place) / "hook.key"
    secret.touch(0o600)
    secret.write_text(SECRET + "\n")
    system.sections["notify"] = {
        "sinks": {"ops": {"kind": "webhook", "url": url, "secret_file": str(secret), "timeout_s": 1.0}},
        "rules": {"failed": {"when": ["mine.failed"], "sink": "ops"}},
    }
    return system


def outbox(system: System) -> OutboxView:
    with system.client() as client:
        return client.outbox()


def signed(headers: dict[str, str], body: bytes) -> bool:
    """Check the signature as the specification of Standard Webhooks says."""
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = base64.b64encode(hmac.new(b"a key of the webhook", text, hashlib.sha256).digest()).decode()
    return headers["webhook-signature"] == f"v1,{wanted}"


def await_requests(system: System, receiver: Hook, number: int) -> None:
    system.until(lambda: len(receiver.requests) >= number, f"{number} requests: {receiver.requests}")


def test_a_webhook_that_fails_is_tried_again_with_the_same_id(build: Callable[..., System]) -> None:
    with hook() as receiver:
        system = with_hook(build("gpu01"), receiver.url).start()
        receiver.orders.extend([500, "cut", "hang"])
        job = failing(system)
        await_requests(system, receiver, 4)
        ids = {headers["webhook-id"] for headers, _ in receiver.requests}
        assert len(ids) == 1
        assert all(signed(*each) for each in receiver.requests)
        body = receiver.bodies()[0]
        assert (body["format"], body["id"], body["cluster"]) == (1, *ids, "corral")
        [notice] = body["notices"]
        assert (notice["word"], notice["job"], notice["user"]) == ("mine.failed", job, "root")
        assert "exit code 3" in notice["text"]
        assert f"corral logs {job}" in notice["next_step"]
        system.until(lambda: outbox(system).waiting == 0, "the outbox is empty")
        assert len(receiver.requests) == 4
        [sink] = json.loads(system.corral("notify", "-o", "json"))["sinks"]
        assert (sink["delivered"], sink["failed"], sink["target"]) == (1, 3, "127.0.0.1")
        metrics = metrics_of(system)
        assert 'corral_notify_delivered_total{sink="ops"} 1' in metrics
        assert 'corral_notify_failed_total{sink="ops"} 3' in metrics


def metrics_of(system: System) -> str:
    import http.client
    import socket

    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(system.socket))
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode()


def test_a_message_survives_kill_9_between_commit_and_delivery(build: Callable[..., System]) -> None:
    with hook() as away:
        port = away.port
    # Nothing listens on the port now, so that the message waits.
    system = with_hook(build("gpu01"), f"http://127.0.0.1:{port}/hook").start()
    job = failing(system)
    system.until(lambda: outbox(system).waiting == 1, "the message is in the outbox")
    [waiting] = outbox(system).messages
    system.kill()
    with hook(port) as receiver:
        receiver.orders.append("hang")
        system.start()
        await_requests(system, receiver, 1)
        # The receiver has the message, but the controller is killed before the answer: the message is
        # repeated with its id.
        system.kill()
        system.start()
        await_requests(system, receiver, 2)
        assert {body["id"] for body in receiver.bodies()} == {waiting.id}
        assert {body["notices"][0]["job"] for body in receiver.bodies()} == {job}
        assert all(signed(*each) for each in receiver.requests)
        system.until(lambda: outbox(system).waiting == 0, "the outbox is empty")
        # A delivered message is not sent again by the next controller.
        system.stop()
        system.start()
        failing(system, name="second")
        await_requests(system, receiver, 3)
        assert receiver.bodies()[-1]["notices"][0]["subject"] == "job 2 failed"
        assert len(receiver.requests) == 3


def test_a_refused_message_is_a_dead_letter_until_it_is_retried(build: Callable[..., System]) -> None:
    with hook() as receiver:
        system = with_hook(build("gpu01"), receiver.url).start()
        receiver.orders.append(403)
        failing(system)
        system.until(lambda: outbox(system).dead == 1, "the message was given up")
        assert "given up" in system.corral("notify", "outbox")
        [dead] = outbox(system).messages
        assert dead.error == "127.0.0.1 answered 403: as ordered"
        # The dead letter is in the store.
        system.stop()
        system.start()
        assert [each.id for each in outbox(system).messages] == [dead.id]
        system.corral("notify", "retry", dead.id)
        await_requests(system, receiver, 2)
        system.until(lambda: not outbox(system).messages, "the outbox is empty")
        system.corral("notify", "test", "ops")
        assert receiver.bodies()[-1]["notices"][0]["word"] == "test"


def test_mail_goes_to_owners_users_and_addresses_of_jobs(build: Callable[..., System]) -> None:
    pytest.importorskip("aiosmtpd")
    from tests.mail_servers import certificate, mail_server

    system = build("gpu01")
    context, public = certificate(system.place)
    with mail_server(login=("corral", "a password"), tls=context) as server:
        secret = system.place / "mail.password"
        secret.touch(0o600)
        secret.write_text("a password\n")
        system.sections["notify"] = {
            "link": "https://head/jobs/{job}",
            "sinks": {
                "mail": {
                    "kind": "smtp",
                    "host": "127.0.0.1",
                    "port": server.port,
                    "login": "corral",
                    "secret_file": str(secret),
                    "ca_file": str(public),
                    "sender": "corral@example.org",
                    "domain": "example.org",
                }
            },
            "rules": {"failed": {"when": ["mine.failed", "mine.ended"], "sink": "mail"}},
        }
        system.start()
        server.orders.append("450 try later")
        job = failing(system, name="two\nlines {x}")
        system.until(lambda: server.accepted, "the mail came after it was refused once")
        [mail], [to] = server.accepted, server.recipients
        assert server.secured == [True]
        assert to == ["root@example.org"]
        assert mail["Subject"] == f"[corral] job {job} failed"
        text = mail.get_content()
        assert "exit code 3" in text
        assert "{x}" in text
        assert f"corral logs {job}" in text
        assert f"https://head/jobs/{job}" in text
        [sent] = mail["X-Corral-Id"].split()
        assert mail["Message-ID"] == f"<{sent}@example.org>"

        # A user's own choice, and mail of a job, to which --mail-user names another address.
        system.corral("notify", "me", "--started", "--mail", "ada@example.org")
        with system.client() as client:
            assert client.notify_settings().sinks == ("mail",)
            spec = JobSpec(("true",), array="0-2", mail_user="boss@example.org", mail_types=("BEGIN", "END"))
            ids = client.submit(spec).ids
        system.await_jobs(ids)
        system.until(lambda: outbox(system).waiting == 0 and len(server.accepted) > 3, "all mails came")
        subjects = {
            to: [
                mail["Subject"]
                for mail, [each] in zip(server.accepted, server.recipients, strict=True)
                if each == to
            ]
            for to in ("boss@example.org", "ada@example.org")
        }
        first, last = subjects["boss@example.org"]
        assert first.endswith("started")
        assert last.endswith("completed")
        # root has an address now, so the rule for owners uses it too.
        assert subjects["ada@example.org"]
        system.stop()
        system.start()
        assert "mine.started" in system.corral("notify", "me")
        system.corral("notify", "me", "--off")
        with system.client() as client:
            assert client.notify_settings().settings == NotifySettings()

        # A refusal for good is a dead letter at once, and a wrong password is tried again.
        server.orders.append("550 no such user")
        failing(system)
        system.until(lambda: outbox(system).dead == 1, "the mail was given up")
        assert "answered 550: no such user" in outbox(system).messages[0].error
        secret.write_text("another\n")
        failing(system)
        system.until(
            lambda: any("refused the login (535)" in each.error for each in outbox(system).messages),
            "the login was refused",
        )
        secret.write_text("a password\n")
        system.corral("notify", "retry", "--all")
        system.until(lambda: not outbox(system).messages, "all mails were sent")
        log = system.log.read_text()
        assert "a password" not in log
        assert "another" not in log


def test_a_digest_and_a_reload_of_sinks(build: Callable[..., System]) -> None:
    with hook() as receiver:
        system = with_hook(build("gpu01"), receiver.url)
        system.sections["notify"]["rules"]["failed"]["every"] = "weekly"
        system.start()
        first, second = failing(system), failing(system)
        system.until(lambda: outbox(system).waiting == 2, "both notices wait for the digest")
        assert len({each.due for each in outbox(system).messages}) == 1
        # Another rule, which sends at once, and a sink that is removed.
        del system.sections["notify"]["rules"]["failed"]["every"]
        system.config.write_text(tomli_w.dumps(system.sections))
        system.corral("config", "apply", "--yes")
        third = failing(system)
        await_requests(system, receiver, 1)
        assert [each["job"] for each in receiver.bodies()[0]["notices"]] == [third]
        system.sections["notify"] = {"personal": False}
        system.config.write_text(tomli_w.dumps(system.sections))
        system.corral("config", "apply", "--yes")
        system.until(lambda: outbox(system).dead == 2, "messages without a sink are dead letters")
        assert {each.error for each in outbox(system).messages} == {"there is no sink ops any more"}
        assert first != second
