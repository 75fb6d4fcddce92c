"""What is said of a request that was refused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """Every refusal: `code` for programs, `message` what is wrong, `where` the field, `hint` what to do."""

    code: str
    message: str
    where: str = ""
    hint: str = ""
