"""Who is asking: the kernel's word on a unix socket, a token on TCP; and what they may do."""

from __future__ import annotations

import asyncio
import enum
import hmac
import os
import pwd
import re
import secrets
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from controller.api.errors import Rejected
from controller.config import Config
from controller.core.inputs import Refusal

T = TypeVar("T")

FRESH_S = 300.0
"""How long the name of a uid is taken as known: asking for it may mean asking a directory server."""

_CREDENTIALS = struct.Struct("3i")
_USER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


class Role(enum.Enum):
    """What somebody may do, least first."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody with a name and a role."""

    user: str
    role: Role

    @property
    def operates(self) -> bool:
        """May change every job and node."""
        return self.role in (Role.OPERATOR, Role.ADMIN)

    def owns(self, user: str) -> bool:
        """May see all of this user's jobs and change them."""
        return self.operates or (self.user == user and self.role is not Role.VIEWER)


def peer_uid(line: socket.socket) -> int | None:
    """The uid at the other end of a unix socket, as it was when it connected; None on TCP."""
    if line.family != socket.AF_UNIX:
        return None
    sent = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(sent)
    return int(uid)


class Identity:
    """Knows who is who. Root and the controller's own user are admins."""

    def __init__(self, config: Config, token: str) -> None:
        self._access = config.access
        self._token = token.encode()
        self._own = os.geteuid()
        self._known: dict[int, tuple[float, Caller]] = {}

    def privileged(self, uid: int | None) -> bool:
        """True for those who must get in even when the house is full."""
        return uid in (0, self._own)

    async def of_uid(self, uid: int) -> Caller:
        """The caller behind a unix socket."""
        until, caller = self._known.get(uid, (0.0, None))
        if caller is None or until < time.monotonic():
            user = await _away(partial(_user_name, uid))
            caller = Caller(user, self._role(uid, user))
            self._known[uid] = (time.monotonic() + FRESH_S, caller)
        return caller

    async def of_token(self, header: str | None) -> Caller:
        """The caller on TCP: whoever has the token is taken for the controller's user."""
        scheme, _, given = (header or "").partition(" ")
        if scheme.casefold() != "bearer" or not hmac.compare_digest(os.fsencode(given.strip()), self._token):
            raise Rejected(
                Refusal(
                    "not_allowed",
                    "this address wants a token, and none or a wrong one was given",
                    "Authorization",
                    "Send 'Authorization: Bearer …' with the token that stands in <state_dir>/token.",
                ),
                status=401,
                headers={"WWW-Authenticate": "Bearer"},
            )
        return await self.of_uid(self._own)

    def _role(self, uid: int, user: str) -> Role:
        if self.privileged(uid):
            return Role.ADMIN
        if user in self._access.operators:
            return Role.OPERATOR
        return Role.VIEWER if self._access.others == "view" else Role.USER

    async def acting(self, caller: Caller, user: str) -> str:
        """The user a submit is for: the caller, or somebody an operator may act for."""
        if user in ("", caller.user):
            return caller.user
        if not caller.operates:
            raise Rejected(forbidden("submit as somebody else", "as_user"))
        if not _USER_NAME.fullmatch(user):
            raise Rejected(Refusal("invalid", "is not the name of a user", "as_user"))
        if caller.role is not Role.ADMIN and self.privileged(await _away(partial(_uid_of, user))):
            message = f"only an administrator may submit as {user}"
            raise Rejected(
                Refusal("not_allowed", message, "as_user", "Nobody may give away more than he has.")
            )
        return user


def forbidden(what: str, where: str = "") -> Refusal:
    """The refusal of what takes an operator."""
    return Refusal(
        "not_allowed",
        f"only operators may {what}",
        where,
        "Operators are root, the controller's own user, and [access] operators in scheduler.toml.",
    )


async def _away(ask: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, ask)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid:{uid}"  # no user can be called that


def _uid_of(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return 0 if user == "root" else None


def read_token(path: Path) -> str:
    """The token in the file, which is made if it is not there: 0600 from its first byte."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        token = path.read_text().strip()
        if len(token) < 16 or not token.isascii() or path.stat().st_mode & 0o077:
            raise OSError(
                f"{path} must hold at least 16 ASCII characters and be readable by its owner alone; "
                "delete it, and the controller makes a new one"
            ) from None
        return token
    token = secrets.token_urlsafe(32)
    with open(descriptor, "w") as file:
        file.write(f"{token}\n")
    return token
