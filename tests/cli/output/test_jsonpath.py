"""The templates of -o jsonpath."""

from __future__ import annotations

from typing import Any

import pytest

from cli.output.jsonpath import JsonPath, JsonPathError

DATA: dict[str, Any] = {
    "nodes": [
        {"name": "gpu01", "gpus": 8, "state": "UP", "labels": {"rack": "r1", "a.b/c": "x"}, "why": None},
        {"name": "gpu02", "gpus": 4, "state": "DOWN", "labels": {}, "why": "fan\x1b[2J"},
        {"name": "gpu03", "gpus": 8, "state": "UP", "labels": {"rack": "r2"}, "why": None},
    ],
    "seq": 7,
    "ready": True,
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (".seq", "7"),
        ("seq", "7"),
        ("{.seq}", "7"),
        ("{$.seq}", "7"),
        ("{.ready}", "true"),
        (".nodes[*].name", "gpu01 gpu02 gpu03"),
        (".nodes[0].name", "gpu01"),
        (".nodes[-1].name", "gpu03"),
        (".nodes[0,2].name", "gpu01 gpu03"),
        (".nodes[1:].name", "gpu02 gpu03"),
        (".nodes[:2].name", "gpu01 gpu02"),
        (".nodes[::2].name", "gpu01 gpu03"),
        (".nodes[9].name", ""),
        ("..rack", "r1 r2"),
        (".nodes[0].labels.*", "r1 x"),
        (".nodes[0].labels.a\\.b/c", "x"),
        (".nodes[0].labels['a.b/c']", "x"),
        ('.nodes[0]["name"]', "gpu01"),
        (".nodes[0].labels", '{"rack":"r1","a.b/c":"x"}'),
        (".nodes[0].why", ""),
        ('.nodes[?(@.state=="UP")].name', "gpu01 gpu03"),
        (".nodes[?(@.state == 'UP')].name", "gpu01 gpu03"),
        (".nodes[?(@.gpus < 8)].name", "gpu02"),
        (".nodes[?(@.gpus>=8)].name", "gpu01 gpu03"),
        (".nodes[?(@.labels.rack != 'r1')].name", "gpu03"),
        (".nodes[?(@.labels.rack)].name", "gpu01 gpu03"),
        (".nodes[?(@.why == null)].name", "gpu01 gpu03"),
        (".nodes[?(@.gpus > 100)].name", ""),
        ('{range .nodes[*]}{.name}={.gpus}{"\\n"}{end}', "gpu01=8\ngpu02=4\ngpu03=8\n"),
        ("{range .nodes[*]}{.name} of {$.seq}, {end}", "gpu01 of 7, gpu02 of 7, gpu03 of 7, "),
        ("{range .nodes[0:1]}{range .labels.*}<{.}>{end}{end}", "<r1><x>"),
        ("seq: {.seq}\t{.ready}", "seq: 7\ttrue"),
    ],
)
def test_template_selects_values(template: str, text: str) -> None:
    assert JsonPath(template).text(DATA) == text


def test_text_of_users_cannot_control_the_terminal() -> None:
    assert "\x1b" not in JsonPath(".nodes[1].why").text(DATA)


def test_list_without_elements_selects_nothing() -> None:
    assert JsonPath(".nodes[*].name").text({"nodes": []}) == ""
    assert JsonPath('{range .nodes[?(@.state=="UP")]}{.name}{end}').text({"nodes": []}) == ""


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("", "at character 1: expected a path, such as .nodes[*].name, found the end"),
        ("{.seq", "at character 6: expected '}', found the end"),
        (
            ".nodes[",
            "at character 8: expected a number, a slice such as 0:3, *, 'name' or ?(…), found the end",
        ),
        (".nodes[0", "at character 9: expected ']', found the end"),
        (".nodes[x]", "at character 8: expected a number"),
        (".nodes[0,x]", "at character 10: expected a number, found 'x]'"),
        (".nodes.", "at character 8: expected the name of a field after '.', found the end"),
        ("..", "at character 3: expected the name of a field after '..', found the end"),
        (".seq extra", "at character 5: expected the end of the expression, found ' extra'"),
        ("{end}", "at character 1: {end} without {range …}, found '{end}'"),
        ("ab{range .nodes[*]}{.name}", "at character 3: {range …} without {end}"),
        (".nodes[?(@.state==UP)]", "at character 19: 'UP' is no value: write @.UP for a field, or quotes"),
        (".nodes[?(@.state=)]", "at character 17: expected ')', found '=)]'"),
        (".nodes[?()]", "at character 10: expected a field such as @.name, a number or a text in quotes"),
    ],
)
def test_invalid_template_is_refused_with_its_place(template: str, message: str) -> None:
    with pytest.raises(JsonPathError) as refused:
        JsonPath(template)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (".node[*]", "at character 2: there is no field 'node'; the fields there are nodes, seq, ready"),
        (".nodes[*].nam", "at character 11: there is no field 'nam'; the fields there are name, gpus, state"),
        (".nodes.name", "at character 8: 'name' is looked for in a list: write [*] or [0] before it"),
        (".seq.x", "at character 6: 'x' is looked for in '7', which has no fields"),
        (".nodes[?(@.sate=='UP')]", "at character 12: there is no field 'sate'"),
        (".nodes[0].labels[0]", "at character 17: [ ] with a number is for lists, and this is an object"),
        (".nodes[1].labels.rack", "at character 18: there is no field 'rack'; the object there is empty"),
    ],
)
def test_field_that_no_value_has_is_an_error(template: str, message: str) -> None:
    with pytest.raises(JsonPathError) as refused:
        JsonPath(template).text(DATA)
    assert str(refused.value).startswith(message)
