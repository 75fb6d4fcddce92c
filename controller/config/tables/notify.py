"""[notify]: the sinks (mail servers, webhooks, chats) of notifications, and the rules that choose a sink for
each notification.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from controller.config.tables.fields import AbsolutePath, Name, Section
from controller.config.tables.limits import Seconds
from controller.config.tables.queues import Window
from wire.notify import WORDS

KINDS = ("webhook", "smtp", "slack", "mattermost", "ntfy")
SECRET_URLS = ("slack", "mattermost")
"""The kinds of sinks (places that get notifications) whose URL is itself a secret: every program that knows
the URL can post messages."""
OF_KIND = {
    "webhook": {"url", "url_file", "url_env", "secret_file", "secret_env", "ca_file"},
    "smtp": {"host", "port", "security", "login", "secret_file", "secret_env", "sender", "domain",
             "allowed_domains", "ca_file"},
    "slack": {"url_file", "url_env", "ca_file"},
    "mattermost": {"url_file", "url_env", "ca_file"},
    "ntfy": {"url", "url_file", "url_env", "secret_file", "secret_env", "topic", "ca_file"},
}  # fmt: skip
"""The keys in scheduler.toml of each kind of sink (place that gets notifications), without the keys that all
kinds have."""
ADDRESS = re.compile(
    r"[^\s@,;:<>()\[\]\"\\\x00-\x1f\x7f-\x9f]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?"
)
TOPIC = re.compile(r"[A-Za-z0-9_-]{1,64}")


def _word(text: str) -> str:
    if text not in WORDS:
        raise ValueError(f"{text!r} is no kind of notice; the kinds are {', '.join(WORDS)}")
    return text


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise ValueError("is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not text.isprintable():
        raise ValueError('is not a URL; write it as "https://host/path"')
    if parts.username is not None or parts.password is not None:
        raise ValueError("contains a password, which every reader of this file sees; use url_file or url_env")
    return text


def _address(text: str) -> str:
    if ADDRESS.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a mail address such as ops@example.org")
    return text


def _variable(text: str) -> str:
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) is None:
        raise ValueError(f"{text!r} is not the name of an environment variable")
    return text


Variable = Annotated[str, AfterValidator(_variable)]


class SinkSection(Section):
    """One sink (a mail server, webhook or chat that gets notifications). OF_KIND lists the keys of each kind
    of sink."""

    kind: Literal["webhook", "smtp", "slack", "mattermost", "ntfy"]
    timeout_s: float = Field(15.0, ge=1, le=300)
    max_per_hour: int = Field(60, ge=1, le=100_000)
    url: Annotated[str, AfterValidator(_url)] | None = None
    url_file: AbsolutePath | None = None
    url_env: Variable | None = None
    secret_file: AbsolutePath | None = None
    secret_env: Variable | None = None
    ca_file: AbsolutePath | None = None
    host: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    port: int | None = Field(None, ge=1, le=65_535)
    security: Literal["starttls", "tls", "none"] = "starttls"
    login: Name | None = None
    sender: Annotated[str, AfterValidator(_address)] | None = None
    domain: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+$", max_length=253)] | None = None
    allowed_domains: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+$", max_length=253)]] = []
    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None

    @model_validator(mode="after")
    def _has_its_keys(self) -> Self:
        usual = {"kind", "timeout_s", "max_per_hour", *OF_KIND[self.kind]}
        strange = sorted(self.model_fields_set - usual)
        if strange and strange[0] == "url" and self.kind in SECRET_URLS:
            raise ValueError(
                f"the URL of a {self.kind} sink is a secret; write url_file or url_env instead of url"
            )
        if strange:
            raise ValueError(f"a {self.kind} sink has no key {strange[0]}")
        if self.kind == "smtp":
            missing = [name for name in ("host", "sender") if getattr(self, name) is None]
            if missing:
                raise ValueError(f"a sink of kind smtp needs {' and '.join(missing)}")
            if self.login is not None and self.secret_file is None and self.secret_env is None:
                raise ValueError("login needs secret_file or secret_env with the password")
            if (
                self.login is not None
                and self.security == "none"
                and self.host not in ("localhost", "127.0.0.1", "::1")
            ):
                raise ValueError('login with security = "none" would send the password unencrypted')
        elif len([each for each in (self.url, self.url_file, self.url_env) if each is not None]) != 1:
            choices = (
                "url_file or url_env" if self.kind in SECRET_URLS else "one of url, url_file and url_env"
            )
            raise ValueError(f"a sink of kind {self.kind} needs {choices}")
        if self.secret_file is not None and self.secret_env is not None:
            raise ValueError("secret_file and secret_env are both set; leave one out")
        return self


class NotifyRuleSection(Section):
    """One rule: the notices that are sent, their sink, and their recipients."""

    when: Annotated[list[Annotated[str, AfterValidator(_word)]], Field(min_length=1)]
    sink: Name
    to: list[Name] = []
    users: list[Name] = []
    projects: list[Name] = []
    queues: list[Name] = []
    every: Literal["", "1h", "1d", "weekly"] = ""
    quiet: list[Window] = []
    urgent: bool = False


class NotifySection(Section):
    """Notifications: sinks, rules, and the limits of the outbox (the messages that wait for delivery)."""

    personal: bool = True
    link: str = ""
    quiet: list[Window] = []
    digest_at: Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")] = "08:00"
    slow_cycle_s: Seconds = 5.0
    give_up_s: float = Field(86_400.0, ge=1, le=31_536_000)
    max_waiting: int = Field(10_000, ge=1, le=1_000_000)
    max_dead: int = Field(1_000, ge=1, le=100_000)
    sinks: dict[Name, SinkSection] = {}
    rules: dict[Name, NotifyRuleSection] = {}
