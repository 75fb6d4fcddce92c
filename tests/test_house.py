"""The documents match the code: commands, keys, names, and the content of the wheel."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
import sys
import tomllib
import types
import zipfile
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pip._internal.models.index import PyPI
from typer.main import get_command

from cli.main import app
from controller.config import Source, load
from controller.core.cluster.node_table import ALL_ROWS, empty_table
from controller.core.model.request import PerNodeRequest
from controller.registry import build_pipeline, installed_plugins, make_plugin
from wire import VERSION

HOME = Path(__file__).parents[1]
PACKAGES = ("wire", "controller", "agent", "tui", "cli")
DOCUMENTS = sorted([*HOME.glob("*.md"), *HOME.glob("docs/**/*.md")])
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]


def documented_code(document: Path) -> Iterator[str]:
    """The lines of code blocks, and the texts between backticks."""
    text = document.read_text()
    yield from re.findall(r"^ {4}(?:\$ )?(.+)$", text, re.MULTILINE)
    yield from re.findall(r"`([^`\n]+)`", text)


def commands() -> list[str]:
    """Every command line of corral in the documents, without redirections and pipes of the shell."""
    found = {
        line for document in DOCUMENTS for line in documented_code(document) if re.match(r"corral( |$)", line)
    }
    return sorted(re.split(r"  +#| \||\s[<>&]| && ", line)[0].strip() for line in found)


@pytest.mark.parametrize("line", commands())
def test_documented_commands_exist(line: str) -> None:
    words, path, command = shlex.split(line)[1:], ["corral"], get_command(app)
    context: Any = command.make_context("corral", [], resilient_parsing=True)
    while words and hasattr(command, "get_command"):
        below = command.get_command(context, words[0])
        assert below is not None or words[0].startswith("-"), f"{' '.join(path)} has no command {words[0]!r}"
        if below is None:
            break
        path.append(words.pop(0))
        command = below
    known = {
        option for param in command.get_params(context) for option in (*param.opts, *param.secondary_opts)
    }
    given = [word for word in words[: words.index("--") if "--" in words else None] if word[:1] == "-"]
    assert {word.split("=")[0] for word in given} <= known | {"-h", "--help"}, " ".join(path)


def test_documented_make_targets_exist() -> None:
    asked = {
        match
        for document in DOCUMENTS
        for line in documented_code(document)
        for match in re.findall(r"^make ([a-z]+)", line)
    }
    assert {"demo", "test", "check", "bench"} <= asked
    assert asked <= set(re.findall(r"^([a-z-]+):", (HOME / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(HOME)))
def test_links_in_documents_exist(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text())
    assert [link for link in links if "://" not in link and not (document.parent / link).exists()] == []


def test_every_decision_is_listed() -> None:
    listed = (HOME / "docs/decisions/README.md").read_text()
    assert [path.name for path in HOME.glob("docs/decisions/[0-9]*.md") if path.name not in listed] == []


def test_readme_configurations_load(tmp_path: Path) -> None:
    lines = [
        line
        for line in documented_code(HOME / "README.md")
        if line.endswith("> scheduler.toml") or "> scheduler.toml " in line
    ]
    assert len(lines) == 2
    for line in lines:
        subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, check=True)
        config = load(tmp_path / "scheduler.toml")
        assert list(config.nodes) == ["gpu01"]
        build_pipeline(config)


def test_every_key_of_the_complete_configuration_has_a_comment() -> None:
    bare, explained = [], False
    for line in (HOME / "scheduler.toml").read_text().splitlines():
        if re.match(r"(# )?[a-z_]+ = ", line) and " # " not in line.removeprefix("# "):
            bare += [] if explained else [line]
        explained = line.startswith("#") or (explained and bool(line))
    assert bare == []


@pytest.mark.parametrize("kind", ["filter", "scorer", "order", "picker"])
def test_every_built_in_plugin_is_in_the_complete_configuration(kind: str) -> None:
    text = (HOME / "scheduler.toml").read_text()
    assert [
        name
        for name in installed_plugins(kind)
        if not re.search(rf'"{name}"|^(# )?{name} = ', text, re.MULTILINE)
    ] == []


def test_every_entry_point_can_be_imported() -> None:
    points = {**PROJECT["scripts"]}
    for group in PROJECT["entry-points"].values():
        points |= {point: point for point in group.values()}
    for point in points.values():
        module, _, name = point.partition(":")
        assert callable(getattr(importlib.import_module(module), name)), point


def test_changelog_has_the_current_version() -> None:
    assert f"## [{VERSION}]" in (HOME / "CHANGELOG.md").read_text()


def test_plugin_in_the_contributing_guide_works(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (HOME / "CONTRIBUTING.md").read_text(), re.DOTALL)
    module = types.ModuleType("my_corral.favour")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(code, vars(module))
    monkeypatch.setitem(
        installed_plugins("scorer"),
        "favour",
        [EntryPoint("favour", "my_corral.favour:Favour", "corral.scorer")],
    )
    favour = make_plugin("scorer", "favour", {"value": "south"}, (), Source("", {}))
    nodes = empty_table(3, 0)
    nodes.labels[1]["zone"] = "south"
    assert favour.score(PerNodeRequest(1, 1), nodes, ALL_ROWS).tolist() == [0, 1, 0]


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (path for path in (HOME / package).rglob("*.py"))


def test_every_module_has_a_docstring() -> None:
    assert [str(path) for path in modules() if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_wheel_contains_only_the_product_packages(tmp_path: Path) -> None:
    """The wheel also contains the pages, scripts and styles beside the modules."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=HOME,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in packed} == {*PACKAGES, f"corral-{VERSION}.dist-info"}
    beside = {
        str(path.relative_to(HOME))
        for package in PACKAGES
        for path in (HOME / package).rglob("*")
        if "__pycache__" not in path.parts and path.is_file()
    }
    assert beside <= packed


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=HOME, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a clone")
    return [path for name in done.stdout.decode().split("\0") if name and (path := HOME / name).is_file()]


def test_no_file_names_a_developer_machine_or_package_index() -> None:
    settings = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    urls = [PyPI.url, f"https://{PyPI.file_storage_domain}/", *re.findall(r"\w+://[^\s']+", settings)]
    hosts = {re.escape(host) for url in urls if (host := urlsplit(url).hostname)} - {"localhost"}
    homes = {"/(?:root|work|farm|Users)/"}
    if len(HOME.parts) > 2:  # a folder at the root may be named as a word of ours, such as /src
        homes.add(re.escape(str(HOME)))
    strange = re.compile("|".join(sorted(hosts | homes)).encode())
    found = {
        str(path.relative_to(HOME)): match[0]
        for path in tracked()
        if (match := strange.search(path.read_bytes()))
    }
    assert found == {}


def test_make_quick_names_existing_tests() -> None:
    [line] = [each for each in (HOME / "Makefile").read_text().splitlines() if each.startswith("QUICK := ")]
    assert [each for each in line.split()[2:] if not (HOME / each).exists()] == []
