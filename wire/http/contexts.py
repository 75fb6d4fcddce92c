"""Named controllers (contexts), which `corral config` stores in ~/.config/corral/contexts.json."""

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
    """The file of contexts cannot be used. The message is the reason."""


@dataclass(frozen=True)
class Context:
    """The URL of a controller, and the files with certificates and token that a client needs."""

    url: str
    ca: str = ""
    """PEM file of the authority that signed the controller's certificate; used with https."""
    token_file: str = ""
    """The file that has the token; used with http and https."""


@dataclass(frozen=True)
class Contexts:
    """All contexts by name. `current` is used if neither an option nor a variable names a controller."""

    current: str = ""
    known: Mapping[str, Context] = field(default_factory=dict)

    def of_url(self, url: str) -> Context:
        """The context with this URL; a new context if none has it."""
        return next((each for each in self.known.values() if each.url == url), Context(url))


def path() -> Path:
    """The path of contexts.json, which may not exist."""
    return addresses.config_dir() / "contexts.json"


def load() -> Contexts:
    """The contexts from the file. If the file does not exist, there are none. Raises InvalidContexts."""
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
    """Write the contexts to the file. Only this user can read the file."""
    place = path()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=str(place.parent), prefix=".contexts.")
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(encode(contexts), file, indent=2)
        file.write("\n")
    os.replace(name, str(place))
