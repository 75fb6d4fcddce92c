"""Converts exceptions to HTTP statuses and JSON bodies (`Problem`). No other module does this."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from controller.config import names_beside, nearest
from controller.core.model.decision.decision import Refusal
from controller.daemon import NotLeading, Stopping
from controller.nodes.link import LogMissing, NodeAway
from controller.store.errors import StoreFailure, StoreFull, StoreUnavailable
from wire.api.problem import Problem
from wire.text import printable

STATUS = {
    "invalid": 400,
    "not_leader": 307,
    "not_allowed": 403,
    "not_found": 404,
    "no_such_method": 405,
    "timeout": 408,
    "conflict": 409,
    "too_large": 413,
    "never_fits": 422,
    "over_quota": 403,
    "internal": 500,
    "busy": 503,
    "no_leader": 503,
    "node_away": 503,
    "stopping": 503,
    "storage_full": 507,
}

_TYPES = {
    "missing": "is missing",
    "unexpected_keyword_argument": "is not a field of this",
    "extra_forbidden": "is not a field of this",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "mapping_type": "must be an object",
    "dict_type": "must be an object",
    "dataclass_type": "must be an object",
    "string_unicode": "is not valid Unicode",
}
_PROBLEM = TypeAdapter(Problem)

log = logging.getLogger("corral.api")


class Rejected(Exception):
    """Raised if a handler or the engine refuses a request. The answer has the refusal."""

    def __init__(
        self, refusal: Refusal, status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
        self.status = status
        self.headers = headers


def rejected(
    code: str,
    message: str,
    where: str = "",
    hint: str = "",
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Rejected:
    """Return the exception for a refusal. `where` is the field of the request that caused the refusal."""
    return Rejected(Refusal(code, message, where, hint), status, headers)


def refusal_response(
    refusal: Refusal, status: int | None = None, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return the HTTP answer to a request that was refused. If `status` is None, the HTTP status follows from
    the refusal's code, such as 404 from not_found."""
    return web.Response(
        body=_PROBLEM.dump_json(problem_of(refusal)),
        status=status or STATUS[refusal.code],
        headers=headers,
        content_type="application/json",
    )


def problem_of(refusal: Refusal) -> Problem:
    """Return the JSON body of the answer to a refused request."""
    return Problem(
        refusal.code,
        printable(refusal.message, 1_000),
        printable(refusal.where),
        printable(refusal.hint, 500),
    )


def not_leading_response(failure: NotLeading, address: str) -> web.Response:
    """Return the answer to a request that needs the leader, if this controller is not the leader. The header
    Location has `address`, the URL of the leader without the path of the request; clients of Corral repeat
    the request there. `address` is empty if no address is known at which the client can reach the leader.
    """
    if failure.leads and not address:
        message = "this controller does not lead, and the leader has announced no address for other hosts"
        hint = "Set [api] url in the scheduler.toml of each controller, or send the request to the leader."
        return refusal_response(Refusal("no_leader", message, hint=hint))
    if not address:
        hint = "Try again in a few seconds, when a controller has taken over."
        return refusal_response(Refusal("no_leader", "no controller leads at present", hint=hint))
    message = f"this controller does not lead; the leader is {address}"
    hint = f"Send the request to {address}."
    return refusal_response(Refusal("not_leader", message, hint=hint), headers={"Location": address})


def error_response(error: BaseException) -> web.Response:
    """Return the HTTP answer to a request whose handler raised this error. An error of an unexpected class is
    logged with its traceback as a bug."""
    match error:
        case Rejected():
            return refusal_response(error.refusal, error.status, error.headers)
        case NotLeading():
            return not_leading_response(error, "")
        case StoreFull(message=message, hint=hint):
            return refusal_response(Refusal("storage_full", message, hint=hint))
        case StoreUnavailable(message=message, hint=hint):
            return refusal_response(Refusal("busy", message, hint=hint))
        case StoreFailure(message=message):
            log.error("%s", message)
            return refusal_response(
                Refusal(
                    "stopping", "the controller cannot write its journal", hint="See the controller's log."
                )
            )
        case Stopping():
            return refusal_response(
                Refusal("stopping", "the controller is shutting down", hint="Try again in a moment.")
            )
        case NodeAway():
            return refusal_response(
                Refusal(
                    "node_away",
                    str(error),
                    "node",
                    "Try again when the node is connected: 'corral nodes' shows this.",
                )
            )
        case LogMissing():
            return refusal_response(Refusal("not_found", str(error), "stream"))
        case web.HTTPRequestEntityTooLarge():
            return refusal_response(Refusal("too_large", "the body is larger than [api] max_body allows"))
        case web.RequestPayloadError():
            return refusal_response(Refusal("invalid", "the body does not match its headers"))
        case asyncio.TimeoutError():
            return refusal_response(Refusal("timeout", "the body did not arrive in time"))
    log.error("a request failed", exc_info=error)
    return refusal_response(
        Refusal("internal", "this is a bug in the controller", hint="The controller's log has the details.")
    )


def body_problem(error: ValidationError, kind: type) -> Refusal:
    """Return the refusal of an invalid request body. The refusal names the first mistake and its JSON
    field.
    """
    found = error.errors(include_url=False, include_input=False)
    first = found[0]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    if first["type"] == "json_invalid":
        return Refusal("invalid", f"the body is not JSON: {first['ctx']['error']}")
    message = _TYPES.get(first["type"]) or first["msg"].replace("Input should", "must", 1)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    hint = ""
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        hint = nearest(str(first["loc"][-1]), names_beside(kind, first["loc"]))
    return Refusal("invalid", f"{'' if where else 'the body '}{message}{more}", where, hint)
