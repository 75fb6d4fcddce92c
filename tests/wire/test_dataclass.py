"""The decorator of wire makes the same classes as the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

import wire.dataclass

Decorator = Callable[..., Any]


@wire.dataclass.dataclass(frozen=True)
class Pickled:
    at: float
    words: tuple[str, ...] = ()


def classes(dataclass: Decorator) -> tuple[Any, Any, Any]:
    """Return a frozen class, a subclass of it, and a class that is not frozen."""

    @dataclass(frozen=True)
    class Point:
        kind: ClassVar[str] = "point"

        x: int
        y: float = 1.5
        names: list[str] = field(default_factory=list, compare=False)
        secret: str = field(default="", repr=False)
        length: float = field(default=0.0, init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "length", self.x + self.y)

    @dataclass(frozen=True)
    class Named(Point):
        name: str = "here"

        def __repr__(self) -> str:
            return f"Named {self.name}"

    @dataclass
    class Counter:
        """Counts."""

        value: int = 0

    return Point, Named, Counter


def facts(dataclass: Decorator) -> list[object]:
    """Return what the classes do, in values that can be compared."""
    point, named, counter = classes(dataclass)
    one, other, third = point(1, names=["a"]), point(1, 1.5, ["b"]), point(x=2, secret="s")
    changed = counter()
    changed.value = 3
    return [
        repr(one).partition("<locals>.")[2],
        (one == other, one == third, one != third, one == named(1), named(1) == named(1)),
        (hash(one) == hash(other), hash(one) == hash(third)),
        (one.length, third.length, one.names, named(4, name="n").name, repr(named(4))),
        dataclasses.asdict(third),
        (changed == counter(3), counter.__hash__, counter.__doc__, repr(changed).partition("<locals>.")[2]),
        [each.name for each in dataclasses.fields(named)],
        point.__match_args__,
        point.kind,
        copy.deepcopy(one) == one,
    ]


def test_the_classes_do_what_those_of_the_standard_library_do() -> None:
    assert facts(wire.dataclass.dataclass) == facts(dataclasses.dataclass)


def test_the_first_instances_and_later_ones_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    point, _, _ = classes(wire.dataclass.dataclass)
    stub = point.__init__
    made = [point(1, names=["a"]) for _ in range(20)]
    assert point.__init__ is not stub
    assert {repr(each) for each in made} == {repr(made[0])}
    assert all(vars(each) == vars(made[-1]) for each in made)
    monkeypatch.setattr(wire.dataclass, "_LOOPS", 0)
    assert facts(wire.dataclass.dataclass) == facts(dataclasses.dataclass)


def test_the_first_instance_compiles_no_method() -> None:
    point, named, _ = classes(wire.dataclass.dataclass)
    stubs = (point.__init__, named.__init__)
    assert (point(1, secret="s").length, named(1, names=["b"], name="n").name) == (2.5, "n")
    assert (point.__init__, named.__init__) == stubs


def test_a_default_that_is_made_anew_is_not_shared() -> None:
    point, _, _ = classes(wire.dataclass.dataclass)
    point(1).names.append("a")
    assert point(1).names == []


@pytest.mark.parametrize("dataclass", [wire.dataclass.dataclass, dataclasses.dataclass])
def test_wrong_arguments_and_changes_are_refused(dataclass: Decorator) -> None:
    point, named, _ = classes(dataclass)
    for wrong in (lambda: point(), lambda: point(1, z=2), lambda: named(1, 2, [], "", "n", "more")):
        with pytest.raises(TypeError, match="argument"):
            wrong()
    for instance in (point(1), named(1)):
        with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
            instance.x = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
            del instance.x
    with pytest.raises(TypeError, match="frozen"):

        @dataclass
        class Loose(point):  # type: ignore[misc]
            z: int = 0


def test_replace_and_pickle_before_the_first_use_of_a_method() -> None:
    there = Pickled(2.0, ("a",))
    assert pickle.loads(pickle.dumps(there)) == there
    assert dataclasses.replace(there, at=3.0) == Pickled(3.0, ("a",))
