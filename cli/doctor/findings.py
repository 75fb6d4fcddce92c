"""The results of checks: ok, warn or fail, each with what was found and what corrects it."""

from __future__ import annotations

from collections.abc import Iterable

from wire.dataclass import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"
_VERDICTS = {"ok": OK, "note": WARN, "unknown": FAIL, "failed": FAIL}


@dataclass(frozen=True)
class Finding:
    """The result of one check. `name` is the subject of the check, and `remedy` what corrects a problem."""

    name: str
    verdict: str
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All findings about a site. `healthy` is False if at least one check has failed."""

    healthy: bool
    findings: tuple[Finding, ...]


def diagnosis(findings: Iterable[Finding]) -> Diagnosis:
    found = tuple(findings)
    return Diagnosis(all(each.verdict != FAIL for each in found), found)


def verdict_of(preflight: str) -> str:
    """Return the verdict for a verdict of the preflight (ok, note, unknown or failed)."""
    return _VERDICTS[preflight]


def failures(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings of checks that have failed."""
    return [each for each in findings if each.verdict == FAIL]
