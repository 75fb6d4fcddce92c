"""[[failures.rules]]: classes of failed jobs that a site defines in addition to Corral's classes."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from controller.config.tables.fields import Section

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def _class_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a failure class: at most 40 of a-z, 0-9 and '_'")
    return name


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    return text


class FailureRuleSection(Section):
    """One class of failed jobs: how failed jobs of the class are recognised, and the remedy that users
    see."""

    name: Annotated[str, AfterValidator(_class_name)]
    sentence: str = Field(min_length=1, max_length=200)
    remedy: str = Field("", max_length=500)
    patterns: list[Annotated[str, AfterValidator(_pattern)]] = []
    exit_codes: list[Annotated[int, Field(ge=1, le=255)]] = []
    reasons: list[str] = []

    @model_validator(mode="after")
    def _has_condition(self) -> Self:
        if not (self.patterns or self.exit_codes or self.reasons):
            raise ValueError('write at least one condition, such as patterns = ["licence server"]')
        return self


class FailuresSection(Section):
    """The classes of failed jobs that the site adds: [failures]."""

    rules: list[FailureRuleSection] = Field([], max_length=100)
