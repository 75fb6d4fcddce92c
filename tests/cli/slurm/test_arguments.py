"""How words of Slurm's commands are split into options and operands."""

from __future__ import annotations

import pytest

from cli.slurm.arguments import Option, UsageError, Value, parse, switch

OPTIONS = (
    Option("job-name", "J"),
    Option("time", "t"),
    Option("time-min"),
    Option("nice", "", Value.OPTIONAL),
    switch("hold", "H"),
    switch("wait", "W"),
)


def test_forms_of_options() -> None:
    words = ["-HW", "-J", "a", "-Jb", "--job-name=c", "--job-name", "d", "--hol", "--nice", "--nice=5", "x"]
    found = parse(OPTIONS, words)
    assert found.options == [
        *(("hold", ""), ("wait", ""), ("job-name", "a"), ("job-name", "b")),
        *(("job-name", "c"), ("job-name", "d"), ("hold", ""), ("nice", ""), ("nice", "5")),
    ]
    assert found.words == ["x"]
    assert (found.last("job-name"), found.all("nice"), found.has("time")) == ("d", ["", "5"], False)


def test_operands_end_the_options_of_sbatch() -> None:
    assert parse(OPTIONS, ["-H", "a.sh", "-t", "1"], intersperse=False).words == ["a.sh", "-t", "1"]
    assert parse(OPTIONS, ["a", "-H", "--", "-t"]).words == ["a", "-t"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--foo"], "unrecognized option '--foo'"),
        (["--time"], "option '--time' requires an argument"),
        (["-Z"], "invalid option -- 'Z'"),
        (["-t"], "option requires an argument -- 't'"),
        (["--hold=1"], "option '--hold' doesn't allow an argument"),
        (["--ti=1"], "option '--ti' is ambiguous; possibilities: '--time' '--time-min'"),
    ],
)
def test_messages_are_those_of_getopt(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match="^" + message.replace("(", r"\(") + "$"):
        parse(OPTIONS, words)
