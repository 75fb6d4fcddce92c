"""Runs oidc-provider-mock with Authlib's device authorisation grant. It needs a Python with these packages.

Usage: python identity_provider.py PORT. `POST /confirm` with user_code and sub is the page where a user
confirms the login. `POST /rotate` replaces the signing key.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

warnings.simplefilter("ignore")

import flask  # noqa: E402
from authlib.oauth2.rfc8628 import (  # noqa: E402
    DeviceAuthorizationEndpoint,
    DeviceCodeGrant,
    DeviceCredentialDict,
)
from authlib.oidc.core.grants.util import generate_id_token  # noqa: E402
from oidc_provider_mock import User, app  # noqa: E402
from oidc_provider_mock._app import authorization, jose, storage  # noqa: E402
from oidc_provider_mock._storage import Client  # noqa: E402

PORT = int(sys.argv[1])
ISSUER = f"http://127.0.0.1:{PORT}"
CODES: dict[str, DeviceCredentialDict] = {}
GRANTS: dict[str, tuple[str, bool]] = {}
GRANT_TYPE = "urn:ietf:params:oauth:grant-type:device_code"


class DeviceEndpoint(DeviceAuthorizationEndpoint):
    INTERVAL = 1

    def get_verification_uri(self) -> str:
        return f"{ISSUER}/device"

    def save_device_credential(self, client_id: str, scope: str, data: dict[str, Any]) -> None:
        nonce = flask.request.form.get("nonce", "")
        made = DeviceCredentialDict(
            client_id=client_id, scope=scope, nonce=nonce, expires_at=time.time() + 300, **data
        )
        CODES[data["device_code"]] = made


class DeviceGrant(DeviceCodeGrant):
    def query_device_credential(self, device_code: str) -> DeviceCredentialDict | None:
        return CODES.get(device_code)

    def query_user_grant(self, user_code: str) -> tuple[User, bool] | None:
        if user_code not in GRANTS:
            return None
        sub, allowed = GRANTS[user_code]
        return storage.get_user(sub), allowed

    def should_slow_down(self, credential: DeviceCredentialDict) -> bool:
        return False


class IdToken:
    """Adds an ID token to the answer of the device grant."""

    def __call__(self, grant: Any) -> None:
        grant.register_hook("after_create_token_response", self.add)

    def add(self, grant: Any, response: tuple[int, dict[str, Any], Any]) -> None:
        credential, user = grant.request.credential, grant.request.user
        claims = {**user.claims, "sub": user.sub}
        response[1]["id_token"] = generate_id_token(
            response[1],
            claims,
            storage.jwk.as_dict(is_private=True),
            ISSUER,
            [credential.get_client_id()],
            alg="RS256",
            exp=300,
            nonce=credential.get_nonce() or None,
        )


Client.GRANT_TYPES_SUPPORTED = (*Client.GRANT_TYPES_SUPPORTED, GRANT_TYPE)
GROUPS = {"ada": ["gpu-users", "staff"], "ops": ["gpu-admins"], "eve": ["guests"], "root": ["gpu-admins"]}
USERS = [User(sub=name, claims={"preferred_username": name, "groups": of}) for name, of in GROUPS.items()]
server = app(user_claims=USERS)
ready: list[bool] = []


@server.before_request
def register() -> None:
    """Register the device grant at the first request, because the mock makes its server for each request."""
    if not ready:
        authorization.register_endpoint(DeviceEndpoint)
        authorization.register_grant(DeviceGrant, [IdToken()])
        ready.append(True)


# The route of the mock accepts only its own two grants.
server.view_functions["oidc-provider-mock.issue_token"] = lambda: authorization.create_token_response()


@server.post("/device_authorization")
def device_authorization() -> Any:
    return authorization.create_endpoint_response("device_authorization")


@server.post("/confirm")
def confirm() -> Any:
    GRANTS[flask.request.form["user_code"]] = (flask.request.form["sub"], "denied" not in flask.request.form)
    return "confirmed"


@server.post("/rotate")
def rotate() -> Any:
    storage.jwk = jose.RSAKey.generate_key(is_private=True)
    return "rotated"


@server.after_request
def name_the_endpoint(response: flask.Response) -> flask.Response:
    if flask.request.path == "/.well-known/openid-configuration":
        about = {**response.get_json(), "device_authorization_endpoint": f"{ISSUER}/device_authorization"}
        response.set_data(flask.json.dumps(about))
    return response


server.run("127.0.0.1", PORT, debug=False, threaded=False)
