"""Routes of the configuration: show, compare, apply."""

from __future__ import annotations

from dataclasses import replace

from controller.api.server.access import Need, Role, admin, refusal
from controller.api.server.errors import Rejected, rejected
from controller.api.server.request import Call
from controller.config import ConfigRefused, digest, settings
from controller.reload import ConfigNotWritable, ReloadPlan
from wire.api.service.config import ConfigAnswer, ConfigRequest, ConfigSettings, ConfigView
from wire.text import printable

SEND = admin("send a configuration, because it may name a prolog, which runs as root on every node")


async def show(call: Call) -> ConfigView:
    """Show the hash of the current configuration, and the time and the user of its last change."""
    await call.daemon.settled()
    reload, applied = call.reload, call.daemon.state.config
    named, known = digest(call.daemon.config), reload.previous is not None
    url = call.daemon.config.store_url
    view = ConfigView(
        str(reload.file or ""), named, previous=known, store=url if url.startswith("sqlite:") else ""
    )
    if applied is None or applied.digest != named:
        return view
    return replace(view, since=applied.at, by=applied.by)


async def keys(call: Call) -> ConfigSettings:
    """List all keys of the configuration in effect, with the source of each.

    The source is a line of the file, an environment variable, or default. Secrets are not shown."""
    config = call.daemon.config
    return ConfigSettings(settings(config), digest(config))


async def apply(call: Call, request: ConfigRequest) -> ConfigAnswer:
    """Apply another configuration. With `dry_run`, only report the changes."""
    text = _text(call, request)
    named = digest(call.daemon.config)
    if request.expect and request.expect != named:
        raise rejected(
            "conflict",
            f"another configuration, {named}, was applied meanwhile",
            "expect",
            "'corral config diff' shows what differs from it.",
        )
    reload = call.reload
    try:
        if request.dry_run:
            plan = reload.plan(text)
            shown = request.text is None and call.caller.role is Role.ADMIN
            return _answer(call, named, plan, text=plan.read.source.text if shown else "")
        if text is not None:
            _need(SEND, call)
        plan, notes = await reload.apply(text, call.caller.user)
    except ConfigRefused as refused:
        problems = tuple(_with_callers_file_name(str(each), call, request) for each in refused.problems)
        return ConfigAnswer(str(reload.file or ""), named, problems=problems)
    except ConfigNotWritable as unwritable:
        raise rejected("conflict", unwritable.message, "text", unwritable.hint) from None
    return _answer(call, named, plan, applied=True, notes=notes)


def _need(need: Need, call: Call) -> None:
    refused = refusal(need, call.caller)
    if refused is not None:
        hint = "Operators may apply the controller's own file: 'corral config apply' without FILE."
        raise Rejected(replace(refused, hint=hint))


def _text(call: Call, request: ConfigRequest) -> str | None:
    """Return the text of the scheduler.toml that the request sends or, with `previous`, of the previous
    configuration. Return None if the request means the controller's own file.
    """
    if not request.previous:
        return request.text
    if request.text is not None:
        raise rejected("invalid", "excludes a text", "previous")
    _need(SEND, call)
    previous = call.reload.previous
    if previous is None:
        message = "there is no previous configuration: this controller has had only one"
        raise rejected("not_found", message, "previous")
    return previous


def _answer(
    call: Call,
    named: str,
    plan: ReloadPlan,
    *,
    applied: bool = False,
    notes: tuple[str, ...] = (),
    text: str = "",
) -> ConfigAnswer:
    file = str(call.reload.file or "")
    return ConfigAnswer(file, named, plan.changes, (), applied, notes, text)


def _with_callers_file_name(problem: str, call: Call, request: ConfigRequest) -> str:
    """Return the error message `problem`. If the caller sent the text of a file, replace the name of the
    controller's file in the message by the name of the caller's file."""
    own = str(call.reload.file or "scheduler.toml")
    if request.text is None or not problem.startswith(own):
        return problem
    return printable(request.name, 300) + problem[len(own) :]
