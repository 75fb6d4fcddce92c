"""The audit log records changes and refusals, leaves out secrets, and detects changes of its file."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import resource
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from controller.access.audit_log import FILE, AuditLog
from tests.controller.api.running_controller import RunningController, start_controller
from tests.controller.api.server.test_tokens import ask, make
from tests.limits import PATIENCE_S
from wire.api.service.access import AuditRecord

OWN = pwd.getpwuid(os.geteuid()).pw_name


def entry(**more: Any) -> AuditRecord:
    usual: dict[str, Any] = {"at": 1.0, "caller": "ada", "role": "user", "token": "", "address": "10.0.0.1"}
    usual |= {"action": "POST /v1/jobs", "object": "", "outcome": "ok", "status": 200, **more}
    return AuditRecord(0, **usual)


async def test_changes_and_refusals_are_recorded_without_secrets(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(tmp_path / "log"))
    listener.setblocking(False)
    access = {"audit": {"syslog": str(tmp_path / "log")}}
    async with start_controller(access=access, api={"listen": "127.0.0.1:0"}) as api:
        job = await api.submit("sh", "-c", "hush-1", hold=True, env={"KEY": "hush-2"})
        assert (await api.post(f"/v1/jobs/{job}/set", {"changes": {"name": "two", "env": {"A": "hush-3"}}}))[
            0
        ] == 200
        id, text = await make(api, "read")
        assert (await ask(api, text, "POST", f"/v1/jobs/{job}/cancel"))[0] == 403
        assert (await ask(api, "hush-4", "GET", "/v1/jobs"))[0] == 401
        assert (await api.get("/v1/jobs"))[0] == 200
        assert (await api.post(f"/v1/jobs/{job}/cancel"))[0] == 200
        status, page = await api.get("/v1/audit")
        assert status == 200
        told = [
            (each["caller"], each["token"], each["address"], each["action"], each["object"], each["status"])
            for each in page["entries"]
        ]
        assert told == [
            (OWN, "", "", "POST /v1/jobs", "", 201),
            (OWN, "", "", "POST /v1/jobs/{job}/set", f"job {job}", 200),
            (OWN, "", "", "POST /v1/tokens", "", 201),
            (OWN, id, "127.0.0.1", "POST /v1/jobs/{job}/cancel", f"job {job}", 403),
            ("", "", "127.0.0.1", "GET", "", 401),
            (OWN, "", "", "POST /v1/jobs/{job}/cancel", f"job {job}", 200),
        ]
        submitted, changed, _, refused, _, cancelled = page["entries"]
        assert submitted["after"] == {"jobs": [job], "count": 1}
        assert changed["after"]["name"] == "two" != changed["before"]["name"]
        assert refused["outcome"].startswith("refused: this token may not cancel")
        assert (cancelled["before"]["state"], cancelled["after"]["state"]) == ("QUEUED", "CANCELLED")
        assert (page["broken_at"], page["head"]) == (None, cancelled["chain"])
        whole = json.dumps(page) + (api.daemon.config.state_dir / "audit" / FILE).read_text()
        assert "hush" not in whole
        assert text not in whole
        assert (await ask(api, text, "GET", "/v1/audit"))[0] == 403
        first = listener.recv(65_536)
        assert first.startswith(b"<86>corral-audit: ")
        assert json.loads(first.partition(b": ")[2])["chain"] == submitted["chain"]
    listener.close()


async def test_change_of_a_client_that_leaves_is_recorded(
    api: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await api.submit(hold=True)
    entered, gate = threading.Event(), threading.Event()
    commit = api.daemon.store.commit

    def held(batch: Any) -> None:
        entered.set()
        gate.wait(PATIENCE_S)
        commit(batch)

    monkeypatch.setattr(api.daemon.store, "commit", held)
    _, writer = await asyncio.open_unix_connection(str(api.socket))
    writer.write(f"POST /v1/jobs/{job}/cancel HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
    await asyncio.to_thread(entered.wait, PATIENCE_S)
    writer.close()
    log = api.server._audit
    async with asyncio.timeout(PATIENCE_S):
        while log.page(0, 10).entries[-1].status != 499:
            await asyncio.sleep(0.01)
    gate.set()
    assert log.page(0, 10).entries[-1].object == f"job {job}"
    assert (await api.get(f"/v1/jobs/{job}"))[1]["job"]["state"] == "CANCELLED"


def test_changed_and_deleted_entries_show(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, file_mib=1, files=2, syslog="")
    for number in range(5):
        log.record(entry(at=float(number)))
    lines = (tmp_path / FILE).read_text().splitlines(keepends=True)
    assert log.page(0, 10).broken_at is None
    for changed, broken in (
        ([*lines[:2], lines[2].replace("ada", "eve"), *lines[3:]], 3),
        ([*lines[:2], *lines[3:]], 4),
        ([*lines[:2], lines[3], lines[2], lines[4]], 4),
    ):
        (tmp_path / FILE).write_text("".join(changed))
        assert log.page(0, 10).broken_at == broken
    # After a restart the log goes on, also behind a line that a crash cut off.
    (tmp_path / FILE).write_text("".join(lines) + lines[0][:20])
    log.close()
    log = AuditLog(tmp_path, file_mib=1, files=2, syslog="")
    log.record(entry())
    page = log.page(0, 10)
    assert ([each.seq for each in page.entries], page.broken_at) == ([1, 2, 3, 4, 5, 6], None)
    log.close()


def test_entry_that_the_full_disk_cuts_off_spoils_no_other_entry(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(tmp_path, file_mib=1, files=2, syslog="")
    log.record(entry(object="job 1"))
    whole = (tmp_path / FILE).read_bytes()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The limit lets the kernel write 20 more bytes of the file, as on a disk that is nearly full.
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 20, before[1]))
    try:
        log.record(entry(object="job 2"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / FILE).read_bytes() == whole
    assert "an entry of the audit log is lost" in caplog.text
    assert "job 2" in caplog.text
    log.record(entry(object="job 3"))
    page = log.page(0, 10)
    assert [(each.seq, each.object) for each in page.entries] == [(1, "job 1"), (2, "job 3")]
    assert page.broken_at is None
    log.close()


def test_log_is_bounded_and_a_flood_of_refusals_is_counted(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, file_mib=0.002, files=2, syslog="")
    for number in range(100):
        log.record(entry(object=f"job {number}"))
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert sum(path.stat().st_size for path in files) < 3 * 4_096
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    page = log.page(0, 1_000)
    assert (page.seq, page.entries[-1].seq, page.broken_at) == (100, 100, None)
    for _ in range(500):
        log.record(entry(status=403, outcome="refused: no", caller="eve"))
    log.record(entry(object="important"))
    page = log.page(100, 1_000)
    assert page.seq == 111
    assert page.entries[-1].object == "important"
    log.close()
