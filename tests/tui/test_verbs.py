"""Actions on jobs, GPUs and nodes: change, requeue, cordon, resume, marks; and the order of the queue."""

from __future__ import annotations

from dataclasses import replace

from tests.tui.recorded import NOW, Tenants, everything, jobs
from tests.tui.screens import Screen, press, settled, until
from tui.data.cluster_feed import Changes
from wire.api.jobs import QueuePlace
from wire.names import JobState


async def test_job_is_changed_by_a_form_that_sends_only_changed_fields() -> None:
    screen = Screen()
    async with screen.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        screen.model.jobs.follow(12)
        await press(pilot, "E")
        await until(pilot, lambda: "Change 12 rlhf-ppo" in screen.text())
        assert "$ corral job set 12 …" in screen.text()
        await press(pilot, *["backspace"] * 6, *"80")
        assert "$ corral job set 12 --priority 80" in screen.text()
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: screen.ordered)
        assert screen.ordered == [("set", 12), ("changes", {"priority": 80})]
        await until(pilot, lambda: "12 changed" in screen.text())


async def test_marked_jobs_are_changed_together() -> None:
    screen = Screen()
    async with screen.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        screen.model.jobs.marks.update((11, 12))
        await press(pilot, "E")
        await until(pilot, lambda: "Change 2 jobs" in screen.text())
        await press(pilot, "down", *["backspace"] * 20, *"2h", "ctrl+s")
        await until(pilot, lambda: screen.ordered)
        assert screen.ordered == [("set", 11), ("set", 12), ("changes", {"time_limit_s": 7_200.0})]


async def test_running_job_is_requeued_after_a_question() -> None:
    screen = Screen()
    async with screen.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        screen.model.jobs.follow(1)
        await press(pilot, "Q")
        await until(pilot, lambda: "Requeue 1 job?" in screen.text())
        assert "corral job requeue 1" in screen.text()
        await press(pilot, "right", "enter")
        await until(pilot, lambda: screen.ordered)
        assert screen.ordered == [("requeue", 1)]


async def test_waiting_job_is_not_requeued() -> None:
    screen = Screen()
    async with screen.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        screen.model.jobs.follow(12)
        await press(pilot, "Q")
        assert "only running jobs can be requeued" in screen.text()


async def test_cursor_of_a_node_goes_over_gpus_which_are_cordoned_and_resumed() -> None:
    screen = Screen()
    async with screen.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        screen.open_node("node-3")
        await until(pilot, lambda: screen.view.NAME == "node" and "GPU 0" in screen.text())
        await press(pilot, "j", "X")
        await until(pilot, lambda: "Cordon GPU node-3:1?" in screen.text())
        assert "8 continues to its end" in screen.text()
        await press(pilot, *"hot", "enter")
        await until(pilot, lambda: screen.ordered)
        assert screen.ordered == [("cordon", ("node-3", "1", "hot"))]
        await press(pilot, "j", "U")
        await until(pilot, lambda: len(screen.ordered) == 2)
        assert screen.ordered[1] == ("resume", ("node-3", "2"))
        await press(pilot, "k", "enter")
        await until(pilot, lambda: screen.view.NAME == "job")
        assert [job.id for job in screen.view.jobs()] == [8]


async def test_marked_nodes_are_drained_together() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "2", "space", "space", "D")
        await until(pilot, lambda: "Drain node-1, node-2?" in screen.text())
        await press(pilot, *"fans", "enter")
        await until(pilot, lambda: len(screen.ordered) == 2)
        assert screen.ordered == [("drain", ("node-1", "fans")), ("drain", ("node-2", "fans"))]
        await until(pilot, lambda: not screen.model.nodes.marks)


async def test_waiting_jobs_are_in_the_order_of_the_scheduler() -> None:
    waiting = [job.id for job in jobs() if job.state is JobState.QUEUED and job.array is None][:4]
    places = tuple(QueuePlace(job, place, NOW + 60 * place) for place, job in enumerate(reversed(waiting), 1))
    screen = Screen(tenants=Tenants(places=places))
    async with screen.run_test(size=(200, 50)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: screen.model.places)
        shown = [job.id for job in screen.model.jobs if job.id in waiting]
        assert shown == list(reversed(waiting))
        line = next(line for line in screen.text().splitlines() if line.split()[:1] == [str(waiting[-1])])
        assert " 1 " in line
        assert " 1m00s " in line


async def test_cursor_stays_at_its_place_when_the_job_leaves_the_filter() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        screen.show_jobs("state:queued")
        listing = screen.model.jobs
        listing.move_to(2)
        gone, following = listing[2], listing[3]
        ended = replace(gone, state=JobState.CANCELLED, ended_at=NOW)
        screen.recording.put(Changes(everything().connection, jobs=(ended,)))
        await settled(pilot)
        await until(pilot, lambda: gone.id not in [job.id for job in listing])
        assert listing.cursor == following.id


async def test_job_under_the_cursor_is_shown_beside_the_list() -> None:
    screen = Screen()
    async with screen.run_test(size=(180, 40)) as pilot:
        await settled(pilot)
        screen.model.jobs.follow(10)
        screen.view.moved()
        await until(pilot, lambda: "why       no two nodes have" in screen.text())
        await press(pilot, "i")
        await until(pilot, lambda: "why       no two nodes have" not in screen.text())


async def test_peek_is_hidden_on_narrow_screens_until_it_is_wanted() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        assert not screen.view.peek.display
        await press(pilot, "i")
        await until(pilot, lambda: screen.view.peek.display)


async def test_priority_is_raised_and_lowered_by_ten_after_the_effect_was_shown() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        screen.model.jobs.marks.update((11, 12))  # of priorities 50 and 75
        await press(pilot, "K")
        await until(pilot, lambda: "1 starts later, 1 starts sooner" in screen.text())
        assert "Raise the priority of 2 jobs?" in screen.text()
        assert "50 → 60, 75 → 85" in screen.text()
        assert "corral job set 11 --priority 60 && corral job set 12" in screen.text()
        await press(pilot, "right", "enter")
        await until(pilot, lambda: "2 raised in priority" in screen.text())
        assert screen.ordered == [
            ("set", 11),
            ("changes", {"priority": 60}),
            ("set", 12),
            ("changes", {"priority": 85}),
        ]


async def test_priority_stays_within_its_bounds() -> None:
    low = replace(next(job for job in jobs() if job.id == 12), priority=0)
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        screen.recording.put(Changes(everything().connection, jobs=(low,)))
        await settled(pilot)
        screen.model.jobs.follow(12)
        await until(pilot, lambda: screen.view.jobs()[0].priority == 0)
        await press(pilot, "J")
        assert "the priority is the lowest one" in screen.text()
        await press(pilot, "K")
        assert "0 → 10" in screen.text()


async def test_shell_needs_one_running_job_and_a_terminal() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        screen.model.jobs.follow(12)
        await press(pilot, "S")
        assert "choose one running job" in screen.text()
        screen.model.jobs.follow(1)
        await press(pilot, "X", *"nvidia-smi", "enter")
        await until(pilot, lambda: "use corral exec 1 -- nvidia-smi in a shell" in screen.text())


async def test_x_drains_the_node_under_the_cursor() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "2", "X")
        await until(pilot, lambda: "Drain node-1?" in screen.text())
