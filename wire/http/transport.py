"""Sends HTTP requests over a unix socket or TCP. Raises Unreachable if no controller answers, and Refused if
the controller refuses the request.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
import urllib.parse
from typing import TYPE_CHECKING, Generator, Optional, Sequence, TypeVar, Union

from wire import VERSION
from wire.api.problem import Problem
from wire.codec import decode
from wire.http.connection import Connection, InvalidAnswer

if TYPE_CHECKING:
    # The modules ssl and ssh_tunnel take 8 ms to import, and most commands use a unix socket. Functions that
    # need these modules import them.
    import ssl

T = TypeVar("T")

_TIMEOUTS = (socket.timeout, TimeoutError)


class Unreachable(Exception):
    """Raised if no Corral controller answers at `url`."""

    def __init__(self, url: str, why: str, hint: str = "") -> None:
        super().__init__(f"no controller at {url}: {why}")
        self.url = url
        self.why = why
        self.hint = hint
        self.repeatable = True
        """False if the request may have been carried out, and would then be carried out twice if it were
        repeated.
        """


class Refused(Exception):
    """Raised if the controller has refused the request. `problem` has the reason."""

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(problem.message)
        self.status = status
        self.problem = problem


class LeaderElsewhere(Exception):
    """Raised if a standby has refused a request that needs the leader. `address` is the URL of the leader;
    empty if no controller leads at present. The standby has not carried out the request.
    """

    def __init__(self, address: str, problem: Problem) -> None:
        super().__init__(problem.message)
        self.address = address
        self.problem = problem


class Transport:
    """Sends requests over one connection that is kept open. Each endless answer, such as an event stream,
    gets a connection of its own.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float,
        token: str,
        *,
        ca: str = "",
        pin: str = "",
        tried: Sequence[str] = (),
        read_only: bool = False,
    ) -> None:
        self.url = url
        self._address = _address(url)
        self._secure = _secure(url, ca, pin) if url.startswith("https:") else None
        self._pinned = bool(pin) and not ca
        self._tried = tried
        self._timeout_s = timeout_s
        self._headers = {
            "User-Agent": f"corral/{VERSION}",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        if token and not (token.isascii() and token.isprintable()):
            raise Unreachable(
                url, "the token is not a line of printable ASCII", "Copy it from the controller's token file."
            )
        if read_only:
            self._headers["Corral-Scope"] = "read"
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self.what_if = ""
        """The id of the what-if answer that the user saw before the next request; empty if there is none."""
        self.leader: Optional[str] = None
        """The URL of the leader, if the last answer came from a standby; otherwise None."""
        self._kept: Optional[Connection] = None
        self._asking = False
        self._endless: set[socket.socket] = set()

    def ask(
        self,
        method: str,
        target: str,
        body: Optional[bytes],
        pauses: Sequence[float],
        *,
        question: bool,
        more_s: float = 0.0,
    ) -> bytes:
        """Send the request and return the body of the answer. If the connection is lost before the answer,
        wait and send the request again. `pauses` has one number for each repetition: the seconds to wait
        before it. Raise Unreachable if the connection is lost after the last repetition, if no connection
        could be opened, or if the answer does not arrive within the time limit.

        `question` is True for a request that changes nothing on the controller. `more_s` is added to the time
        limit for the answer.
        """
        self._asking = True
        try:
            return self._ask(method, target, body, list(pauses), question, self._timeout_s + more_s)
        finally:
            self._asking = False

    def _ask(
        self,
        method: str,
        target: str,
        body: Optional[bytes],
        pauses: list[float],
        question: bool,
        timeout_s: float,
    ) -> bytes:
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        if self.what_if:
            headers = {**headers, "Corral-What-If": self.what_if}
        sent = connected = False
        keyed = bool(pauses)
        while True:
            try:
                connected = False
                connection = self._connection()
                connected = sent = True
                if connection.sock is not None:
                    connection.sock.settimeout(timeout_s)
                answer = connection.request(method, target, body, headers)
                self.leader = answer.leader
                return self._body(answer.status, answer.read(), answer.location)
            except (OSError, InvalidAnswer) as error:
                self._drop()
                # Raise the error if no try is left, if the request could not be sent, or if the answer took
                # too long.
                if not pauses or not sent or isinstance(error, _TIMEOUTS):
                    unsure = sent and not question
                    failure = self._unreachable(error, connected, timeout_s, unsure=unsure)
                    failure.repeatable = not unsure or keyed
                    raise failure from None
                time.sleep(pauses.pop(0))

    def listen(self, target: str, silence_s: Optional[float]) -> Generator[bytes, None, None]:
        """Yield the body of the answer during its arrival. The connection counts as lost if nothing arrives
        for `silence_s` seconds; None means no limit.
        """
        line: Optional[socket.socket] = None
        try:
            connection = self._connect()
            line = connection.sock
            assert line is not None  # The connection has just been opened, so it has a socket.
            self._endless.add(line)
            line.settimeout(silence_s)
            answer = connection.request("GET", target, None, self._headers)
            self.leader = answer.leader
            if answer.status != 200:
                self._body(answer.status, answer.read(), answer.location)
            while piece := answer.read_some():
                yield piece
        except (OSError, InvalidAnswer) as error:
            raise self._unreachable(error, line is not None, self._timeout_s, unsure=False) from None
        finally:
            if line is not None:
                self._endless.discard(line)
                _shut(line)
                line.close()

    def close(self) -> None:
        """Close all connections. A thread that waits for an answer then gets Unreachable."""
        for line in list(self._endless):
            _shut(line)
        kept = self._kept
        if self._asking and kept is not None and kept.sock is not None:
            _shut(kept.sock)
        else:
            self._drop()

    def decode_answer(self, kind: type[T], answer: bytes) -> T:
        """Return the answer decoded as `kind`. Raise Unreachable if the answer does not match this type."""
        try:
            return decode(kind, json.loads(answer))
        except (ValueError, RecursionError) as error:
            raise Unreachable(
                self.url,
                f"the answer is not a {kind.__name__} of Corral ({str(error)[:200]})",
                f"Check that a Corral controller of this client's version ({VERSION}) listens there.",
            ) from None

    def _body(self, status: int, answer: bytes, location: str) -> bytes:
        if 200 <= status < 300:
            return answer
        problem = self.decode_answer(Problem, answer)
        # A controller that is about to stop counts as unreachable, because clients should wait for its
        # restart.
        if problem.code in ("not_leader", "no_leader"):
            raise LeaderElsewhere(location, problem)
        if problem.code == "stopping":
            raise Unreachable(self.url, problem.message, problem.hint)
        raise Refused(status, problem)

    def _connection(self) -> Connection:
        # Drop a kept connection that the server has closed. A request on this connection would fail, and a
        # repeated request might be carried out twice.
        if self._kept is not None and (self._kept.sock is None or _readable(self._kept.sock)):
            self._drop()
        if self._kept is None:
            self._kept = self._connect()
        return self._kept

    def _connect(self) -> Connection:
        address = self._address
        if self.url.startswith("ssh:"):
            from wire.http import ssh_tunnel

            address = ssh_tunnel.open_tunnel(self.url, self._timeout_s)
        connection = Connection(address, self._timeout_s, self._secure)
        connection.connect()
        return connection

    def _drop(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def _unreachable(
        self, error: Exception, connected: bool, timeout_s: float, *, unsure: bool
    ) -> Unreachable:
        if not connected:
            why, hint = _connection_error(error, self.url, pinned=self._pinned)
            if self._tried:
                # The user has set no URL, so list the addresses at which the client looked for a controller.
                hint = "\n".join([hint, "Looked for a controller in this order:", *self._tried, self.url])
        elif isinstance(error, _TIMEOUTS):
            why, hint = (
                f"no answer within {timeout_s:g} s",
                "Try again, or look at the controller's log.",
            )
        else:
            why, hint = "the connection was lost before the answer was complete", "Try again in a moment."
            if self.url.startswith("ssh:"):
                from wire.http import ssh_tunnel

                socket_there = ssh_tunnel.remote_socket(self.url)
                hint = (
                    f"Check that a controller listens at {socket_there} on that host. "
                    "For another socket write ssh://HOST/PATH."
                )
        if unsure:
            hint = "The request may have been carried out: check before you repeat it."
        return Unreachable(self.url, why, hint)


def _address(url: str) -> Union[str, tuple[str, int]]:
    """Return the address in a URL: the path of a unix socket, or host and port. For an ssh URL return an
    empty path, because ssh forwards the socket.
    """
    if url.startswith("unix:///") and len(url) > len("unix:///"):
        return url[len("unix://") :]
    hint = "Write unix:///path/to/corral.sock, ssh://[user@]host, https://host or http://host:port."
    if url.startswith("ssh:"):
        from wire.http import ssh_tunnel

        try:
            ssh_tunnel.ssh_command(url, "")
        except ValueError as error:
            raise Unreachable(url, f"not an address ({error})", hint) from None
        return ""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Unreachable(url, f"not an address ({error})", hint) from None
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    if usual and parts.hostname and parts.path in ("", "/") and parts.username is None:
        return parts.hostname, port or usual
    raise Unreachable(url, "not an address", hint)


def _secure(url: str, ca: str, pin: str = "") -> ssl.SSLContext:
    """Return TLS settings that check the certificate and the name of the server. `ca` is a file with
    certificate authorities, and `pin` the PEM text of one. If `ca` is set, only its authorities are trusted.
    If only `pin` is set, only that authority is trusted, because otherwise every public authority could issue
    a certificate for a false server at this address.
    """
    import ssl

    if pin and not ca:
        try:
            return ssl.create_default_context(cadata=pin)
        except ssl.SSLError as error:
            why = f"the pinned certificate authority cannot be read ({error})"
            raise Unreachable(url, why, "Pin it again: corral config trust URL") from None
    if ca:
        try:
            return ssl.create_default_context(cafile=os.path.expanduser(ca))
        except (OSError, ssl.SSLError) as error:
            why = f"the certificates of the authority in {ca} cannot be read ({error})"
            hint = "Set CORRAL_CA or 'corral config add --ca' to a PEM file."
            raise Unreachable(url, why, hint) from None
    return ssl.create_default_context()


def _connection_error(error: Exception, url: str, *, pinned: bool) -> tuple[str, str]:
    """Return two sentences: why the connection failed, and how the user can repair the cause."""
    import ssl

    from wire.http import ssh_tunnel

    start = "Start one with 'corral controller', or set CORRAL_URL to the address of one."
    if isinstance(error, ssh_tunnel.TunnelBroken):
        return str(error), "Check that 'ssh' reaches that host, and that a controller runs there."
    if isinstance(error, ssl.SSLCertVerificationError):
        if pinned:
            why = f"its certificate is not of the authority that is pinned: {error.verify_message}"
            hint = (
                "Another computer may answer in place of the controller. Ask an admin before you trust it: "
                f"corral config trust {url} --replace"
            )
            return why, hint
        hint = (
            f"If the controller has an authority of its own, pin it: corral config trust {url}\n"
            "If a private authority signed the certificate, set CORRAL_CA to the authority's PEM file."
        )
        return f"its certificate is not accepted: {error.verify_message}", hint
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection ({error.reason or error})", "If the server uses plain HTTP, write http://."
    if isinstance(error, FileNotFoundError):
        return "the socket does not exist", start
    if isinstance(error, ConnectionRefusedError):
        return "no process listens there", start
    if isinstance(error, PermissionError):
        return "you may not open this socket", "Ask for access, or set CORRAL_URL to another controller."
    if isinstance(error, _TIMEOUTS):
        return "no connection within the time limit", "Check the address, and that the host is up."
    return str(error) or type(error).__name__, "Check the address in CORRAL_URL."


def _readable(line: socket.socket) -> bool:
    # Return True if the idle connection has data to read. This means that the server has closed the
    # connection, or is no HTTP server.
    poll = select.poll()
    poll.register(line, select.POLLIN)
    return bool(poll.poll(0))


def _shut(line: socket.socket) -> None:
    # Shut the socket down first, because close() alone does not wake a thread that reads from it.
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
