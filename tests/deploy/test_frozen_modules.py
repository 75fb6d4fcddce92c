"""The frozen programs contain all modules, also those that only an entry point or a table names."""

from __future__ import annotations

import subprocess
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.deploy.built import HOME, PROGRAM, outdated

VIEWER = HOME / ".venv-build" / "bin" / "pyi-archive_viewer"
WHY_NOT = outdated() or ("" if VIEWER.exists() else f"{VIEWER} is missing: make binary")
pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "everything is there"), pytest.mark.slow]
AGENT = PROGRAM.with_name("corral-agent")


def frozen(program: Path) -> set[str]:
    """The modules in a frozen program."""
    done = subprocess.run(
        [str(VIEWER), "--recursive", "--brief", str(program / program.name)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return {line.strip() for line in done.stdout.splitlines()}


def modules(*packages: str) -> set[str]:
    """The modules of packages in the repository."""
    paths = [path.relative_to(HOME) for package in packages for path in (HOME / package).rglob("*.py")]
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths}


def test_all_modules_of_corral_are_in_its_program() -> None:
    # The migrations of the store are files, because alembic reads their directory.
    versions = {name for name in modules("controller") if name.startswith("controller.store.migrations.")}
    missing = modules("agent", "cli", "controller", "tui", "wire") - versions - frozen(PROGRAM)
    assert missing == set()
    files = PROGRAM / "_internal" / "controller" / "store" / "migrations"
    assert sorted(path.name for path in files.rglob("*.py")) == sorted(
        path.name for path in (HOME / "controller/store/migrations").rglob("*.py")
    )


def test_all_modules_of_the_agent_are_in_its_program() -> None:
    assert modules("agent") - frozen(AGENT) == set()


def test_libraries_that_corral_imports_by_name_are_in_its_program() -> None:
    libraries = {
        "psycopg",
        "psycopg_binary",
        "sqlalchemy.dialects.postgresql",
        "alembic.ddl.sqlite",
    }
    assert libraries - frozen(PROGRAM) == set()
    # This library is a file, because the controller sends it to agents.
    assert (PROGRAM / "_internal" / "pynvml.py").exists()


def test_entry_points_of_the_program_are_those_of_the_project() -> None:
    """A build environment of another state of the project has other entry points."""
    with (HOME / "pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["project"]["entry-points"]
    [installed] = (PROGRAM / "_internal").glob("corral-*.dist-info/entry_points.txt")
    found = ConfigParser(delimiters=("=",))
    found.optionxform = str  # type: ignore[assignment] - the names are not lowered
    found.read(installed)
    assert {group: dict(found[group]) for group in wanted} == wanted
    assert {value.partition(":")[0] for group in wanted.values() for value in group.values()} <= frozen(
        PROGRAM
    )
