"""Opens the connection to the controller: finds the address of the controller, and the token and the
certificate for this address.
"""

from __future__ import annotations

import os

from wire.http import contexts, discovery
from wire.http.controllers import Controllers
from wire.http.transport import Transport, Unreachable


def open_transport(
    url: str = "", *, timeout_s: float = 30.0, token: str = "", read_only: bool = False, ca: str = ""
) -> Controllers:
    """Return a transport to the controllers at `url`, or, without `url`, to those that `discovery` finds. A
    URL can name several controllers, with commas between their addresses. Raise Unreachable if the contexts
    or the token cannot be read.
    """
    try:
        found = discovery.ControllerAddress(url, "given") if url else discovery.find_controller()
        known = contexts.load().of_url(found.url)
    except contexts.InvalidContexts as unusable:
        hint = "'corral config list' shows all contexts."
        raise Unreachable(url or "any address", str(unusable), hint) from None
    token = token or os.environ.get("CORRAL_TOKEN", "") or _token_in(known.token_file, found.url)
    ca = ca or os.environ.get("CORRAL_CA", "") or known.ca
    urls = [each.strip() for each in found.url.split(",") if each.strip()]

    def connect(address: str) -> Transport:
        return Transport(address, timeout_s, token, ca=ca, tried=found.tried, read_only=read_only)

    return Controllers(urls or [found.url], connect, token=bool(token))


def _token_in(file: str, url: str) -> str:
    if not file:
        return ""
    try:
        with open(os.path.expanduser(file), encoding="ascii") as opened:
            return opened.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        hint = "Set another token file with 'corral config add'."
        raise Unreachable(url, f"the token file {file} cannot be read: {error}", hint) from None
