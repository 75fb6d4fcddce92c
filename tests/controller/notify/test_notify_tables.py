"""Mistakes in [notify]: sinks, rules and recipients that `corral config check` refuses."""

from __future__ import annotations

import pytest

from controller.config import ConfigRefused, load_text
from controller.registry import build_pipeline

MAIL = "[notify.sinks.m]\nkind = 'smtp'\nhost = 'h'\nsender = 'c@example.org'\n"
HOOK = "[notify.sinks.w]\nkind = 'webhook'\nurl = 'https://host/'\n"


def rule(when: str, sink: str, more: str = "") -> str:
    return f"[notify.rules.r]\nwhen = ['{when}']\nsink = '{sink}'\n{more}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HOOK + rule("mine.fialed", "w"), "'mine.fialed' is no kind of notice"),
        (HOOK + rule("idle", "v"), "there is no sink 'v'. There are: w."),
        (HOOK + rule("idle", "w", "to = ['ops']"), "has one place for all messages"),
        (MAIL + rule("gpu.out", "m"), "is not about a job, so it has no owner"),
        (MAIL + rule("gpu.out", "m", "to = ['ops']"), "'ops' is not a mail address"),
        (MAIL + "allowed_domains = ['a.example']\n" + rule("idle", "m", "to = ['o@b.example']"), "is not in"),
        (MAIL + "login = 'c'", "login needs secret_file or secret_env"),
        (MAIL + "login = 'c'\nsecret_env = 'P'\nsecurity = 'none'", "send the password unencrypted"),
        (MAIL + "topic = 'x'", "a smtp sink has no key topic"),
        ("[notify.sinks.s]\nkind = 'slack'\nurl = 'https://hooks/x'", "is a secret; write url_file"),
        ("[notify.sinks.w]\nkind = 'webhook'\nurl = 'https://a:b@host/'", "contains a password"),
        ("[notify.sinks.w]\nkind = 'webhook'", "needs one of url, url_file and url_env"),
        ("[notify.sinks.w]\nkind = 'webhook'\nurl = 'ftp://host/'", "is not a URL"),
        ("[notify]\nquiet = ['25:00-26:00']", "is not a quarter of an hour"),
    ],
)
def test_a_mistake_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigRefused) as refused:
        build_pipeline(load_text(text, "scheduler.toml"))
    assert message in str(refused.value.problems[0])
