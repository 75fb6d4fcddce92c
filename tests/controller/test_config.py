"""scheduler.toml: its meaning, and how mistakes are refused."""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from controller.config import Config, ConfigProblem, ConfigRefused, load, render
from controller.config.key_positions import Key, locate
from controller.config.tables.access import AccessSection
from controller.config.tables.limits import LimitSection, LimitsSection
from controller.config.tables.policy.scheduler import QuotaSection
from controller.plugins.quotas.local import LocalQuotas, QuotaTable
from controller.registry import build_pipeline
from wire.cluster.hosts import HostSpec
from wire.http import addresses

COMPLETE = Path(__file__).parents[2] / "scheduler.toml"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("CORRAL_"):
            monkeypatch.delenv(name)


def written(directory: Path, text: str | bytes) -> Path:
    path = directory / "scheduler.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(path: Path | None) -> tuple[ConfigProblem, ...]:
    with pytest.raises(ConfigRefused) as caught:
        build_pipeline(load(path))
    assert "Traceback" not in str(caught.value)
    return caught.value.problems


def test_complete_file_equals_the_defaults() -> None:
    complete = load(COMPLETE)
    assert complete.model_copy(update={"nodes": {}, "scheduler": Config().scheduler}) == Config()
    assert build_pipeline(complete) == build_pipeline(Config())


def test_complete_file_names_every_key() -> None:
    # Keys without a default are comments in the file.
    text = re.sub(r"^#(?: | {4})(\w+ = |\[)", r"\1", COMPLETE.read_text(), flags=re.MULTILINE)
    named = tomllib.loads(text)
    for table, section in Config.model_fields.items():
        if table in ("nodes", "queues", "hours", "profiles", "projects", "services", "engines"):
            # The first table has all keys; the tables of further engine types have options of the type.
            one = next(iter(named[table].values()))
            assert table == "engines" or len(named[table]) == 1
            assert set(one) == set(section.annotation.__args__[1].model_fields)  # type: ignore[union-attr]
        elif table == "access":
            assert set(named[table]) == set(AccessSection.model_fields)
            limits = named[table]["limits"]
            assert set(limits) == set(LimitsSection.model_fields)
            of_some = [each for scope in ("users", "projects", "queues") for each in limits[scope].values()]
            for one in (limits["operators"], *of_some):
                assert set(one) == set(LimitSection.model_fields)
        elif table == "licences":
            assert named[table] == {"matlab": 5}
        elif table == "quota":
            provider = {each.name for each in dataclasses.fields(LocalQuotas)}
            assert set(named[table]) == {*QuotaSection.model_fields, *provider}
            assert set(named[table]["users"]["*"]) == {each.name for each in dataclasses.fields(QuotaTable)}
        else:
            assert set(named[table]) == set(section.annotation.model_fields)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[licences]\nmatlab = -1\n", "licences.matlab"),
        ('[licences]\nmatlab = "5"\n', "licences.matlab"),
        ('[licences]\n"a b" = 1\n', "is no name of a licence"),
    ],
)
def test_licences_are_names_and_numbers(tmp_path: Path, text: str, message: str) -> None:
    (problem,) = refused(written(tmp_path, text))
    assert message in str(problem)


def test_without_a_file_everything_has_its_default() -> None:
    config = load(None)
    assert config == Config()
    assert config.state_dir == addresses.state_dir()
    assert config.socket == addresses.socket_path()
    assert config.store_url == f"sqlite:///{addresses.state_dir()}/corral.db"


def test_paths_follow_the_state_directory(tmp_path: Path) -> None:
    path = written(tmp_path, '[controller]\nstate_dir = "/srv/c"\n[nodes.a]\n[nodes.b]\nspool = "/fast/b"\n')
    config = load(path)
    assert config.store_url == "sqlite:////srv/c/corral.db"
    assert config.spool("a") == Path("/srv/c/nodes/a")
    assert config.spool("b") == Path("/fast/b")


def test_a_node_may_leave_out_everything_but_its_name(tmp_path: Path) -> None:
    text = '[nodes.a]\ncpus = 4\nmemory = "512G"\nlabels = { zone = "b2" }\ngpus = "none"\n[nodes.b]\n'
    nodes = load(written(tmp_path, text)).nodes
    assert (nodes["a"].cpus, nodes["a"].memory, nodes["a"].labels) == (4, "512G", {"zone": "b2"})
    assert (nodes["b"].cpus, nodes["b"].memory, nodes["b"].labels) == (None, None, {})


def test_environment_overrides_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_CONTROLLER__SOCKET", "/tmp/other.sock")
    monkeypatch.setenv("CORRAL_API__MAX_BODY", "2048")
    monkeypatch.setenv("CORRAL_ACCESS__OPERATORS", '["alice"]')
    monkeypatch.setenv("CORRAL_SCHEDULER__ORDER", "fifo")
    monkeypatch.setenv("CORRAL_SCHEDULER__SCORERS__FIT", "7")
    monkeypatch.setenv("CORRAL_NODES__A__RUN_AS_SELF", "true")
    monkeypatch.setenv("CORRAL_NODES__A__MEMORY", "8G")
    monkeypatch.setenv("CORRAL_URL", "unix:///not/a/table")
    config = load(written(tmp_path, '[controller]\nsocket = "/tmp/a.sock"\n[nodes.a]\ncpus = 2\n'))
    assert config.socket == Path("/tmp/other.sock")
    assert config.api.max_body == 2048
    assert config.access.operators == ["alice"]
    assert build_pipeline(config).order.name == "fifo"
    assert config.scheduler.scorers["fit"].weight == 7
    assert (config.nodes["a"].cpus, config.nodes["a"].memory, config.nodes["a"].run_as_self) == (
        2,
        "8G",
        True,
    )


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("CORRAL_API__MAX_BODY", "many", "api.max_body: must be a whole number"),
        ("CORRAL_API__MAXBODY", "1", "there is no such key. Did you mean 'max_body'?"),
        ("CORRAL_ACCES__OPERATORS", "[]", "there is no table 'acces'. Did you mean 'access'?"),
        ("CORRAL_ACCESS__OPERATORS", "alice", "access.operators: must be a list"),
        ("CORRAL_NODES__A__MEMORY", "lots", "cannot read 'lots' as memory"),
        ("CORRAL_SCHEDULER__ORDER", "fif", "there is no order 'fif'. Did you mean 'fifo'?"),
    ],
)
def test_invalid_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    (problem,) = refused(None)
    assert str(problem).startswith(f"{variable}: ")
    assert message in str(problem)


BROKEN: dict[str, tuple[str | bytes, int | None, str]] = {
    "a table misspelt": ("[contoller]\n", 1, "contoller: there is no such table. Did you mean 'controller'?"),
    "a key misspelt": (
        '[api]\n\nlisten = ""\nmax_boddy = 3\n',
        4,
        "api.max_boddy: there is no such key. Did you mean",
    ),
    "a word for a number": ('[controller]\nkeep_ended = "all"\n', 2, "keep_ended: must be a whole number"),
    "true for a number": ("[controller]\nkeep_ended = true\n", 2, "keep_ended: must be a whole number"),
    "a number too large": ("[api]\nmax_connections = 10000000\n", 2, "must be less than or equal to 100000"),
    "a relative path": ('[controller]\nstate_dir = "state"\n', 2, "'state' is not an absolute path"),
    "an address without port": ('[api]\nlisten = "localhost"\n', 2, "cannot read 'localhost' as an address"),
    "a word that is none of two": (
        '[access]\nothers = "all"\n',
        2,
        "access.others: must be 'submit' or 'view'",
    ),
    "a weight that is none": ('[scheduler.scorers]\nfit = "high"\n', 2, "scorers.fit: must be a weight"),
    "a weight that compares with nothing": ("[scheduler.scorers]\nfit = nan\n", 2, "must be a finite number"),
    "a negative weight": ("[scheduler]\nscorers = { fit = -1 }\n", 2, "must be greater than or equal to 0"),
    "an unknown filter": (
        '[scheduler]\nfilters = [\n "available",\n "capacity", "gpu",\n "selctor",\n]\n',
        5,
        "scheduler.filters[3]: there is no filter 'selctor'. Did you mean 'selector'?",
    ),
    "an unknown order": (
        '[scheduler]\norder = "random"\n',
        2,
        "there is no order 'random'. There are: aging, attained-service, "
        "deadline, expected-remaining, fair, fifo",
    ),
    "an option of no plugin": (
        "[scheduler.scorers.fit]\nweight = 3\ngpuu = 0.5\n",
        3,
        "scheduler.scorers.fit.gpuu: there is no such key. Did you mean 'gpu'?",
    ),
    "an option of the wrong type": (
        '[scheduler.scorers]\nfit.weight = 3\nfit.gpu = "x"\n',
        3,
        "must be a number",
    ),
    "an option where there are none": (
        '[scheduler.order]\nname = "fifo"\nfast = true\n',
        3,
        "scheduler.order.fast: there is no such key. It has no options.",
    ),
    "an unknown key of a table that is optional": (
        "[projects.a.budget]\ngpu_hour = 5\n",
        2,
        "projects.a.budget.gpu_hour: there is no such key. Did you mean 'gpu_hours'?",
    ),
    "a service with an unknown priority": (
        '[services.web]\nuser = "ada"\ncommand = ["a"]\npriority = "huge"\n',
        4,
        "services.web.priority: 'huge' is no priority; write 0 to 100, or ",
    ),
    "a service without a command": (
        '[services.web]\nuser = "ada"\ncommand = []\n',
        3,
        "services.web.command: must not be empty",
    ),
    "a filter that must be there": (
        '[scheduler]\nfilters = ["gpu"]\n',
        2,
        "the required filter available, capacity is missing",
    ),
    "nodes of a queue without the filter for them": (
        '[scheduler]\nfilters = ["available", "capacity", "gpu"]\n[queues.a]\nselect = { pool = "a" }\n',
        4,
        "queues.a.select: has no effect without the filter 'selector'",
    ),
    "taints without the filter for them": (
        '[scheduler]\nfilters = ["available", "capacity", "gpu"]\n[nodes.a]\ntaints = ["old:NoSchedule"]\n',
        4,
        "nodes.a.taints: has no effect without the filter 'taints'",
    ),
    "a filter twice": (
        '[scheduler]\nfilters = ["available", "capacity", "gpu", "gpu"]\n',
        2,
        "scheduler.filters[3]: the filter 'gpu' is listed twice",
    ),
    "memory without a unit": ('[nodes.a]\nmemory = "512"\n', 2, "cannot read '512' as memory"),
    "GPUs nobody knows": ('[nodes.a]\ngpus = "8"\n', 2, "cannot read '8' as GPUs; write"),
    "a node's name": ('[nodes."a b"]\n', 1, "'a b' is not a name for a node"),
    "a dotted node's name": ("[nodes.gpu01.lab]\n", 1, "nodes.gpu01.lab: there is no such key"),
    "a project's weight twice": (
        "[fair_share]\nweights = { a = 2 }\n[projects.a]\nweight = 3\n",
        4,
        "projects.a.weight: the weight of this project is set in [fair_share] weights too (",
    ),
    "a project's organisation twice": (
        '[fair_share]\norganisations = { lab = ["a"] }\n[projects.a]\norganisation = "lab"\n',
        4,
        "projects.a.organisation: [fair_share] organisations has this project in 'lab' already (",
    ),
    "a project above a project": (
        '[projects.a]\norganisation = "b"\n[projects.b]\n',
        2,
        "projects.a.organisation: 'b' is a project, and projects have no projects below them",
    ),
    "an organisation below another": (
        '[projects.a]\norganisation = "lab"\n[fair_share]\norganisations = { a = ["b"] }\n',
        2,
        "projects.a.organisation: 'a' is an organisation itself",
    ),
    "a weight for a project and an organisation": (
        "[projects.lab]\nweight = 2\n[fair_share.organisations]\nlab = []\n",
        2,
        "projects.lab.weight: 'lab' is an organisation too, and both would have this weight",
    ),
    "two default projects of a user": (
        '[projects.a]\ndefault_for = ["ada"]\n[projects.b]\ndefault_for = ["ada"]\n',
        4,
        "projects.b.default_for[0]: project 'a' is the default of user 'ada' already",
    ),
    "a default project without its user": (
        '[projects.a]\nmembers = ["bo"]\ndefault_for = ["ada"]\n',
        3,
        "projects.a.default_for[0]: user 'ada' is not a member of project 'a'. Add the user to `members`.",
    ),
    "a weight of nothing": ("[projects.a]\nweight = 0\n", 2, "projects.a.weight: must be greater than 0"),
    "unknown projects": (
        '[scheduler]\nunknown_projects = "ask"\n',
        2,
        "scheduler.unknown_projects: must be 'open', 'default' or 'refuse'",
    ),
    "not TOML": ("[cluster]\nname =\n", 2, "is not TOML"),
    "cut off": ("[cluster]\nname = [1,\n", 3, "is not TOML"),
    "a key twice": ('[cluster]\nname = "a"\nname = "b"\n', 3, "is not TOML: Cannot overwrite a value"),
    "not text": (b"[cluster]\n\xff\n", 2, "is not UTF-8 text"),
    "deep": ("a = " + "[" * 10_000, None, "is nested too deeply"),
    "deep by dots": (".".join("a" * 8_000) + " = 1\n", None, "is nested too deeply"),
    "a number without end": ("a = " + "1" * 5_000, None, "holds a number with more digits than can be read"),
    "a line without end": ("a" * 100_000, 1, "this line is longer than"),
    "huge": ("#\n" * 600_000, None, "is larger than 1 MiB"),
    "a name for the terminal": ('[cluster]\n"\\u001b[31m" = 1\n', 2, "there is no such key"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_invalid_file_is_refused_with_line_and_remedy(tmp_path: Path, name: str) -> None:
    text, line, message = BROKEN[name]
    path = written(tmp_path, text)
    (problem,) = refused(path)
    assert message in str(problem)
    assert problem.line == line
    assert str(problem).startswith(f"{path}:{line}: " if line else f"{path}: ")
    assert str(problem).isprintable()


def test_all_problems_are_reported_in_the_order_of_lines(tmp_path: Path) -> None:
    path = written(
        tmp_path, '[cluster]\nnam = "x"\n[api]\nmax_body = "1M"\n[nodes.a]\ncpus = -1\nlink = "telnet"\n'
    )
    assert [problem.line for problem in refused(path)] == [2, 4, 6, 7]


@pytest.mark.parametrize(
    ("path", "message"), [("nowhere.toml", "there is no such file"), (".", "this is a directory, not a file")]
)
def test_missing_file_is_refused(tmp_path: Path, path: str, message: str) -> None:
    (problem,) = refused(tmp_path / path)
    assert message in problem.message
    assert problem.hint


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    path.chmod(0)
    mine = os.geteuid()
    try:
        os.seteuid(65534 if mine == 0 else mine)  # root may read everything
        (problem,) = refused(path)
    finally:
        os.seteuid(mine)
    assert "Permission denied" in problem.message


PROJECTS = """\
[fair_share]
organisations = { lab = ["audio"] }
weights = { lab = 2, "far/ada" = 3 }
hard_limits = { limited = 9000 }
[quota.projects."*"]
gpus = 2
[quota.projects.quoted]
gpus = 8
"""
TABLES = """\
[projects.vision]
members = ["ada", "bo"]
weight = 3
organisation = "lab"
default_for = ["ada"]
[projects.maps]
organisation = "geo"
[projects.open]
"""


def test_projects_have_weights_organisations_and_default_users(tmp_path: Path) -> None:
    config = load(written(tmp_path, PROJECTS + TABLES))
    pipeline = build_pipeline(config)
    assert pipeline.sharing.organisations == {"lab": ("audio", "vision"), "geo": ("maps",)}
    assert pipeline.sharing.weights == {"lab": 2, "far/ada": 3, "vision": 3}
    rules = pipeline.rules.projects
    assert rules.declared == {"vision", "maps", "open", "audio", "far", "limited", "quoted"}
    assert (rules.members, rules.defaults) == ({"vision": {"ada", "bo"}}, {"ada": "vision"})
    assert load(written(tmp_path, render(config))) == config


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        (PROJECTS, "open"),
        (PROJECTS + TABLES, "refuse"),
        (PROJECTS + TABLES + '[scheduler]\nunknown_projects = "open"\n', "open"),
        (PROJECTS + '[scheduler]\nunknown_projects = "default"\n', "default"),
    ],
)
def test_undeclared_projects_are_refused_if_there_is_a_table_of_a_project(
    tmp_path: Path, text: str, unknown: str
) -> None:
    pipeline = build_pipeline(load(written(tmp_path, text)))
    assert pipeline.rules.projects.unknown.value == unknown


def test_rendered_configuration_loads_as_the_same(tmp_path: Path) -> None:
    config = load(COMPLETE)
    assert load(written(tmp_path, render(config))) == config
    assert load(written(tmp_path, render(load(None)))) == load(None)


AWKWARD = '''\
# "a comment = with everything" [in] {it}
title = "TOML # not a comment"
"quoted key" = 1
'literal.key'.sub = 2
dotted . spaced = [ 1, [ 2, { deep = 3 } ], # why not
  4 ]
text = """
[not.a.table]
also = "not a key" \\""" and on
"""
raw = \'\'\'
x = """
\'\'\'
inline = { a = 1, "b c" = { d = [ "x", "y" ] } }
when = 1979-05-27 07:32:00
[table.of] # comment
tables = true
[[array]]
name = "one"
[array.inner]
key = 1
[[array]]
name = "two"
[[array.nested]]
key = 2
'''


def test_every_key_is_located_at_its_line() -> None:
    lines = locate(AWKWARD)
    assert {key: line for key, line in lines.items() if not isinstance(key[-1], int)} == {
        ("title",): 2,
        ("quoted key",): 3,
        ("literal.key",): 4,
        ("literal.key", "sub"): 4,
        ("dotted",): 5,
        ("dotted", "spaced"): 5,
        ("dotted", "spaced", 1, 1, "deep"): 5,
        ("text",): 7,
        ("raw",): 11,
        ("inline",): 14,
        ("inline", "a"): 14,
        ("inline", "b c"): 14,
        ("inline", "b c", "d"): 14,
        ("when",): 15,
        ("table",): 16,
        ("table", "of"): 16,
        ("table", "of", "tables"): 17,
        ("array",): 18,
        ("array", 0, "name"): 19,
        ("array", 0, "inner"): 20,
        ("array", 0, "inner", "key"): 21,
        ("array", 1, "name"): 23,
        ("array", 1, "nested"): 24,
        ("array", 1, "nested", 0, "key"): 25,
    }
    assert lines["dotted", "spaced", 2] == 6
    assert set(lines) == set(keys_of(tomllib.loads(AWKWARD)))


def keys_of(data: Any, above: Key = ()) -> list[Key]:
    """Every key and every array element of parsed TOML."""
    found: list[Key] = []
    for name, value in data.items() if isinstance(data, dict) else enumerate(data):
        found.append((*above, name))
        if isinstance(value, dict | list):
            found += keys_of(value, (*above, name))
    return found


scalars = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.floats(allow_nan=False),
    st.text(),
    st.datetimes(),
    st.dates(),
)
documents = st.dictionaries(
    st.text(max_size=8),
    st.recursive(
        scalars,
        lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(max_size=8), part, max_size=4),
    ),
    max_size=6,
)


@given(documents, st.booleans())
def test_located_keys_are_those_that_tomllib_reads(document: dict[str, Any], multiline: bool) -> None:
    text = tomli_w.dumps(document, multiline_strings=multiline)
    assert set(locate(text)) == set(keys_of(tomllib.loads(text)))


def test_hosts_by_ssh(tmp_path: Path) -> None:
    config = load(written(tmp_path, '[nodes.a]\nssh = "ada@gpu01:2222"\ncpus = 8\n[nodes.b]\n'))
    assert config.nodes["a"].host == HostSpec("ada@gpu01:2222", cpus=8)
    assert config.nodes["b"].host is None


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ('link = "ssh"', "has no address"),
        ('link = "local"\nssh = "gpu01"', "are for link"),
        ('ssh = "gpu 01"', "cannot read 'gpu 01' as an SSH address"),
        ('ssh = "gpu01"\npython = "/opt/my python"', "python: '/opt/my python' has characters"),
    ],
)
def test_invalid_ssh_hosts_are_refused(tmp_path: Path, node: str, message: str) -> None:
    [problem] = refused(written(tmp_path, f"[nodes.a]\n{node}\n"))
    assert message in problem.message
