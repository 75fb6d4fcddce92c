"""corral sim run as users run it: tables, JSON, files, errors, a progress bar on a terminal, Ctrl-C.

CORRAL_RENEW_GOLDEN=1 rewrites tests/golden/cli/sim-run.txt: read the difference before you keep it.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from benchmarks.placement.openb_traces import NODE, POD
from cli.commands.sim import run as sim_run
from cli.main import main
from controller.sim.logs.gpu_job_table import COLUMNS
from controller.sim.metrics import Figures
from controller.sim.run import RunResult, RunTask
from tests.controller.sim.logs.swf_lines import line, write
from tests.limits import PATIENCE_S

ROOT = Path(__file__).parents[4]
GOLDEN = ROOT / "tests" / "golden" / "cli" / "sim-run.txt"
SMALL = str(ROOT / "examples" / "small.swf")
GPU_JOBS = str(ROOT / "examples" / "gpu-jobs.csv")
KEYS = [
    "api_version",
    "policy",
    "order",
    "backfill",
    "estimate",
    "clairvoyant",
    "same_second",
    "cluster",
    "jobs",
    "avebsld",
    "max_bsld",
    "mean_wait_s",
    "p50_wait_s",
    "p95_wait_s",
    "mean_flow_s",
    "p99_flow_s",
    "max_flow_s",
    "utilisation",
    "fragmentation",
    "makespan_s",
    "fairness",
    "preemptions",
    "gpu_hours_lost",
    "moves",
    "cpu_s",
    "skipped_lines",
    "dropped",
]


@dataclass
class Done:
    """Exit code and output of a command."""

    returncode: int
    stdout: str
    stderr: str


Sim = Callable[..., Done]


@pytest.fixture
def sim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sim:
    """Runs corral sim run without any configuration except a named one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in os.environ:
        if name.startswith(("CORRAL_", "XDG_")) and name != "CORRAL_RENEW_GOLDEN":
            monkeypatch.delenv(name)

    def run(*words: str) -> Done:
        code = main(["sim", "run", *words])
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of three jobs. The second waits for the first under every policy; the third can be backfilled."""
    jobs = [(10, 0, 100, 3, 100), (20, 1, 50, 4, 50), (30, 2, 98, 1, 98)]
    return write(tmp_path / "log.swf", jobs, processors=4)


def test_simulation_tables_match_the_golden_file(sim: Sim) -> None:
    shown = []
    for words in (
        [SMALL],
        [SMALL, "--clairvoyant", "--order", "sjf", "--backfill", "none"],
        [SMALL, "--compare", "fcfs,sjf,easy,easy-sjbf,conservative"],
        [SMALL, "--nodes", "4", "--cpus", "8", "-o", "csv"],
        [SMALL, "--compare", "fcfs", "-o", "name"],
    ):
        done = sim(*words)
        assert done.returncode == 0, done.stderr
        said = " ".join(["sim", "run", "small.swf", *words[1:]])
        stdout = re.sub(r"\d+\.\d+(?=s$)", "0.0", done.stdout, flags=re.MULTILINE)
        stdout = re.sub(r",[\d.]+(?=,\d+$)", ",0.0", stdout, flags=re.MULTILINE)
        shown.append(f"$ corral {said}\n{done.stderr}{stdout}")
    text = "\n".join(shown)
    if os.environ.get("CORRAL_RENEW_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


# --- for programs ---


def test_simulation_json_of_one_run(sim: Sim, log: Path) -> None:
    done = sim(str(log), "-o", "json")
    body = json.loads(done.stdout)
    assert list(body) == KEYS
    assert (body["policy"], body["jobs"], body["skipped_lines"], body["dropped"]) == ("easy", 3, 0, {})
    assert body["mean_wait_s"] == (0 + 99 + 0) / 3
    assert body["mean_flow_s"] == (100 + 149 + 98) / 3
    assert body["makespan_s"] == 150
    assert body["utilisation"] == pytest.approx((300 + 200 + 98) / 600)
    assert body["cpu_s"] > 0


def test_the_scheduler_does_not_know_the_durations_that_are_hidden(sim: Sim, log: Path) -> None:
    """Job 3 is backfilled only if the scheduler knows that job 1 and job 3 end before job 2 can start."""
    known = json.loads(sim(str(log), "--compare", "easy", "-o", "json").stdout)
    hidden = json.loads(sim(str(log), "--compare", "easy", "--unknown-durations", "-o", "json").stdout)
    assert known[0]["mean_wait_s"] == (0 + 99 + 0) / 3
    assert hidden[0]["jobs"] == 3
    assert hidden[0]["mean_wait_s"] > known[0]["mean_wait_s"]
    both = sim(str(log), "--unknown-durations", "--clairvoyant")
    assert both.returncode == 2
    assert "--unknown-durations cannot be combined with --clairvoyant" in both.stderr


def test_the_start_overhead_is_a_time_or_a_column(sim: Sim, tmp_path: Path) -> None:
    table = tmp_path / "jobs.csv"
    table.write_text("submit,duration,gpus,Load\n0,100,1,5\n0,100,1,\n")
    cluster = (str(table), "--nodes", "1", "--gpus", "2", "-o", "json")

    def flow(*words: str) -> float:
        done = sim(*cluster, *words)
        assert done.returncode == 0, done.stderr
        return float(json.loads(done.stdout)["mean_flow_s"])

    assert flow() == 100
    assert flow("--start-overhead", "load") == 102.5
    assert flow("--start-overhead", "30") == 130
    assert flow("--start-overhead", "1m30s") == 190


def test_a_start_overhead_that_cannot_be_read_is_refused(sim: Sim, log: Path) -> None:
    done = sim(GPU_JOBS, "--nodes", "8", "--gpus", "8", "--start-overhead", "laod")
    assert (done.returncode, "there is no column 'laod'" in done.stderr) == (2, True), done.stderr
    done = sim(str(log), "--start-overhead", "load")
    assert (done.returncode, "a log in SWF has no column 'load'" in done.stderr) == (2, True), done.stderr
    done = sim(str(log), "--start-overhead", "5 parsecs")
    assert (done.returncode, "--start-overhead" in done.stderr) == (2, True), done.stderr


def test_simulation_json_of_several_runs_is_an_ordered_list(sim: Sim, log: Path) -> None:
    done = sim(str(log), "--compare", "easy,fcfs", "-o", "json")
    bodies = json.loads(done.stdout)
    assert [(body["policy"], body["order"], body["backfill"]) for body in bodies] == [
        ("easy", "fifo", "easy"),
        ("fcfs", "fifo", "none"),
    ]
    assert [list(body) for body in bodies] == [KEYS, KEYS]
    assert bodies[0]["mean_wait_s"] < bodies[1]["mean_wait_s"]


def test_csv_has_the_same_figures(sim: Sim, log: Path) -> None:
    done = sim(str(log), "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert list(row) == KEYS[1:-1]
    assert float(row["mean_wait_s"]) == 33


def test_job_file_has_the_job_numbers_of_the_log(sim: Sim, log: Path, tmp_path: Path) -> None:
    starts = tmp_path / "starts.csv"
    assert sim(str(log), "--jobs-csv", str(starts)).returncode == 0
    assert starts.read_text() == "job,submit,start,end\n10,0,0,100\n20,1,100,150\n30,2,2,100\n"
    assert sim(str(log), "--compare", "fcfs,easy", "--jobs-csv", str(starts)).returncode == 0
    assert (tmp_path / "starts.easy.csv").read_text() == starts.read_text()
    assert "30,2,150,248\n" in (tmp_path / "starts.fcfs.csv").read_text()


def test_order_and_backfill_by_flag(sim: Sim, log: Path) -> None:
    done = sim(str(log), "--order", "sjf", "--backfill", "none", "-o", "json")
    body = json.loads(done.stdout)
    assert (body["policy"], body["order"], body["backfill"]) == ("sjf", "shortest", "none")


@pytest.mark.parametrize(
    "words", [["--backfill", "easy", "--estimate", "predicted"], ["--compare", "easy+predicted"]]
)
def test_plans_by_predictions(sim: Sim, log: Path, words: list[str]) -> None:
    done = sim(str(log), *words, "-o", "json")
    [body] = [json.loads(done.stdout)] if "--estimate" in words else json.loads(done.stdout)
    assert (body["policy"], body["backfill"], body["estimate"]) == ("easy+predicted", "easy", "predicted")
    done = sim(str(log), "--estimate", "clairvoyant")
    assert "--estimate: 'clairvoyant' is none of limit, predicted" in done.stderr


def test_gpu_jobs_from_a_table(sim: Sim) -> None:
    done = sim(GPU_JOBS, "--nodes", "4", "--gpus", "8", "-o", "json")
    body = json.loads(done.stdout)
    assert (body["jobs"], body["cluster"], body["dropped"]) == (40, "4 nodes with 256 CPUs and 32 GPUs", {})
    assert 0.5 < body["utilisation"] < 1


@pytest.mark.parametrize(
    ("words", "counted"),
    [
        ((), True),
        (("-o", "yaml"), True),
        (("-o", "json", "--compare", "easy,fcfs"), True),
        (("--compare", "easy,fcfs"), False),
        (("-o", "wide"), False),
        (("-o", "csv"), False),
        (("-o", "name"), False),
    ],
)
def test_gpu_hours_are_counted_only_if_the_output_shows_them(
    sim: Sim, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], counted: bool
) -> None:
    tasks: list[RunTask] = []
    whole_outcomes = sim_run._outcomes

    def outcomes(given: list[RunTask]) -> list[RunResult]:
        tasks.extend(given)
        return whole_outcomes(given)

    monkeypatch.setattr(sim_run, "_outcomes", outcomes)
    done = sim(GPU_JOBS, "--nodes", "4", "--gpus", "8", *words)
    assert {task.count_gpu_hours for task in tasks} == {counted}
    assert ("idle GPUs" in done.stdout or '"waste"' in done.stdout or "waste:" in done.stdout) == counted


def test_paper_table_has_every_column_and_figure() -> None:
    paper = (ROOT / "docs" / "simulator.md").read_text()
    figures = [field.name for field in fields(Figures)]
    told = [*COLUMNS, *NODE, *POD, *figures, "cpu_s", "dropped", "skipped_lines"]
    assert [name for name in told if f"`{name}`" not in paper] == []


# --- profiles ---

PROFILES = str(ROOT / "examples" / "profiles.toml")
TWO_QUEUES = """submit,duration,estimate,gpus,queue
0,1000,1000,8,online
0,1000,1000,8,online
0,1000,1000,8,online
0,1000,1000,8,default
0,1000,1000,8,default
0,1000,1000,8,default
0,1000,1000,8,default
"""


def test_profiles_side_by_side_in_virtual_time(sim: Sim, tmp_path: Path) -> None:
    log = tmp_path / "jobs.csv"
    log.write_text(TWO_QUEUES)
    starts = tmp_path / "starts.csv"
    body = json.loads(sim(str(log), "--config", PROFILES, "--jobs-csv", str(starts), "-o", "json").stdout)
    assert (body["policy"], body["order"], body["jobs"]) == ("profiles", "by profile", 7)
    waited = {int(row["job"]): float(row["start"]) for row in csv.DictReader(starts.open())}
    # Six hosts: three for each, one of them shared. Three and four jobs: one of the seven has to wait.
    assert sorted(waited.values()) == [0, 0, 0, 0, 0, 0, 1000]


def test_single_profile_applies_to_all_jobs_and_nodes(sim: Sim, tmp_path: Path) -> None:
    log = tmp_path / "jobs.csv"
    log.write_text(TWO_QUEUES)
    body = json.loads(sim(str(log), "--config", PROFILES, "--profile", "training", "-o", "json").stdout)
    assert (body["policy"], body["order"], body["backfill"], body["jobs"]) == ("training", "fair", "easy", 7)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--profile", "trainign"], "there is no profile 'trainign'"),
        (["--profile", "training", "--order", "fifo"], "--profile cannot be combined with --order"),
    ],
)
def test_profile_that_cannot_be_simulated_is_refused(
    sim: Sim, log: Path, words: list[str], said: str
) -> None:
    done = sim(str(log), "--config", PROFILES, *words)
    assert done.returncode == 2
    assert said in done.stderr


# --- clusters ---


def test_the_cluster_of_a_configuration(sim: Sim, log: Path, tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    node = '[nodes.{}]\ncpus = 2\nmemory = "8G"\ngpus = "simulated:2xH100,1xT4"\n'
    config.write_text('[scheduler]\nbackfill = "none"\n' + "".join(map(node.format, ("a", "b"))))
    body = json.loads(sim(str(log), "--config", str(config), "-o", "json").stdout)
    assert (body["policy"], body["cluster"]) == ("fcfs", "2 nodes with 4 CPUs and 6 GPUs")
    # The policy of the file without its nodes, beside a named policy.
    done = sim(str(log), "--pool", "4", "--compare", f"easy,{config}", "-o", "json")
    assert [each["policy"] for each in json.loads(done.stdout)] == ["easy", "mine"]


@pytest.mark.parametrize(
    ("node", "wrong"),
    [
        ('cpus = 2\nmemory = "8G"', "node a: gpus = 'auto' is detected by the agent on the host"),
        ('gpus = "none"\nmemory = "8G"', "node a: its cpus is not in the configuration"),
        ('gpus = "none"\ncpus = 2', "node a: its memory is not in the configuration"),
    ],
)
def test_configured_node_without_its_size_is_refused(
    sim: Sim, log: Path, tmp_path: Path, node: str, wrong: str
) -> None:
    config = tmp_path / "mine.toml"
    config.write_text(f"[nodes.a]\n{node}\n")
    done = sim(str(log), "--config", str(config))
    assert done.returncode == 2
    assert wrong in done.stderr


def test_an_swf_log_brings_its_machine_and_a_table_does_not(sim: Sim, log: Path) -> None:
    assert "on 4 processors, the size in the header of the log" in sim(str(log)).stderr
    done = sim(GPU_JOBS)
    assert done.returncode == 2
    assert "there are no nodes to simulate" in done.stderr
    assert "--nodes" in done.stderr


# --- messages ---


def test_one_processor_is_written_in_the_singular(sim: Sim, tmp_path: Path) -> None:
    log = write(tmp_path / "log.swf", [(1, 0, 10, 1, 10)], processors=1)
    assert "on 1 processor, the size in the header of the log" in sim(str(log)).stderr


def test_misspelt_column_gets_a_suggestion(sim: Sim, tmp_path: Path) -> None:
    log = tmp_path / "jobs.csv"
    log.write_text("submit,duration,gpu\n0,10,8\n")
    done = sim(str(log), "--nodes", "1", "--gpus", "8")
    assert f"{log}: skipped unknown columns: gpu (is gpus meant?)" in done.stderr


def test_skipped_lines_and_dropped_jobs_are_reported(sim: Sim, tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    lines = [line(1), line(2, run=0), line(3, allocated=-1), line(4, allocated=5), line(5, run=0), "1 2 3"]
    log.write_text("; MaxProcs: 4\n" + "\n".join(lines) + "\n")
    done = sim(str(log), "--skip-bad", "-o", "json")
    assert f"{log}: skipped 1 broken line, the first: line 7: has 3 fields, not 18" in done.stderr
    assert "1 job on 1 node with 4 CPUs; dropped: 2 run time 0, 1 unknown size, 1 too large" in done.stderr
    body = json.loads(done.stdout)
    assert body["skipped_lines"] == 1
    assert body["dropped"] == {"run time 0": 2, "unknown size": 1, "too large for the machine": 1}
    kept = sim(str(log), "--skip-bad", "--zero-runs", "keep", "-o", "json")
    assert json.loads(kept.stdout)["jobs"] == 3


def test_jobs_that_can_never_run_are_counted_with_the_reason(sim: Sim) -> None:
    done = sim(GPU_JOBS, "--nodes", "1", "--gpus", "8", "--model", "T4", "-o", "json")
    refused = json.loads(done.stdout)["dropped"]["refused"]
    assert 0 < refused < 40
    assert f"{refused} jobs refused" in done.stderr
    assert "can never be placed" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.swf"], "nowhere.swf: No such file or directory"),
        ([SMALL, "--compare", "fcfs,eazy"], "there is no policy 'eazy'\n  Did you mean 'easy'?"),
        ([SMALL, "--compare", "fcfs,fcfs/../nothing.toml"], "nothing.toml: there is no such file"),
        ([SMALL, "--compare", ","], "--compare names no policy"),
        ([SMALL, "--compare", "fcfs,easy,fcfs"], "--compare: 'fcfs' is listed 2 times"),
        ([SMALL, "--compare", "easy", "--order", "fifo"], "--compare cannot be combined"),
        (
            [SMALL, "--order", "best"],
            "--order: 'best' is none of aging, attained-service, deadline, expected-remaining, "
            "fair, fifo, multifactor, priority, shortest, sjf",
        ),
        ([SMALL, "--backfill", "all"], "--backfill: 'all' is none of aggressive, conservative, easy,"),
        ([SMALL, "--same-second", "never"], "--same-second: 'never' is none of house, sc15"),
        ([SMALL, "--zero-runs", "eat"], "--zero-runs: 'eat' is none of drop, keep, second"),
        ([SMALL, "--swf-filter", "x"], "--swf-filter: 'x' is none of house, sc15"),
        ([SMALL, "--pool", "8", "--nodes", "2"], "--pool and --nodes cannot be combined"),
        ([SMALL, "--pool", "8", "--cpus", "2"], "--pool and --cpus cannot be combined"),
        ([SMALL, "--gpus", "8"], "--gpus describes each node, but the number of nodes is missing"),
        ([SMALL, "--nodes", "2", "--memory", "much"], "'--memory': 'much' is not an amount of memory"),
        ([SMALL, "--pool", "0"], "'0' is not a whole number from 1"),
        ([SMALL, "--config", "none.toml"], "none.toml: there is no such file"),
        ([SMALL, "--jobs-csv", "no/such/place.csv"], "place.csv: No such file or directory"),
    ],
)
def test_simulation_errors_are_reported_in_one_sentence(sim: Sim, words: list[str], said: str) -> None:
    done = sim(*words)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_broken_line_is_named(sim: Sim, tmp_path: Path) -> None:
    log = tmp_path / "log.swf.gz"
    log.write_bytes(gzip.compress(f"{line(1)}\n\x1b[31m{line(2)}\n".encode()))
    done = sim(str(log), "--pool", "4")
    assert done.returncode == 2
    assert f"{log}: line 2: field 1 is not a number" in done.stderr
    assert "\x1b" not in done.stderr


# --- the terminal ---


def simulate(*words: str, **more: object) -> subprocess.Popen[bytes]:
    """Starts corral sim run without waiting for its end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CORRAL_")}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "cli", "sim", "run", *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        **more,  # type: ignore[call-overload]
    )


def test_progress_bar_is_shown_only_on_a_terminal(sim: Sim) -> None:
    ours, theirs = pty.openpty()
    running = simulate(SMALL, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:
        seen = b""
        try:
            while chunk := terminal.read(4_096):
                seen += chunk
        except OSError:
            pass  # how a terminal ends on Linux
    assert running.wait(30) == 0
    assert "% " in seen.decode()
    assert "of 59 jobs" in seen.decode()
    assert seen.endswith(b"\r\x1b[K")
    assert "\r" not in sim(SMALL).stderr


def test_ctrl_c_ends_all_simulation_processes_silently(tmp_path: Path) -> None:
    jobs = [(number, number // 2, 500, 1 + number % 60, 900) for number in range(1, 60_000)]
    log = write(tmp_path / "long.swf", jobs, processors=64)
    running = simulate(
        str(log),
        "--compare",
        "easy,easy-sjbf",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert running.stderr is not None
    said = b""
    while b"jobs on 1 node" not in said:
        chunk = running.stderr.readline()
        assert chunk, said
        said += chunk
    os.killpg(running.pid, signal.SIGINT)
    out, rest = running.communicate(timeout=PATIENCE_S)  # ends when no process holds the pipe any more
    assert (running.returncode, out, rest) == (130, b"", b"")
