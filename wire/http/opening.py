"""Opens the connection to the controller: finds the address of the controller, and the token and the
certificate for this address.
"""

from __future__ import annotations

import os

from wire.http import contexts, discovery, pins
from wire.http.controllers import Controllers
from wire.http.transport import Transport, Unreachable


def open_transport(
    url: str = "", *, timeout_s: float = 30.0, token: str = "", read_only: bool = False, ca: str = ""
) -> Controllers:
    """Return a transport to the controllers at `url`, or, without `url`, to those that `discovery` finds. A
    URL can name several controllers, with commas between their addresses. Raise Unreachable if the contexts,
    the pinned authorities or the token cannot be read.
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

    given = urls or [found.url]
    try:
        pin_of = {each: "" if ca else pins.pinned(each) for each in given}
    except pins.PinsUnreadable as unreadable:
        hint = "Remove the file, and pin the controllers again: corral config trust URL"
        raise Unreachable(found.url, str(unreadable), hint) from None
    only = next(iter(pin_of.values())) if len(pin_of) == 1 else ""

    def connect(address: str) -> Transport:
        # The address of a leader that a controller has named has no pin of its own. It is trusted only with
        # the authority that is pinned for the given address.
        pin = pin_of.get(address, only if address.startswith("https:") else "")
        return Transport(address, timeout_s, token, ca=ca, pin=pin, tried=found.tried, read_only=read_only)

    return Controllers(given, connect, token=bool(token), pinned=bool(ca or only))


def _token_in(file: str, url: str) -> str:
    if not file:
        return ""
    try:
        with open(os.path.expanduser(file), encoding="ascii") as opened:
            return opened.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        hint = "Set another token file with 'corral config add'."
        raise Unreachable(url, f"the token file {file} cannot be read: {error}", hint) from None
