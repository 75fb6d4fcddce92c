"""Routes of tokens: create, list and revoke tokens, and show the caller of a request."""

from __future__ import annotations

from controller.access import token_text
from controller.api.server.access import (
    Ability,
    Role,
    TokenWish,
    admin,
    new_token_refusal,
)
from controller.api.server.errors import Rejected, rejected
from controller.api.server.request import Call
from controller.core.model.inputs import access_inputs
from controller.core.model.tokens import ROBOT, SESSION, USER, TokenRecord
from wire.api.service.access import ABILITIES, TokenList, TokenMade, TokenRequest, TokenView, WhoAmI
from wire.text import printable

FOR_OTHERS = admin("create tokens for others")
DAY_S = 86_400.0
LONGEST = 100


async def whoami(call: Call) -> WhoAmI:
    """Show the user, the role and the token of the caller."""
    caller = call.caller
    return WhoAmI(
        caller.user,
        caller.role.value,
        caller.token,
        caller.robot,
        tuple(ability for ability in ABILITIES if Ability(ability) in caller.can),
        None if caller.projects is None else tuple(sorted(caller.projects)),
        tuple(sorted(caller.operated)),
        caller.read_only,
        call.address,
    )


async def create(call: Call, request: TokenRequest) -> TokenMade:
    """Create a token. The answer has the text of the token, which is not shown again."""
    caller, access = call.caller, call.daemon.config.access
    if not 0 < len(request.name) <= LONGEST or not request.name.isprintable():
        raise rejected("invalid", f"must be printable and have 1 to {LONGEST} characters", "name")
    days = access.token_days if request.days is None else request.days
    if not 0 < days <= access.token_days:
        hint = "[access] token_days sets the longest time."
        raise rejected("invalid", f"must be more than 0 and at most {access.token_days:g}", "days", hint)
    wrong = [ability for ability in request.can if ability not in ABILITIES]
    if wrong or not request.can:
        raise rejected("invalid", f"must be some of {', '.join(ABILITIES)}", "can")
    if len(request.projects) > LONGEST or not all(
        0 < len(name) <= 200 and name.isprintable() for name in request.projects
    ):
        raise rejected("invalid", "must be names of projects", "projects")
    can = tuple(dict.fromkeys(request.can))
    projects = request.projects
    user, kind, role = caller.user, USER, ""
    if request.robot or request.user not in ("", caller.user):
        await call.permit(FOR_OTHERS)
        user = request.user
    if request.robot:
        robot = access.robots.get(request.robot)
        if robot is None:
            hint = "Add [access.robots.NAME] to scheduler.toml."
            raise rejected("not_found", f"there is no robot {printable(request.robot, 40)!r}", "robot", hint)
        user, kind = robot.user, ROBOT
        if await call.identity.privileged_user(user):
            raise rejected("invalid", f"robot {request.robot} has user {user}, which is an admin", "robot")
    else:
        wish = TokenWish(frozenset(map(Ability, can)), frozenset(projects) or None)
        refused = new_token_refusal(caller, wish)
        if refused is not None:
            raise Rejected(refused)
    if caller.token and caller.role is not Role.ADMIN:
        role = caller.role.value
    if not projects and caller.projects is not None:
        projects = tuple(sorted(caller.projects))
    made, now = token_text.new_token(kind), call.daemon.now()
    record = TokenRecord(
        *(made.id, kind, request.name, user, made.digest, can, now, caller.user, projects),
        expires_at=now + days * DAY_S,
        robot=request.robot,
        role=role,
    )
    await call.ask(access_inputs.CreateToken(record, access.tokens_per_user))
    return TokenMade(view_of(call, record), made.text)


async def listing(call: Call) -> TokenList:
    """List the tokens of the caller; for admins, all tokens."""
    await call.daemon.settled()
    records = call.daemon.state.tokens.by_id.values()
    shown = [each for each in records if _may_see(call, each)]
    return TokenList(tuple(view_of(call, each) for each in sorted(shown, key=lambda each: each.made_at)))


async def revoke(call: Call) -> TokenView:
    """Revoke a token. Requests and open streams with the token end within a second."""
    await call.daemon.settled()
    record = call.daemon.state.tokens.by_id.get(call.path["token"])
    if record is None or not _may_see(call, record):
        hint = "'corral token list' shows your tokens."
        raise rejected("not_found", "there is no such token", "token", hint)
    await call.ask(access_inputs.RevokeToken(record.id, call.caller.user))
    return view_of(call, record)


def _may_see(call: Call, record: TokenRecord) -> bool:
    caller = call.caller
    if caller.role is Role.ADMIN:
        return True
    return record.user == caller.user and record.kind in (USER, SESSION)


def view_of(call: Call, record: TokenRecord) -> TokenView:
    used_at, used_from = call.identity.uses.get(record.id, (None, ""))
    return TokenView(
        record.id,
        record.kind,
        record.name,
        record.user,
        record.robot,
        record.can,
        record.projects,
        record.made_at,
        record.by,
        record.expires_at,
        used_at,
        used_from,
    )
