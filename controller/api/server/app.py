"""The API server. It opens the sockets, finds the route of each request and sends the answer."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from aiohttp import web
from multidict import MultiMapping
from pydantic import TypeAdapter, ValidationError

from controller.access.audit_log import AuditLog
from controller.access.certificates import OwnAuthority, host_names, site_context
from controller.api.handlers.jobs.forecasts import check_effect
from controller.api.server.access import NO_CALLER, SCOPE_HEADER, Caller, Role, in_scope
from controller.api.server.audit_entry import AuditedRequest, snapshot
from controller.api.server.errors import (
    Rejected,
    body_problem,
    error_response,
    not_leading_response,
    rejected,
)
from controller.api.server.event_stream import EventStreams
from controller.api.server.identity import Identity, read_token
from controller.api.server.leader_address import leader_address
from controller.api.server.listeners import LONGEST, Acceptor, UnixSocket, open_tcp
from controller.api.server.open_requests import OpenRequests
from controller.api.server.protocol import Connection, ConnectionLimit, Connections, connection_limit
from controller.api.server.request import Call, Route
from controller.api.server.request_turns import RequestTurns
from controller.api.server.routes import PUBLIC_ROUTES, find
from controller.config import Config
from controller.core.model.decision.decision import Refusal
from controller.daemon import Daemon, NotLeading
from controller.reload import ConfigReload
from wire.http import addresses

BODY_S = 10.0
"""Seconds within which the whole body of a request must arrive."""

ROUTE = web.RequestKey("route", tuple[str, str])
"""The key under which a request stores the method and the path of its route, for the count of requests."""

CLIENT_LEFT = 499
"""The status in the audit log of a request whose client has closed the connection before the answer."""

RENEWAL_S = 86_400.0
"""Seconds between two checks whether the controller's certificate expires soon."""

log = logging.getLogger("corral.api")

GRACE_S = 1.0
"""Seconds for which the server waits for open requests when it closes."""


async def serve(daemon: Daemon, reload: ConfigReload | None = None) -> Server:
    """Start the API server, and return the server. Raise OSError if the server cannot listen on one of its
    addresses.
    """
    server = Server(daemon, reload or ConfigReload(daemon))
    try:
        await server.open()
    except OSError:
        await server.close()
        raise
    return server


class Server:
    """The API server of one controller: its sockets, callers, open streams and request limits."""

    def __init__(self, daemon: Daemon, reload: ConfigReload) -> None:
        config = daemon.config
        self._daemon = daemon
        self._reload = reload
        self._listen = config.api.listen
        tokens = [
            read_token(config.state_dir / name) if self._listen else "" for name in ("token", "token.read")
        ]
        self._identity = Identity(
            lambda: daemon.config, tokens[0], tokens[1], lambda: daemon.state.tokens, daemon.now
        )
        self._open = OpenRequests(lambda: daemon.state.tokens, lambda: daemon.config, daemon.now)
        audit = config.access.audit
        self._audit = AuditLog(
            config.state_dir / "audit", file_mib=audit.file_mib, files=audit.files, syslog=audit.syslog
        )
        self._streams = EventStreams(daemon)
        self._connections = Connections(
            self._answer,
            ConnectionLimit(
                self._identity, connection_limit(config.api.max_connections), config.api.max_per_address
            ),
        )
        self._max_body = config.api.max_body
        self._turns = RequestTurns()
        self._own_authority = _own_authority(config) if self._listen else None
        self._tls: ssl.SSLContext | None = None
        if self._own_authority is not None:
            self._tls = self._own_authority.context
        elif config.api.certificate:
            self._tls = site_context(config.api.certificate, config.api.key)
        self._renewal: asyncio.TimerHandle | None = None
        self._acceptors: list[Acceptor] = []
        self._sockets: list[UnixSocket] = []
        self.url = f"unix://{config.socket}"
        self.tcp_url = ""

    async def open(self) -> None:
        """Start listening on the unix sockets, and on a TCP address if one is configured."""
        if self._listen:
            line = open_tcp(self._listen)
            host, port = line.getsockname()[:2]
            scheme = "http" if self._tls is None else "https"
            self.tcp_url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
            self._acceptors.append(Acceptor(line, self._connections, self._tls))
            if self._own_authority is not None:
                log.info(
                    "TLS: the certificate authority has the fingerprint %s", self._own_authority.fingerprint
                )
                self._renew()
        path = self._daemon.config.socket
        self._listen_on(path)
        private = Path(addresses.admin_socket(str(path)))
        # Also open the private socket, to which only root and the controller's user may connect. Leave this
        # socket out if its path is too long for a unix socket, because root can use the other socket.
        if len(os.fsencode(private)) <= LONGEST:
            self._listen_on(private, private=True)

    def _renew(self) -> None:
        """Renew the controller's certificate if it expires soon, and check again after RENEWAL_S seconds."""
        if self._own_authority is not None:
            self._own_authority.renew()
        self._renewal = asyncio.get_running_loop().call_later(RENEWAL_S, self._renew)

    def _listen_on(self, path: Path, *, private: bool = False) -> None:
        made = UnixSocket(path, private=private)
        self._sockets.append(made)
        self._acceptors.append(Acceptor(made.line, self._connections))

    async def close(self) -> None:
        """Stop listening, wait up to GRACE_S for open requests, and remove the unix sockets."""
        for each in self._sockets:
            each.remove()
        for acceptor in self._acceptors:
            acceptor.close()
        if self._renewal is not None:
            self._renewal.cancel()
        self._streams.close()
        await self._open.close()
        self._connections.pre_shutdown()
        await self._connections.shutdown(GRACE_S)
        self._audit.close()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        audited = AuditedRequest()
        problem = ""
        try:
            response = await self._carry_out(request, audited)
        except asyncio.CancelledError:
            # Record the request although the client has closed the connection, because the engine may still
            # carry out the change.
            self._record(request, audited, CLIENT_LEFT, "the client closed the connection; see the events")
            raise
        except Exception as error:
            problem = error.refusal.message if isinstance(error, Rejected) else type(error).__name__
            if request.writer.output_size:
                # Raise the error again, because a part of the answer is already sent, and no error status can
                # be sent. handle_error() closes the connection.
                self._record(request, audited, CLIENT_LEFT, problem)
                raise
            response = (
                not_leading_response(error, leader_address(self._daemon, request))
                if isinstance(error, NotLeading)
                else error_response(error)
            )
            if not request.content.is_eof():
                response.force_close()
        self._record(request, audited, response.status, problem)
        standby = self._daemon.standby
        if standby is not None and not response.prepared:
            # Tell clients that the answer is from a controller that follows the leader, and how old the
            # answer is.
            response.headers["Corral-Leader"] = leader_address(self._daemon, request)
            response.headers["Corral-As-Of"] = f"{standby.as_of:.3f}"
        # Count all requests to unknown paths under the name "other". Otherwise each path that a client
        # invents would add a line to /metrics.
        method, path = request.get(ROUTE, ("other", "other"))
        self._daemon.counters.requests[method, path, response.status] += 1
        return response

    def _record(self, request: web.BaseRequest, audited: AuditedRequest, status: int, problem: str) -> None:
        """Add the request to the audit log if `AuditedRequest.is_recorded` returns True."""
        if audited.is_recorded(status):
            address, daemon = peer_address(request), self._daemon
            self._audit.record(
                audited.entry(daemon.state, request.method, address, status, problem, daemon.now())
            )

    async def _carry_out(self, request: web.BaseRequest, audited: AuditedRequest) -> web.StreamResponse:
        if (request.method, request.rel_url.raw_path) in PUBLIC_ROUTES:
            self._refuse_if_full(request)
            caller = audited.caller = NO_CALLER
        else:
            caller = audited.caller = await self._caller_in_scope(request)
        route, path = find(request.method, request.rel_url.raw_path)
        audited.route, audited.path = route, path
        request[ROUTE] = route.method, route.path
        if caller.role is Role.ADMIN or route.slow:
            return await self._handle(request, caller, route, path, audited)
        async with self._turns.of(caller.user):
            return await self._handle(request, caller, route, path, audited)

    async def _caller_in_scope(self, request: web.BaseRequest) -> Caller:
        found = in_scope(await self._caller(request), request.headers.get(SCOPE_HEADER, ""))
        if isinstance(found, Refusal):
            raise Rejected(found)
        return found

    async def _handle(
        self,
        request: web.BaseRequest,
        caller: Caller,
        route: Route,
        path: Mapping[str, str],
        audited: AuditedRequest,
    ) -> web.StreamResponse:
        call = self._call(request, caller, path)
        if not route.slow:
            return await self._carry_out_call(call, route, audited)

        async def permit() -> None:
            again = self._call(request, await self._caller_in_scope(request), path)
            await again.permit(route.needs)
            if route.needs.of_job:
                await again.permit(route.needs, await again.job())

        with self._open.watched(request, permit):
            return await self._carry_out_call(call, route, audited)

    def _call(self, request: web.BaseRequest, caller: Caller, path: Mapping[str, str]) -> Call:
        address = peer_address(request)
        return Call(
            *(self._daemon, self._reload, self._identity, self._streams, request, caller, path),
            *(self._audit, self._own_authority.pem if self._own_authority is not None else b"", address),
        )

    async def _carry_out_call(self, call: Call, route: Route, audited: AuditedRequest) -> web.StreamResponse:
        request = call.request
        if route.of_leader or route.method != "GET":
            self._daemon.refuse_unless_leading()
        await call.permit(route.needs)
        if route.needs.of_job:
            job = await call.job()
            audited.of_other = job.user != call.caller.user
            await call.permit(route.needs, job)
        if route.needs.changes:
            audited.before = snapshot(self._daemon.state, call.path, route.path)
            await check_effect(call)
        if route.query or request.rel_url.raw_query_string:
            call.query = _query(route, request.query)
        if route.body is None:
            answer = await route.handle(call)
        else:
            audited.body = _understand(route.body, await self._body(request))
            answer = await route.handle(call, audited.body)
        audited.answer = answer
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.Response(
            body=_adapter(answer.__class__).dump_json(answer),
            status=route.status,
            content_type="application/json",
        )

    def _refuse_if_full(self, request: web.BaseRequest) -> Connection:
        connection = cast(Connection, request.protocol)
        if not connection.accepted:
            connection.close()
            raise rejected("busy", "there are too many connections", hint="Try again in a moment.")
        return connection

    async def _caller(self, request: web.BaseRequest) -> Caller:
        connection = self._refuse_if_full(request)
        header = request.headers.get("Authorization")
        if connection.uid is None:
            caller = await self._identity.of_token(header, peer_address(request))
            connection.note_token()
            return caller
        if header is not None and header.partition(" ")[2].strip().startswith("corral_"):
            # Give a client that sends a token only the rights of the token, also on the unix socket.
            return await self._identity.of_token(header)
        return await self._identity.of_uid(connection.uid)

    async def _body(self, request: web.BaseRequest) -> bytes:
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise rejected(
                "invalid", "compressed request bodies are not accepted", "Content-Encoding", status=415
            )
        if (request.content_length or 0) > self._max_body:
            raise web.HTTPRequestEntityTooLarge(self._max_body)
        content = request.content
        if content.is_eof():
            return content.read_nowait()
        if request.headers.get("Expect", "").casefold() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = bytearray()
        async with asyncio.timeout(BODY_S):
            async for piece in content.iter_any():
                body += piece
                if len(body) > self._max_body:
                    raise web.HTTPRequestEntityTooLarge(self._max_body)
        return bytes(body)


def _own_authority(config: Config) -> OwnAuthority | None:
    if config.api.tls != "auto":
        return None
    return OwnAuthority(config.state_dir / "tls", host_names(config.api.listen, config.api.url))


def peer_address(request: web.BaseRequest) -> str:
    """Return the IP address of the client; empty on a unix socket."""
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return str(peer[0]) if isinstance(peer, tuple) else ""


def _query(route: Route, sent: MultiMapping[str]) -> dict[str, Any]:
    known = {each.name: each for each in route.query}
    strange = [name for name in sent if name not in known]
    if strange:
        there = f"There are: {', '.join(known)}." if known else ""
        raise rejected("invalid", f"there is no parameter {strange[0]!r}", strange[0], there)
    return {name: each.value(sent.getall(name, [])) for name, each in known.items()}


def _understand(kind: Any, body: bytes) -> Any:
    """Parse the body of a request as an object of the class `kind`. Raise Rejected if this fails.

    For a submit of 365 bytes, pydantic takes 2 µs, and json.loads with wire.codec 12 µs. If a field occurs
    twice in the JSON object, the last value counts.
    """
    try:
        return _adapter(kind).validate_json(body or b"{}", strict=True, extra="forbid")
    except ValidationError as error:
        raise Rejected(body_problem(error, kind)) from None


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
