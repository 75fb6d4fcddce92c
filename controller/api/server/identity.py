"""Finds the user of a request and the user's role. On a unix socket the kernel reports the uid; TCP needs
a token."""

from __future__ import annotations

import asyncio
import hmac
import os
import pwd
import re
import secrets
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from controller.access import token_text
from controller.access.identity_providers import Logins
from controller.access.token_text import Mistyped
from controller.api.server.access import RANKS, Ability, Caller, Role, lower, submit_refusal, within
from controller.api.server.errors import Rejected, rejected
from controller.config import Config
from controller.config.tables.access import OidcRule, OidcSection
from controller.core.model.tokens import ROBOT, SESSION, TokenRecord
from controller.core.state.tokens import Tokens
from wire import trusted_paths
from wire.trusted_paths import UntrustedPath

T = TypeVar("T")

FRESH_S = 300.0
"""Seconds for which a user name is cached, because a lookup may need a directory server."""

MOST_NAMES = 10_000
"""The most user names in the cache."""

_CREDENTIALS = struct.Struct("3i")
_USER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


def peer_uid(line: socket.socket) -> int | None:
    """Return the uid of the process that opened this unix socket connection, or None for TCP."""
    if line.family != socket.AF_UNIX:
        return None
    sent = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(sent)
    return int(uid)


class Identity:
    """Finds the user and role of a caller. Root and the controller's user are admins."""

    def __init__(
        self,
        config: Callable[[], Config],
        token: str,
        reading_token: str = "",
        tokens: Callable[[], Tokens] = Tokens,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self.logins = Logins()
        self._tokens = tokens
        self._now = now
        self.uses: dict[str, tuple[float, str]] = {}
        """The time and the address of the last use of each token, by id."""
        self._token = token.encode()
        self._reading_token = reading_token.encode()
        self._own = os.geteuid()
        self._names: dict[int, tuple[float, str]] = {}
        self._privileged: dict[str, tuple[float, bool]] = {}

    def privileged(self, uid: int | None) -> bool:
        """Return whether this uid is root or the controller's user. The connection limit does not apply to
        these two users.
        """
        return uid in (0, self._own)

    async def privileged_user(self, user: str) -> bool:
        """Return whether this user name is root or the controller's user.

        The uids are compared, because two user names may have the same uid.
        """
        until, found = self._privileged.get(user, (0.0, False))
        if until < time.monotonic():
            found = self.privileged(await _in_thread(partial(_uid_of, user)))
            if len(self._privileged) >= MOST_NAMES:
                self._privileged.clear()
            self._privileged[user] = (time.monotonic() + FRESH_S, found)
        return found

    async def of_uid(self, uid: int) -> Caller:
        """Return the caller with this uid, which the kernel reported for a unix socket connection."""
        until, user = self._names.get(uid, (0.0, ""))
        if until < time.monotonic():
            user = await _in_thread(partial(_user_name, uid))
            self._names[uid] = (time.monotonic() + FRESH_S, user)
        return Caller(user, self._role(uid, user), operated=self._operated(user))

    async def of_token(self, header: str | None, address: str = "") -> Caller:
        """Return the caller of a request with the Authorization header `header`.

        1. The tokens in the state directory are those of the controller's user. With `token.read`, the caller
           may change nothing.
        2. Any other token has a record. Its caller has the record's user, and at most the record's abilities.

        Raise Rejected if the token is missing, wrong, expired or revoked.
        """
        scheme, _, given = (header or "").partition(" ")
        text = given.strip()
        if scheme.casefold() == "bearer" and text.startswith("corral_"):
            return await self._of_record(text, address)
        sent = os.fsencode(text)
        # Compare with both tokens, so that the time of the answer does not depend on the kind of the token.
        whole, reading = (
            bool(known) and hmac.compare_digest(sent, known) for known in (self._token, self._reading_token)
        )
        if scheme.casefold() != "bearer" or not (whole or reading):
            raise _unauthorized("this address requires a token; the request has none or a wrong one")
        caller = replace(await self.of_uid(self._own), token="token" if whole else "token.read")
        return caller if whole else replace(caller, read_only=True)

    async def _of_record(self, text: str, address: str) -> Caller:
        try:
            id = token_text.id_in(text)
        except Mistyped:
            raise _unauthorized("the token has a typing mistake or is not complete") from None
        record = self._tokens().by_id.get(id or "")
        if record is None or not token_text.is_text_of(text, record.digest):
            raise _unauthorized("the token is wrong or revoked")
        if not record.is_valid(self._now()):
            raise _unauthorized(f"the token {record.id} ({record.name}) has expired")
        caller = await self.of_record(record)
        self.uses[record.id] = (self._now(), address)
        return caller

    async def of_record(self, record: TokenRecord) -> Caller:
        """Return the caller of requests with this token. The role of the user, and the table of the robot in
        scheduler.toml, are read again for each request, so that a change applies at once. The role in the
        record can only lower the role of the user, also in the record of a session: no token keeps a right
        that scheduler.toml has taken from its user.
        """
        if await self.privileged_user(record.user):
            if record.kind != "user":
                raise _unauthorized(f"the token {record.id} is of root or of the controller's user")
            role = Role.ADMIN
        else:
            role = self._role(None, record.user)
        can = frozenset(map(Ability, record.can))
        projects = frozenset(record.projects) or None
        caller = Caller(record.user, role, token=record.id, operated=self._operated(record.user))
        if record.kind == ROBOT:
            robot = self._config().access.robots.get(record.robot)
            if robot is None or robot.user != record.user:
                raise _unauthorized(f"there is no robot {record.robot} with user {record.user} any more")
            caller = replace(caller, role=Role(robot.role), robot=record.robot, operated=frozenset())
            caller = within(caller, frozenset(map(Ability, robot.can)), frozenset(robot.projects) or None)
        elif record.role:
            caller = replace(caller, role=lower(caller.role, Role(record.role)))
        if record.kind == SESSION:
            caller = self.in_groups(caller, record.groups)
        return replace(within(caller, can, projects), makes_tokens=record.kind == SESSION)

    def in_groups(self, caller: Caller, groups: Sequence[str]) -> Caller:
        """Return the caller with the rights that the rules of [access.oidc] give to these groups.

        The rules are read again for each request, so that a change of scheduler.toml applies at once. Without
        rules, the user has the role that [access] gives. With rules, the caller has the highest role of the
        rules that match, and the projects of these rules together. Raise Rejected if no rule matches.
        """
        section = self._config().access.oidc
        if section is None:
            raise _unauthorized("this controller has no login with an identity provider any more")
        if not section.rules:
            return caller
        matching = matching_rules(section, groups)
        if not matching:
            raise _unauthorized("no rule of [access.oidc] is for a group of this user")
        role = max((Role(each.role) for each in matching), key=RANKS.__getitem__)
        every = any(not each.projects for each in matching)
        projects = None if every else frozenset(name for each in matching for name in each.projects)
        return replace(caller, role=role, projects=projects)

    def _operated(self, user: str) -> frozenset[str]:
        return frozenset(name for name, each in self._config().projects.items() if user in each.operators)

    def _role(self, uid: int | None, user: str) -> Role:
        if self.privileged(uid):
            return Role.ADMIN
        # Read the configuration again for each request, so that a change of [access] applies at once.
        access = self._config().access
        if user in access.operators:
            return Role.OPERATOR
        return Role.VIEWER if access.others == "view" else Role.USER

    async def acting(self, caller: Caller, user: str) -> str:
        """Return the user that a submitted job will belong to: `user`, or the caller if `user` is empty.

        Raise Rejected if the caller may not submit for `user`.
        """
        if user in ("", caller.user):
            return caller.user
        if not _USER_NAME.fullmatch(user) and caller.operates:
            raise rejected("invalid", "is not the name of a user", "as_user")
        refused = submit_refusal(caller, user, await self.privileged_user(user))
        if refused is not None:
            raise Rejected(refused)
        return user


def matching_rules(section: OidcSection, groups: Sequence[str]) -> list[OidcRule]:
    """Return the rules for these groups. The rules of group "*" are for every user."""
    return [each for each in section.rules if each.group == "*" or each.group in groups]


def is_user_name(text: str) -> bool:
    """Return whether the text has the form of a user name."""
    return _USER_NAME.fullmatch(text) is not None


def _unauthorized(message: str) -> Rejected:
    return rejected(
        "not_allowed",
        message,
        "Authorization",
        "Send 'Authorization: Bearer …' with a token of 'corral token create', or the token in "
        "<state_dir>/token.",
        status=401,
        headers={"WWW-Authenticate": "Bearer"},
    )


async def _in_thread(ask: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, ask)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        # Return a name that no account can have: account names cannot contain a colon.
        return f"uid:{uid}"


def _uid_of(user: str) -> int | None:
    """Return the uid of a user name, or None if there is no such user. The name `uid:1000` stands for uid
    1000 if this uid has no account."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        number = user.removeprefix("uid:")
        if number != user and number.isascii() and number.isdigit():
            return int(number)
        return 0 if user == "root" else None


def read_token(path: Path) -> str:
    """Return the API token in the file. If the file does not exist, create the file with a new token and mode
    0600.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        try:
            with open(trusted_paths.open_file(str(path))) as file:
                token, mode = file.read().strip(), os.fstat(file.fileno()).st_mode
        except UntrustedPath as error:
            raise OSError(f"cannot use the API token: {error}") from None
        if len(token) < 16 or not token.isascii() or mode & 0o077:
            raise OSError(
                f"{path} must hold at least 16 ASCII characters and be readable by its owner alone; "
                "delete the file, and the controller creates a new one"
            ) from None
        return token
    token = secrets.token_urlsafe(32)
    with open(descriptor, "w") as file:
        file.write(f"{token}\n")
    return token
