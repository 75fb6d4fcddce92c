"""Encoded values decode to the same values, and invalid data is refused."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import json
import pkgutil
import typing
from typing import Any, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from wire import api
from wire.agent import frames, orders, reports
from wire.api.jobs import SubmitRequest, Submitted
from wire.api.service.cluster import EventList
from wire.codec import Malformed, decode, dumps, encode, encode_once
from wire.job import spec
from wire.job.spec import JobSpec
from wire.names import JobState

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that may travel."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return JSON
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return st.builds(kind, **{part.name: values(hints[part.name]) for part in dataclasses.fields(kind)})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from(kind)
    if origin is Union:
        return st.none() | values(arguments[0])
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is not None:
        return st.dictionaries(st.text(), values(arguments[1]), max_size=3)
    return {
        int: st.integers(-frames.MOST, frames.MOST),
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: st.text(),
        bool: st.booleans(),
    }[kind]


ROOMS = [importlib.import_module(each.name) for each in pkgutil.walk_packages(api.__path__, "wire.api.")]
TRAVELLERS = [
    kind
    for module in (*ROOMS, reports, orders, spec)
    for kind in vars(module).values()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
]
FRAMES = typing.get_args(frames.Frame)


@pytest.mark.parametrize("kind", TRAVELLERS, ids=lambda kind: kind.__name__)
@settings(max_examples=examples(24))
@given(data=st.data())
def test_encoded_values_decode_to_the_same(kind: type[Any], data: st.DataObject) -> None:
    sent = data.draw(values(kind))
    assert decode(kind, json.loads(dumps(encode(sent)))) == sent
    assert dumps(encode_once(sent)) == dumps(encode(sent))


@settings(max_examples=examples(150))
@given(st.one_of(*map(values, FRAMES)))
def test_frame_is_one_line_and_decodes_to_the_same(frame: frames.Frame) -> None:
    line = frames.pack(frame)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert frames.unpack(line) == frame


@given(st.binary() | JSON.map(lambda data: json.dumps(data).encode()))
def test_invalid_line_is_malformed(line: bytes) -> None:
    with pytest.raises(Malformed):
        frames.unpack(line)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b'{"t": []}',
        b'{"t": {}}',
        b'{"t": null}',
        b'{"t": "no such kind"}',
        b'{"t": "ping"}',
        b'{"t": "ping", "beat": "1"}',
        b'{"t": "ping", "beat": 1, "more": 1}',
        b'{"t": "ping", "beat": ' + b"9" * 5_000 + b"}",
        b'{"t": "hello", "facts": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\xff\xfe",
    ],
)
def test_hostile_frame_is_malformed(line: bytes) -> None:
    with pytest.raises(Malformed):
        frames.unpack(line)


@pytest.mark.parametrize(
    ("kind", "data", "where"),
    [
        (JobSpec, [], ""),
        (JobSpec, None, ""),
        (JobSpec, {}, "command"),
        (JobSpec, {"command": ["a"], "colour": 1}, "colour"),
        (JobSpec, {"command": "a"}, "command"),
        (JobSpec, {"command": ["a", 1]}, "command[1]"),
        (JobSpec, {"command": ["a"], "priority": "50"}, "priority"),
        (JobSpec, {"command": ["a"], "priority": 5.5}, "priority"),
        (JobSpec, {"command": ["a"], "priority": True}, "priority"),
        (JobSpec, {"command": ["a"], "priority": None}, "priority"),
        (JobSpec, {"command": ["a"], "gpus": True}, "gpus"),
        (JobSpec, {"command": ["a"], "hold": 1}, "hold"),
        (JobSpec, {"command": ["a"], "env": {"A": 1}}, "env.A"),
        (JobSpec, {"command": ["a"], "env": []}, "env"),
        (SubmitRequest, {"spec": {"command": ["a"], "gpus": "1"}}, "spec.gpus"),
        (EventList, {"events": [{"seq": 1}], "seq": 1}, "events[0].at"),
        (frames.GpuTrouble, {"uuid": "a", "kind": "great"}, "kind"),
        (frames.GpuTrouble, {"uuid": "a", "kind": ["xid"]}, "kind"),
    ],
)
def test_field_of_the_wrong_type_is_named(kind: type[Any], data: Any, where: str) -> None:
    with pytest.raises(Malformed) as caught:
        decode(kind, data)
    assert caught.value.where == where


def test_integer_decodes_as_float_and_null_as_none() -> None:
    assert decode(JobSpec, {"command": ["a"], "gpus": 2}).gpus == 2
    assert decode(JobSpec, {"command": ["a"], "nodes": None}).nodes is None


def test_states_are_encoded_as_names() -> None:
    assert encode(Submitted((1, 2), "1")) == {"ids": [1, 2], "label": "1", "notes": []}
    assert dumps(JobState.RUNNING.value) == '"RUNNING"'
