"""Named controllers, stored by `corral config add` and `use` in ~/.config/corral/contexts.json."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping

from wire.codec import decode, encode
from wire.http import addresses


class InvalidContexts(Exception):
    """The file of contexts cannot be used; the message says why."""


@dataclass(frozen=True)
class Context:
    """A controller: its URL, and certificates and token for clients."""

    url: str
    ca: str = ""
    """File with the certificates of the authority that signed the controller's certificate; for https."""
    token_file: str = ""
    """File with the token, for http and https."""


@dataclass(frozen=True)
class Contexts:
    """All contexts by name; `current` is used if nothing else names a controller."""

    current: str = ""
    known: Mapping[str, Context] = field(default_factory=dict)

    def of_url(self, url: str) -> Context:
        """The context with this URL; a new one if there is none."""
        return next((each for each in self.known.values() if each.url == url), Context(url))


def path() -> Path:
    """The path of the file, which may not exist."""
    return addresses.config_dir() / "contexts.json"


def load() -> Contexts:
    """The contexts in the file; none if there is no file. Raises InvalidContexts."""
    try:
        text = path().read_text("utf-8")
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidContexts(f"{path()} cannot be read: {error}") from None
    try:
        return decode(Contexts, json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InvalidContexts(f"{path()} is not a list of contexts: {str(error)[:200]}") from None


def save(contexts: Contexts) -> None:
    """Replace the file, readable only by this user."""
    place = path()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=str(place.parent), prefix=".contexts.")
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(encode(contexts), file, indent=2)
        file.write("\n")
    os.replace(name, str(place))
