"""Routes of the login with an identity provider: show the provider, and make a session from an ID token."""

from __future__ import annotations

from controller.access import token_text
from controller.access.id_token import InvalidIdToken
from controller.access.identity_providers import Login, ProviderUnreachable
from controller.api.handlers.access.tokens import LONGEST, view_of
from controller.api.server.errors import Rejected, rejected
from controller.api.server.identity import is_user_name
from controller.api.server.request import Call
from controller.config.tables.access import OidcSection
from controller.core.model.inputs import access_inputs
from controller.core.model.tokens import SESSION, TokenRecord
from wire.api.service.access import ABILITIES, LoginAnswer, LoginOffer, LoginRequest
from wire.text import printable

HOUR_S = 3_600.0
MOST_GROUPS = 1_000
AGAIN = "Log in again: corral login"


async def show(call: Call) -> LoginOffer:
    """Show the identity provider at which people log in."""
    section = _section(call)
    return LoginOffer(section.provider, section.issuer, section.client_id, tuple(section.scopes))


async def log_in(call: Call, request: LoginRequest) -> LoginAnswer:
    """Make a session from an ID token of the identity provider.

    1. Verify the token: its signature, issuer, audience, times and nonce, and that it was not used before.
    2. Refuse root, the controller's user, and names that no account can have.
    3. Find the rules for the groups of the user. Without a matching rule, refuse the login.
    4. Make a token of the kind session, which ends after `session_hours`. It has the groups, because the
       rules are applied again at each request.
    """
    section, config = _section(call), call.daemon.config
    if not 0 < len(request.name) <= LONGEST or not request.name.isprintable():
        raise rejected("invalid", f"must be printable and have 1 to {LONGEST} characters", "name")
    login = await _verified(call, request)
    if not is_user_name(login.user) or await call.identity.privileged_user(login.user):
        raise _refused(f"the user {printable(login.user, 64)!r} of the identity provider cannot log in here")
    rules = {each.group for each in section.rules}
    groups = tuple(each for each in dict.fromkeys(login.groups) if each in rules)
    now = call.daemon.now()
    made = token_text.new_token(SESSION)
    record = TokenRecord(
        *(made.id, SESSION, request.name, login.user, made.digest, ABILITIES, now, login.user),
        expires_at=now + section.session_hours * HOUR_S,
        groups=groups,
    )
    caller = await call.identity.of_record(record)
    await call.ask(access_inputs.CreateToken(record, config.access.tokens_per_user))
    return LoginAnswer(view_of(call, record), made.text, caller.role.value, groups)


async def _verified(call: Call, request: LoginRequest) -> Login:
    provider = call.identity.logins.provider(call.daemon.config)
    assert provider is not None
    try:
        found = await provider.verify(request.id_token, request.nonce)
    except InvalidIdToken as invalid:
        raise _refused(f"the ID token is not accepted: {invalid}") from None
    except ProviderUnreachable as failure:
        raise rejected("busy", str(failure), hint="Try again in a moment.") from None
    if len(found.groups) > MOST_GROUPS:
        raise _refused(f"the ID token has more than {MOST_GROUPS} groups")
    return found


def _refused(message: str) -> Rejected:
    return rejected("not_allowed", message, "id_token", AGAIN, status=401)


def _section(call: Call) -> OidcSection:
    section = call.daemon.config.access.oidc
    if section is None:
        hint = "An admin can set [access.oidc]. Without it, use a token: corral token create"
        raise rejected("not_found", "this controller has no login with an identity provider", hint=hint)
    return section
