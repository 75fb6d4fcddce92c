"""Node affinity, taints and tolerations of jobs."""

from __future__ import annotations

import enum
import re
from typing import Iterable, Iterator, Mapping, Optional

from wire.dataclass import dataclass

MAX_TERMS = 64
MAX_VALUES = 256
KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,120}[A-Za-z0-9])?")
_IN = re.compile(r"(\S+)\s+(not\s+in|in|notin)\s+(\S.*)", re.IGNORECASE)
_THERE = re.compile(r"(\S+)\s+(exists|missing|doesnotexist)", re.IGNORECASE)
_COMPARED = re.compile(r"([^\s<>]+)\s*([<>])\s*(\S+)")
_WEIGHED = re.compile(r"(.*\S)\s+weight\s+(\d{1,3})", re.IGNORECASE)


class Operator(str, enum.Enum):
    """How a condition compares the value of a node label with the values in the condition."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class Effect(str, enum.Enum):
    """The effect of a taint on jobs that do not tolerate the taint, as in Kubernetes."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True)
class Term:
    """One condition on the value of a node label, such as `zone in a,b`."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels of a node meet the condition. A node without the label meets only NotIn
        and DoesNotExist.
        """
        value = labels.get(self.key)
        if self.operator is Operator.IN:
            return value in self.values
        if self.operator is Operator.NOT_IN:
            return value not in self.values
        if self.operator is Operator.EXISTS:
            return value is not None
        if self.operator is Operator.DOES_NOT_EXIST:
            return value is None
        number, bound = _number(value), _number(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if self.operator is Operator.GT else number < bound

    def __str__(self) -> str:
        if self.operator in (Operator.GT, Operator.LT):
            return f"{self.key} {'>' if self.operator is Operator.GT else '<'} {self.values[0]}"
        if self.operator in (Operator.IN, Operator.NOT_IN):
            return f"{self.key} {'in' if self.operator is Operator.IN else 'not in'} {','.join(self.values)}"
        return f"{self.key} {'exists' if self.operator is Operator.EXISTS else 'missing'}"


@dataclass(frozen=True)
class Preference:
    """A condition that a job prefers its nodes to meet. `weight`, from 1 to 100, is relative to the job's
    other preferences.
    """

    term: Term
    weight: int = 50

    def __str__(self) -> str:
        return f"{self.term} weight {self.weight}"


@dataclass(frozen=True)
class Taint:
    """A taint of a node, as in Kubernetes. Jobs that do not tolerate the taint do not run on the node, or,
    with the effect PreferNoSchedule, only if no other node fits.
    """

    key: str
    effect: Effect
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect.value}"


@dataclass(frozen=True)
class Toleration:
    """A toleration of a job: the taints that the job tolerates. An empty `key` matches every key; None as
    `value` or `effect` matches every value or effect.
    """

    key: str = ""
    value: Optional[str] = None
    effect: Optional[Effect] = None

    def tolerates(self, taint: Taint) -> bool:
        return (
            self.key in ("", taint.key)
            and self.value in (None, taint.value)
            and self.effect in (None, taint.effect)
        )

    def __str__(self) -> str:
        value = "" if self.value is None else f"={self.value}"
        return f"{self.key or '*'}{value}" + (f":{self.effect.value}" if self.effect else "")


def untolerated_taint(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], *effects: Effect
) -> Optional[Taint]:
    """Return the first taint with one of `effects` that no toleration matches. Return None if all such taints
    are tolerated.
    """
    for taint in taints:
        if taint.effect in effects and not any(each.tolerates(taint) for each in tolerations):
            return taint
    return None


def parse_term(text: str) -> Term:
    """Parse a condition such as `zone in a,b`, `disk missing` or `cores > 64`. Raise ValueError for any
    other text.
    """
    words = text.strip()
    listed, there, compared = _IN.fullmatch(words), _THERE.fullmatch(words), _COMPARED.fullmatch(words)
    if listed:
        values = tuple(value.strip() for value in listed[3].split(",") if value.strip())
        return Term(listed[1], Operator.IN if listed[2].lower() == "in" else Operator.NOT_IN, values)
    if there:
        found = there[2].lower() == "exists"
        return Term(there[1], Operator.EXISTS if found else Operator.DOES_NOT_EXIST)
    if compared:
        return Term(compared[1], Operator.GT if compared[2] == ">" else Operator.LT, (compared[3],))
    raise ValueError(
        f"cannot read {text!r}; write 'zone in a,b', 'zone not in a,b', 'disk exists', 'disk missing', "
        "'cores > 64' or 'cores < 8'"
    )


def parse_preference(text: str) -> Preference:
    """Parse a preference such as `zone in a,b` or `zone in a,b weight 80`. Raise ValueError for any other
    text.
    """
    weighed = _WEIGHED.fullmatch(text.strip())
    return Preference(parse_term(weighed[1]), int(weighed[2])) if weighed else Preference(parse_term(text))


def parse_taint(text: str) -> Taint:
    """Parse a taint such as `gpu=big:NoSchedule` or `broken:NoExecute`. Raise ValueError for any other
    text.
    """
    name, colon, effect = text.strip().rpartition(":")
    key, _, value = name.partition("=")
    if not colon or not KEY.fullmatch(key):
        effects = ", ".join(each.value for each in Effect)
        raise ValueError(f"cannot read {text!r} as a taint; write key=value:Effect with one of {effects}")
    return Taint(key, parse_effect(effect), value)


def parse_toleration(text: str) -> Toleration:
    """Parse a toleration such as `gpu=big:NoSchedule`, `gpu=big`, `gpu`, or `*` for every taint. Raise
    ValueError for any other text.
    """
    name, colon, effect = text.strip().partition(":")
    key, equals, value = name.partition("=")
    if key != "*" and not KEY.fullmatch(key):
        raise ValueError(
            f"cannot read {text!r}; write gpu=big:NoSchedule, gpu=big, gpu, or '*' for every taint"
        )
    return Toleration(
        "" if key == "*" else key, value if equals else None, parse_effect(effect) if colon else None
    )


def parse_effect(text: str) -> Effect:
    """Return the effect with this name, in upper or lower case. Raise ValueError for any other text."""
    for effect in Effect:
        if text.lower() == effect.value.lower():
            return effect
    raise ValueError(f"there is no effect {text!r}; write {', '.join(each.value for each in Effect)}")


def term_problems(term: Term) -> Iterator[str]:
    """Validate a condition. Yield a sentence for each mistake."""
    if not KEY.fullmatch(term.key):
        yield f"{term.key!r} is not the name of a label"
    if len(term.values) > MAX_VALUES or any(len(value) > 200 for value in term.values):
        yield f"may have at most {MAX_VALUES} values of at most 200 characters"
    if term.operator in (Operator.IN, Operator.NOT_IN) and not term.values:
        yield f"{term.operator.value} needs at least one value"
    if term.operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and term.values:
        yield f"{term.operator.value} takes no value"
    if term.operator in (Operator.GT, Operator.LT) and (
        len(term.values) != 1 or _number(term.values[0]) is None
    ):
        yield f"{term.operator.value} needs one number"


def affinity_problems(
    terms: tuple[Term, ...], preferences: tuple[Preference, ...], tolerations: tuple[Toleration, ...]
) -> Iterator[tuple[str, str]]:
    """Validate affinity, preferences and tolerations. Yield each mistake as (field name, sentence for
    users).
    """
    for where, count in (
        ("affinity", len(terms)),
        ("preferences", len(preferences)),
        ("tolerations", len(tolerations)),
    ):
        if count > MAX_TERMS:
            yield where, f"may have at most {MAX_TERMS} entries"
    for at, term in enumerate(terms):
        for sentence in term_problems(term):
            yield f"affinity[{at}]", sentence
    for at, preference in enumerate(preferences):
        for sentence in term_problems(preference.term):
            yield f"preferences[{at}]", sentence
        if not 1 <= preference.weight <= 100:
            yield f"preferences[{at}]", "the weight must lie between 1 and 100"
    for at, toleration in enumerate(tolerations):
        if toleration.key and not KEY.fullmatch(toleration.key):
            yield f"tolerations[{at}]", f"{toleration.key!r} is not the key of a taint"


def affinity_texts(
    terms: tuple[Term, ...], preferences: tuple[Preference, ...], tolerations: tuple[Toleration, ...]
) -> Iterator[tuple[str, str]]:
    """Yield each text in affinity, preferences and tolerations that a user wrote, as (field name, text)."""
    for where, given in (("affinity", terms), ("preferences", tuple(each.term for each in preferences))):
        for term in given:
            yield from ((where, text) for text in (term.key, *term.values))
    for toleration in tolerations:
        yield from (("tolerations", text) for text in (toleration.key, toleration.value or ""))


def _number(text: Optional[str]) -> Optional[float]:
    if text is None or not re.fullmatch(r"-?\d{1,15}(\.\d{1,9})?", text):
        return None
    return float(text)
