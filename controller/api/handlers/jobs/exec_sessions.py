"""Routes of `corral exec`: commands in the allocation of a running job."""

from __future__ import annotations

import secrets
from base64 import b64decode
from binascii import Error as NotBase64

from aiohttp import web

from controller.api.handlers.jobs.logs import node_of
from controller.api.server.errors import rejected
from controller.api.server.request import Call
from controller.nodes.exec_sessions import ExecSession
from controller.nodes.link import NodeAway
from wire.agent.orders import OpenShell
from wire.agent.reports import ShellOutput
from wire.api.jobs import ShellGiven, ShellOpened, ShellRequest, ShellSaid
from wire.codec import dumps, encode
from wire.names import JobState


async def open_one(call: Call, request: ShellRequest) -> ShellOpened:
    """Run a command, by default a login shell, in the allocation of a running job, as the job's user."""
    job = await call.job()
    name = node_of(job, request.node)
    if job.state is not JobState.RUNNING or job.members[name].ended_at is not None:
        message = (
            f"job {job.label} is not running{f' on {name}' if request.node else ''}: it is {job.state.value}"
        )
        raise rejected("conflict", message, "job")
    link = call.daemon.agents.links.get(name)
    if link is None:
        raise NodeAway(f"node {name} is not in the configuration")
    shell = link.session().open_shell(
        OpenShell(
            *(0, job.id, job.attempt, request.command),
            *(request.tty, request.rows, request.columns, request.term),
            variables=request.variables,
        )
    )
    key = secrets.token_urlsafe(16)
    shells = call.streams.shells
    for old in [old for old, (_, each) in shells.items() if each.closed]:
        del shells[old]
    shells[key] = (call.caller.user, shell)
    return ShellOpened(key)


async def read(call: Call) -> web.StreamResponse:
    """Send the command's output and exit code as lines of JSON. Closing the connection ends the command."""
    shell = _find(call)
    if shell.read:
        raise rejected("conflict", "another client reads this shell already", "shell")
    response = web.StreamResponse(
        headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"}
    )
    answers = shell.answers()
    await response.prepare(call.request)
    try:
        async for said in answers:
            shown = (
                ShellSaid(said.stream, said.data)
                if isinstance(said, ShellOutput)
                else ShellSaid("", "", True, said.code, said.signal, said.error)
            )
            await response.write((dumps(encode(shown)) + "\n").encode())
    except NodeAway as away:
        await response.write((dumps(encode(ShellSaid(end=True, error=str(away)))) + "\n").encode())
    finally:
        await answers.aclose()  # type: ignore[attr-defined]
    await response.write_eof()
    return response


async def write(call: Call, request: ShellGiven) -> ShellOpened:
    """Send bytes or end of file to the command's stdin, or set the size of its terminal."""
    shell = _find(call)
    try:
        data = b64decode(request.data, validate=True)
    except NotBase64:
        raise rejected("invalid", "is not base64", "data") from None
    if request.rows and request.columns:
        shell.resize(request.rows, request.columns)
    if data or request.end:
        shell.write(data, end=request.end)
    return ShellOpened(call.path["shell"])


def _find(call: Call) -> ExecSession:
    user, shell = call.streams.shells.get(call.path["shell"], ("", None))
    if shell is None or user != call.caller.user or shell.closed:
        raise rejected("not_found", "there is no such shell; it may have ended", "shell")
    return shell
