"""corral sim run --story: what an operator does while the jobs of a log run."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from wire import amounts

ROOT = Path(__file__).parents[4]
HOUR = 3_600.0
NODES = "".join(
    f'[nodes.{name}]\ngpus = "simulated:8xH100"\ncpus = 64\nmemory = "1T"\nlabels = {{ rack = "{rack}" }}\n'
    for name, rack in (("n1", "r1"), ("n2", "r2"))
)
Run = Callable[..., "Simulated"]


class Simulated:
    def __init__(self, starts: Path, told: str) -> None:
        rows = list(csv.reader(starts.read_text().splitlines()))[1:]
        self.times = {int(job): (float(start), float(end)) for job, _, start, end in rows}
        """By job, its last start and its end."""
        self.body: dict[str, Any] = json.loads(told)

    @property
    def outcomes(self) -> list[str]:
        return ["; ".join([*filter(None, [each["done"]]), *each["refused"]]) for each in self.body["story"]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def running(jobs: str, story: str, config: str = "", *flags: str) -> Simulated:
        (tmp_path / "jobs.csv").write_text(jobs)
        (tmp_path / "a.story").write_text(story)
        (tmp_path / "scheduler.toml").write_text(config + NODES)
        starts = tmp_path / "starts.csv"
        words = ["sim", "run", str(tmp_path / "jobs.csv"), "--config", str(tmp_path / "scheduler.toml")]
        words += ["--story", str(tmp_path / "a.story"), "-o", "json", "--jobs-csv", str(starts), *flags]
        assert main(words) == 0, capsys.readouterr().err
        return Simulated(starts, capsys.readouterr().out)

    return running


def test_rack_is_drained_and_resumed_by_label(run: Run) -> None:
    found = run(
        "submit,duration,gpus\n0,3600,8\n60,3600,8\n120,600,8\n",
        "day 1 00:00  nodes drain --select rack=r2 --why power\n+30m nodes resume --select rack=r2\n",
    )
    # The first line has the time of the first submit, and runs after it and before the scheduling cycle.
    assert found.outcomes == ["n2", "n2"]
    assert found.times == {1: (0, 3_600), 2: (1_800, 5_400), 3: (3_600, 4_200)}


def test_times_of_lines_and_of_options_are_those_of_the_simulated_day(run: Run) -> None:
    noon = 19_000 * 86_400 + 43_200.0
    found = run(
        f"submit,duration,gpus\n{noon},60,8\n{noon + 60},3600,16\n",
        "\n# comment\nday 1 12:00:30 nodes drain n1\n  13:00 nodes drain n2\n    +90m nodes resume n1 n2\n"
        "corral nodes drain n1\n".replace("corral", "day 2 12:00 corral")
        + "   reserve create fans --node n2 --start 18:00 --for 2h\n",
    )
    assert [each["at_s"] - noon for each in found.body["story"]] == [30, HOUR, 2.5 * HOUR, 86_400, 86_400]
    assert [each["when"] for each in found.body["story"]][:2] == ["day 1 12:00:30", "day 1 13:00"]
    assert found.times[2][0] == noon + 2.5 * HOUR
    with pytest.raises(ValueError, match="not a time"):
        amounts.moment("25:00")


def test_day_begins_at_midnight_in_the_time_zone_of_the_scheduler(run: Run) -> None:
    config = '[scheduler]\ntime_zone = "Europe/Zurich"\n'
    (outcome,) = run(
        "submit,duration,gpus\n1700000000,60,8\n",
        "day 2 08:00 reserve create x --node n1 --start 09:00 --for 1h",
        config,
    ).body["story"]
    assert outcome["at_s"] == 1_700_031_600.0  # 2023-11-15 08:00 in Zurich, 07:00 UTC


def test_crashed_node_loses_its_jobs_and_takes_new_ones_after_it_connects(run: Run) -> None:
    jobs = "submit,duration,gpus,nodes,on_node_lost,checkpoint_every\n0,3600,16,2,requeue-after-lease,600\n"
    found = run(jobs, "day 1 00:25 crash n2\n+2h connect n2\n")
    # 20 of 60 minutes were saved at the last checkpoint.
    assert found.outcomes == ["n2, 1 job there", "n2"]
    assert found.times == {1: (8_700, 8_700 + 2_400)}
    assert found.body["preemptions"] == 1


def test_job_of_a_disconnected_node_ends_and_is_reported_later(run: Run) -> None:
    jobs = "submit,duration,gpus\n0,3600,8\n0,60,8\n7200,60,16\n"
    found = run(jobs, "day 1 00:10 disconnect n1 n2\n+2h connect --select rack=r1\n+1h connect n1 n2\n")
    assert found.outcomes == ["n1, n2, 1 job there", "n1, 1 job there", "n2; node n1 is connected"]
    # Job 1 ended at 3,600 s. The controller records the end when the node reports it.
    assert found.times == {1: (0, 7_800), 2: (0, 60), 3: (11_400, 11_460)}


def test_jobs_go_on_over_a_restart_of_the_controller(run: Run) -> None:
    jobs = (
        "submit,duration,estimate,gpus,array,after_ok\n0,3600,7200,8,,\n0,3600,7200,8,0-2%1,\n60,60,60,8,,1\n"
    )
    without = run(jobs, "day 9 00:00 restart\n")
    found = run(jobs, "day 1 00:30 restart\n+1h restart\n")
    assert found.times == without.times
    assert found.outcomes == ["restarted", "restarted"]
    assert found.body["waste"]["idle"] != []


def test_jobs_are_cancelled_and_moved_forward_by_name_and_user(run: Run) -> None:
    found = run(
        "job,submit,duration,gpus,user,name\n10,0,3600,16,ada,a\n20,1,60,16,bob,sweep-1\n"
        "30,2,60,16,bob,sweep-2\n40,3,60,16,cy,b\n50,4,60,16,dee,c\n",
        "day 1 00:10 job set name:sweep-? --priority low\n"
        "  cancel 40\n  job set 50 --priority high\n  cancel user:cy\n",
    )
    assert found.outcomes == ["2 jobs", "1 job", "1 job", "0 jobs; user:cy selects no job that waits or runs"]
    assert found.times == {10: (0, 3_600), 50: (3_600, 3_660), 20: (3_660, 3_720), 30: (3_720, 3_780)}


def test_added_node_counts_for_the_utilisation_from_its_time_on(run: Run) -> None:
    jobs = "submit,duration,gpus,nodes\n0,7200,16,2\n0,3600,8,1\n"
    found = run(jobs, "day 1 01:00 nodes add n3 --gpus simulated:8xH100 --label rack=r3\n")
    assert found.times == {1: (0, 7_200), 2: (3_600, 7_200)}
    assert found.body["utilisation"] == 1.0


def test_removed_node_is_refused_while_it_has_jobs(run: Run) -> None:
    jobs = "submit,duration,gpus\n0,3600,8\n0,60,8\n7200,3600,16\n7200,3600,8\n"
    found = run(jobs, "day 1 00:30 nodes remove n1\n+0s nodes remove n2\n")
    assert found.outcomes[0].startswith("node n1 still has 1 job")
    assert found.outcomes[1] == "n2"
    assert found.times.keys() == {1, 2, 4}
    assert found.body["utilisation"] == pytest.approx((3_600 + 60 + 3_600) / (1_800 * 2 + 9_000))


def test_repeated_reservation_ends_neither_early_nor_never(run: Run) -> None:
    story = "day 1 00:00 reserve create night --node n1 --start 02:00 --for 2h --every 1d --project p\n"
    found = run("submit,duration,estimate,gpus,project\n0,60,60,8,p\n7200,3600,3600,16,q\n", story)
    assert found.outcomes == ["reserved n1"]
    assert found.times[2] == (14_400, 18_000)


def test_shares_and_quotas_apply_from_their_time_on(run: Run) -> None:
    jobs = "submit,duration,estimate,gpus,user\n" + "0,600,600,8,ada\n" * 6
    found = run(
        jobs, "day 1 00:05 quota set user ada gpus=8\n  shares set ada 2\n+25m quota unset user ada\n"
    )
    assert found.outcomes == ["done", "done", "done"]
    assert sorted(start for start, _ in found.times.values()) == [0, 0, 600, 1_200, 1_800, 1_800]


def test_node_that_exists_is_not_added_again(run: Run) -> None:
    found = run(
        "submit,duration,gpus\n0,60,8\n",
        "day 1 00:05 nodes add n2 n3 --gpus simulated:4xA100\n+1m nodes remove n2\n"
        "+1m nodes add n2 --gpus simulated:4xA100\n",
    )
    assert found.outcomes[0] == "added n3 with 4 GPUs; node n2 exists already"
    assert found.outcomes[2] == "added n2 with 4 GPUs"


def test_another_scheduler_toml_changes_order_labels_and_nodes(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    file.write_text('[scheduler]\norder = "shortest"\n' + NODES.replace("[nodes.n2]", "[nodes.n3]"))
    jobs = "submit,duration,estimate,gpus\n0,3600,3600,8\n0,1800,1800,8\n1,1200,1200,8\n2,600,600,8\n"
    jobs += "3,60,60,16\n"
    found = run(jobs, f"day 1 00:10 config apply {file}\n+30m nodes drain --select rack=r2\n")
    assert found.outcomes[0].startswith("applied; node n2 still has 1 job")
    assert found.outcomes[1] == "n2, n3"
    assert found.times[4][0] == 600, "the shortest job starts on the new node"
    assert 5 not in found.times, "one node is left"


def test_policies_are_compared_under_one_story(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("submit,duration,gpus\n0,60,8\n", "day 1 00:00 nodes drain n1\n")
    story = "day 1 00:00 nodes drain n1\n+10m cancel name:train\n"
    (tmp_path / "a.story").write_text(story)
    (tmp_path / "jobs.csv").write_text(
        "submit,duration,estimate,gpus,name\n0,1800,1800,4,x\n1,60,60,8,x\n2,300,300,4,train\n"
    )
    words = ["sim", "run", str(tmp_path / "jobs.csv"), "--config", str(tmp_path / "scheduler.toml")]
    words += ["--story", str(tmp_path / "a.story"), "--compare", "fcfs,easy"]
    report = tmp_path / "report.html"
    assert main([*words, "--report", str(report)]) == 0
    told = capsys.readouterr().out
    assert "story with fcfs" in told
    assert "story with easy" in told
    assert "cancel name:train" in told
    page = report.read_text()
    assert "<h2>Story</h2>" in page
    assert page.count("cancel name:train") == 2, "the policies differ"
    assert page.count("nodes drain n1") == 1


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("nodes drain n1", "'nodes' is not a time", "day 3 08:00"),
        ("day x 08:00 restart", "'x' is not the number of a day", "day 1"),
        ("day 1 8 restart", "'8' is not a time of day", "day 3 08:00"),
        ("00:05", "no command behind the time", "day 3"),
        ("00:05 drain n1", "No such command 'drain'", "nodes drain"),
        ("00:05 nodes drian n1", "No such command 'drian'", "drain"),
        ("00:05 nodes drain n9", "there is no node 'n9'", "n1, n2"),
        ("00:05 nodes drain", "no node is named", "--select"),
        ("00:05 nodes drain 'n1", "No closing quotation", ""),
        ("00:05 nodes drain n1 --dry-run", "--dry-run changes nothing", "Leave it out"),
        ("00:05 nodes resume n1:3", "n1:3 is a GPU", "Name the node"),
        ("00:05 nodes add n3", "no GPUs that an agent could detect", "simulated:8xH100"),
        ("00:05 submit -- true", "'submit' is not a command of stories. The jobs", "nodes drain"),
        ("00:05 shares set vision", "there is nothing to change", "--soft"),
        ("00:05 quota set user ada gpu=8", "'gpu=8' is not a limit", "gpus=8"),
        ("00:05 reserve create x --node n1 --for 2", "'2' has no unit", ""),
        ("00:05 reserve create x --node n8 --for 2h", "there is no node 'n8'", ""),
        ("00:05 cancel user:bob", "no job of the log has the user 'bob'", "ada"),
        ("00:05 cancel 7", "the log has no job 7", "of the log"),
        ("00:05 cancel --mine", "has no jobs", "user:NAME"),
        ("00:05 config apply nothing.toml", "nothing.toml: there is no such file", "absolute path"),
        ("00:05 service restart chatt", "there is no service 'chatt'. Did you mean 'chat'?", "chat"),
        ("00:05 reserve cancel fans", "there is no reservation 'fans'", "none"),
        ("00:05 restart\nday 1 00:01 restart", "the time is before that of the line above", "order"),
    ],
)
def test_mistakes_name_file_and_line(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, message: str, hint: str
) -> None:
    chat = "[services.chat]\nuser = 'svc'\ncommand = ['serve']\nreplicas = 0\n" * ("service" in line)
    run("submit,duration,gpus,user\n0,60,8,ada\n", "day 1 00:00 restart\n", chat)
    story = tmp_path / "a.story"
    story.write_text(f"# A story\nday 1 00:00 restart\n{line}\n")
    words = ["sim", "run", str(tmp_path / "jobs.csv"), "--config", str(tmp_path / "scheduler.toml")]
    assert main([*words, "--story", str(story)]) == 2
    told = capsys.readouterr().err
    wrong = 3 + line.count("\n")
    assert f"{story}:{wrong}: " in told
    assert message in told
    assert hint in told


def test_missing_story_is_named_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    examples = ROOT / "examples"
    words = ["sim", "run", str(examples / "gpu-jobs.csv"), "--config", str(examples / "lab.toml")]
    assert main([*words, "--story", "nothing.story"]) == 2
    told = capsys.readouterr().err
    assert "nothing.story: there is no such file\n  Check the path given with --story." in told


def test_example_story_runs_without_a_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    examples = ROOT / "examples"
    words = ["sim", "run", str(examples / "gpu-jobs.csv"), "--config", str(examples / "lab.toml")]
    assert main([*words, "--story", str(examples / "lab.story"), "-o", "json"]) == 0
    outcomes = json.loads(capsys.readouterr().out)["story"]
    assert len(outcomes) == 10
    assert [each["words"] for each in outcomes if each["refused"] or not each["done"]] == []
