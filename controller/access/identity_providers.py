"""Identity providers: plugins of the kind `identity`, which tell the user and the groups of a login."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import aiohttp

from controller.access.id_token import (
    LEEWAY_S,
    OLDEST_S,
    InvalidIdToken,
    check_claims,
    check_signature,
    read_token,
)
from controller.config import Config
from controller.config.tables.access import OidcSection, is_confidential
from controller.registry.identity import identity_type

KEYS_S, RETRY_S = 3_600.0, 30.0
"""The keys of a provider are read again after an hour, and at once if a token names an unknown key; then not
before RETRY_S seconds.
"""
TIMEOUT_S = 10.0
MOST_BYTES = 1 << 20


class ProviderUnreachable(Exception):
    """Raised if the identity provider does not answer with its keys. The message is the reason."""


@dataclass(frozen=True, slots=True)
class Login:
    """The user of a login and the groups of this user, as the identity provider names them."""

    user: str
    groups: tuple[str, ...]


class IdentityProvider(Protocol):
    """Tells whose login a proof is. `connect` of a plugin of the kind `identity` makes it."""

    async def verify(self, proof: str, nonce: str) -> Login:
        """Return the login that `proof` proves. Raise InvalidIdToken for a wrong proof, and
        ProviderUnreachable if the proof cannot be checked now.
        """
        ...


@dataclass(frozen=True, slots=True)
class OidcProviderType:
    """OpenID Connect, the default of [access.oidc] provider."""

    name: ClassVar[str] = "oidc"

    def connect(self, section: OidcSection) -> IdentityProvider:
        return OidcProvider(section)


class OidcProvider:
    """Verifies ID tokens of OpenID Connect.

    1. Read the issuer's configuration and its keys by https. Keep them for KEYS_S seconds.
    2. Check the signature, then the claims (id_token.py).
    3. Accept each token once. The used tokens are remembered until they are too old to be accepted.
    4. Take the user from the claim `user_claim`, and the groups from `groups_claim`.
    """

    def __init__(self, section: OidcSection) -> None:
        self._section = section
        self._keys = _Keys(section.issuer)
        self._used: dict[str, float] = {}
        """The hashes of the used tokens, each with the time until which the token could be accepted."""

    async def verify(self, proof: str, nonce: str) -> Login:
        section, token, now = self._section, read_token(proof), time.time()
        # Check the claims first, because a token with other claims must not cause a request to the provider.
        check_claims(token.claims, section.issuer, section.client_id, nonce, now)
        try:
            check_signature(token, await self._keys.read())
        except InvalidIdToken:
            # The provider may have replaced its keys.
            check_signature(token, await self._keys.read(again=True))
        user = token.claims.get(section.user_claim)
        if not isinstance(user, str) or not user:
            raise InvalidIdToken(f"it has no claim {section.user_claim}")
        groups = token.claims.get(section.groups_claim, [])
        groups = [groups] if isinstance(groups, str) else groups
        if not isinstance(groups, list) or not all(isinstance(each, str) for each in groups):
            raise InvalidIdToken(f"its claim {section.groups_claim} is not a list of names")
        self._use_once(token.signed, now)
        return Login(user, tuple(groups))

    def _use_once(self, signed: bytes, now: float) -> None:
        # Only the signed part counts, because an ES256 signature can be changed into another valid one.
        for digest in [each for each, until in self._used.items() if until < now]:
            del self._used[digest]
        digest = hashlib.sha256(signed).hexdigest()
        if digest in self._used:
            raise InvalidIdToken("it was used before; log in again")
        self._used[digest] = now + OLDEST_S + 2 * LEEWAY_S


class _Keys:
    """The keys of an issuer, which are kept for an hour."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._known: list[Mapping[str, Any]] = []
        self._read_at: float | None = None
        self._turn = asyncio.Lock()

    async def read(self, *, again: bool = False) -> list[Mapping[str, Any]]:
        """Return the keys of the issuer. With `again`, read them again unless they are newer than RETRY_S."""
        async with self._turn:
            limit_s = RETRY_S if again else KEYS_S
            if self._read_at is None or time.monotonic() - self._read_at > limit_s:
                self._known = await _read_keys(self._issuer)
                self._read_at = time.monotonic()
            return self._known


async def _read_keys(issuer: str) -> list[Mapping[str, Any]]:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
        about = await _get(session, f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if about.get("issuer") != issuer:
            raise ProviderUnreachable(f"{issuer} calls itself {str(about.get('issuer'))[:200]!r}")
        address = about.get("jwks_uri")
        if not isinstance(address, str) or not is_confidential(address):
            raise ProviderUnreachable(f"{issuer} names no https address of its keys")
        keys = (await _get(session, address)).get("keys")
    if not isinstance(keys, list):
        raise ProviderUnreachable(f"{address} has no keys")
    return [each for each in keys if isinstance(each, dict)]


async def _get(session: aiohttp.ClientSession, url: str) -> Mapping[str, Any]:
    """Return the JSON object at this address. Redirects are not followed."""
    try:
        async with session.get(url, allow_redirects=False) as answer:
            content = bytearray()
            async for piece in answer.content.iter_any():
                content += piece
                if len(content) > MOST_BYTES:
                    raise ProviderUnreachable(f"{url} has sent more than {MOST_BYTES} bytes")
            found = json.loads(content) if answer.status == 200 else None
    except (aiohttp.ClientError, OSError, ValueError, RecursionError) as error:
        raise ProviderUnreachable(f"{url} cannot be read: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise ProviderUnreachable(f"{url} does not answer with a JSON object")
    return found


class Logins:
    """Makes the identity provider that scheduler.toml names, and keeps it while its section is the same."""

    def __init__(self) -> None:
        self._section: OidcSection | None = None
        self._provider: IdentityProvider | None = None

    def provider(self, config: Config) -> IdentityProvider | None:
        """Return the identity provider; None without [access.oidc]."""
        section = config.access.oidc
        if section != self._section:
            self._section = section
            self._provider = None if section is None else identity_type(config, section).connect(section)
        return self._provider
