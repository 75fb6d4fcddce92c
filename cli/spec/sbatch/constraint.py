"""Converts the value of --constraint, an expression of features, to the GPU models that a job accepts."""

from __future__ import annotations

import re

_MODEL = re.compile(r"[abhlv]\d{2,3}s?|gh200|gb200|rtx\w+|t4|p100", re.IGNORECASE)
_TOKEN = re.compile(r"[()\[\]|&,]|[^()\[\]|&,\s]+")
_ANY_NODE = frozenset(("gpu", "gpus"))
"""Features that every node with GPUs has."""
MOST_WORDS = 200
MOST_SETS = 1_000
"""An expression that would give more sets of features than this is an error."""
_CLOSING = {"(": ")", "[": "]"}
Sets = list[frozenset[str]]


def gpu_models(text: str) -> list[str]:
    """Return the GPU models of the nodes that an expression of features accepts. An empty list means that
    the expression accepts all nodes with GPUs.

    Allowed features are GPU models, and `gpu` and `gpus`, which stand for any GPU node. Raise ValueError if
    the expression has another feature, or if its form is wrong.

    1. Split the text into names and operators. ',' and '&' mean that a node has both features, and '|' means
       that a node has one of them. '&' binds more tightly than '|'. '[a|b]' means in addition that all nodes
       of the job have the same feature, which is Corral's default for GPU models.
    2. Compute the sets of GPU models that a node may have: 'a&(b|c)' gives {a, b} and {a, c}. `gpu` and
       `gpus` add no model to a set.
    3. Refuse a set with several GPU models, because no node has several models. If a set is empty, return an
       empty list.

    Example: '[a100|h100]&gpu' gives a100 and h100.
    """
    tokens = _TOKEN.findall(text)
    if len(tokens) > MOST_WORDS:
        raise ValueError(f"has {len(tokens)} names and operators, and may have {MOST_WORDS}; write a100|h100")
    enough = _either(tokens)
    if tokens:
        raise ValueError(f"{text!r} has {tokens[0]!r} in a wrong place; write a100, or a100|h100")
    several = next((names for names in enough if len(names) > 1), None)
    if several is not None:
        raise ValueError(
            f"{text!r} requests nodes that are {' and '.join(sorted(several))} at once; write "
            f"{'|'.join(sorted(several))} for nodes with one of these GPUs"
        )
    if frozenset() in enough:
        return []
    return list(dict.fromkeys(name for names in enough for name in names))


def _either(tokens: list[str]) -> Sets:
    found = _both(tokens)
    while tokens and tokens[0] == "|":
        tokens.pop(0)
        found = [*found, *_both(tokens)]
    return found


def _both(tokens: list[str]) -> Sets:
    found = _one(tokens)
    while tokens and tokens[0] in ("&", ","):
        tokens.pop(0)
        more = _one(tokens)
        if len(found) * len(more) > MOST_SETS:
            raise ValueError("combines too many features; write a100|h100")
        found = [left | right for left in found for right in more]
    return found


def _one(tokens: list[str]) -> Sets:
    if not tokens or tokens[0] in ("|", "&", ",", ")", "]"):
        raise ValueError("a feature is missing; write a100, or a100|h100")
    token = tokens.pop(0)
    if token in _CLOSING:
        found = _either(tokens)
        if not tokens or tokens.pop(0) != _CLOSING[token]:
            raise ValueError(f"{token!r} has no {_CLOSING[token]!r}")
        return found
    name, star, _ = token.partition("*")
    if star:
        raise ValueError(
            f"{token!r} requests a number of nodes with a feature; submit a job for each kind of node"
        )
    if name.lower() in _ANY_NODE:
        return [frozenset()]
    if _MODEL.fullmatch(name) is None:
        raise ValueError(
            f"{name!r} is a node feature; Corral has labels instead: #CORRAL --select KEY=VALUE, "
            "or --affinity 'KEY in A,B'; 'corral nodes show NODE' lists the labels"
        )
    return [frozenset((name,))]
