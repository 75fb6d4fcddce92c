"""The error of a delivery that failed, and the secrets of sinks from files and environment variables."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from controller.config.tables.notify import SinkSection

MAX_SECRET = 8_192
"""A file with a secret may have at most this many bytes."""


class DeliveryFailed(Exception):
    """Raised if a sink did not accept a message. `message` contains no secret.

    If `final` is True, the message is given up at once, because another try would fail too. `wait_s` is the
    number of seconds for which the sink has asked to get no message; 0 if it named no time.
    """

    def __init__(self, message: str, *, final: bool = False, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.message = message
        self.final = final
        self.wait_s = wait_s


def secret_of(file: str | None, variable: str | None) -> str:
    """Return the secret from the configured file or environment variable, without spaces at its ends; "" if
    neither is configured. Raise DeliveryFailed if the secret cannot be read, or if users other than the
    file's owner and group may access the file.
    """
    if variable is not None:
        found = os.environ.get(variable, "").strip()
        if not found:
            raise DeliveryFailed(f"the environment variable {variable} of the controller is not set")
        return found
    if file is None:
        return ""
    path = Path(file).expanduser()
    try:
        # Open without blocking, because opening a named pipe would wait for its writer.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise DeliveryFailed(f"{path} is not a regular file")
            if status.st_mode & stat.S_IRWXO:
                raise DeliveryFailed(f"every user may read {path}; remove this right: chmod o= {path}")
            raw = opened.read(MAX_SECRET + 1)
    except OSError as error:
        raise DeliveryFailed(f"{path} cannot be read: {error.strerror}") from None
    try:
        found = raw.decode().strip()
    except UnicodeDecodeError:
        raise DeliveryFailed(f"{path} is not text in UTF-8") from None
    if not found or len(raw) > MAX_SECRET:
        raise DeliveryFailed(f"{path} is empty or longer than {MAX_SECRET} bytes")
    return found


def url_of(sink: SinkSection) -> str:
    """Return the URL of a sink. The URL may be a secret in a file or environment variable. Raise
    DeliveryFailed if the URL cannot be read.
    """
    return sink.url if sink.url is not None else secret_of(sink.url_file, sink.url_env)
