"""Named controllers (contexts, as in kubectl). `corral config` stores contexts in
~/.config/corral/contexts.json.
"""

from __future__ import annotations

import json
import os
from dataclasses import field
from pathlib import Path
from typing import Mapping

from wire.codec import decode, encode
from wire.dataclass import dataclass
from wire.http import addresses


class InvalidContexts(Exception):
    """Raised if the file of contexts cannot be used. The message is the reason."""


@dataclass(frozen=True)
class Context:
    """The URL of a controller, and the files with the certificate and the token for this controller."""

    url: str
    ca: str = ""
    """A PEM file with the certificate authority that signed the controller's certificate; used with https."""
    token_file: str = ""
    """The file that has the token; used with http and https."""


@dataclass(frozen=True)
class Contexts:
    """All contexts by name. The context `current` is used if no option or environment variable names a
    controller.
    """

    current: str = ""
    known: Mapping[str, Context] = field(default_factory=dict)

    def of_url(self, url: str) -> Context:
        """Return the context with this URL. If no context has this URL, return a new context that has only
        the URL.
        """
        return next((each for each in self.known.values() if each.url == url), Context(url))


def path() -> Path:
    """Return the path of contexts.json. The file may not exist."""
    return addresses.config_dir() / "contexts.json"


def load() -> Contexts:
    """Return the contexts in the file. If the file does not exist, return no contexts. Raise InvalidContexts
    if the file cannot be read.
    """
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
    """Write the contexts to the file, which only this user can read."""
    import tempfile

    place = path()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=str(place.parent), prefix=".contexts.")
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(encode(contexts), file, indent=2)
        file.write("\n")
    os.replace(name, str(place))
