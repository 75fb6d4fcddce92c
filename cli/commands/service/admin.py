"""corral admin: verifies, backs up, restores and compacts the store."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cli.exit_codes import FAILED, USAGE, CommandError
from cli.flags import argument, option, switch
from cli.output.formats import Format, Output, write, write_data, write_facts
from cli.output.stderr import print_error, print_note
from cli.registry import application, examples
from wire.api.service.store import CompactRequest, VerifyLine
from wire.http import addresses
from wire.http.client import Client, Unreachable

if TYPE_CHECKING:
    from controller.store.errors import StoreFailure

app = application()
Config = Annotated[
    str,
    option(
        "--config",
        "FILE",
        "Path of the scheduler.toml that names the store. Default: the file that the controller would read.",
    ),
]
StoreUrl = Annotated[
    str,
    option(
        "--store",
        "URL",
        "URL of the store (e.g. sqlite:////backup/corral.db). Default: the store that scheduler.toml names.",
    ),
]
RunningStoreUrl = Annotated[
    str,
    option(
        "--store",
        "URL",
        "URL of the store (e.g. sqlite:////backup/corral.db). Default: the store of the running controller; "
        "without one, the store that scheduler.toml names.",
    ),
]
COMPACT_S = 3_600.0


@dataclass(frozen=True)
class BackedUp:
    """The result of a backup: the name of the file, the URL of the store that was copied, and the result of
    the file's verification.
    """

    file: str
    source: str
    store: str
    seq: int
    head: str
    jobs: int


@dataclass(frozen=True)
class AcceptedLoss:
    """The last journal entry of the database, and the new epoch of the leadership."""

    seq: int
    epoch: int


@app.callback(
    epilog=examples(
        "corral admin verify", "corral admin backup /backup/corral-today.db", "corral admin compact"
    )
)
def admin() -> None:
    """Verify, back up, restore and compact the store, the database of the controller."""


@app.command(
    epilog=examples(
        "corral admin verify                                     through the controller, or without one",
        "corral admin verify -o json                             with the hash to note on another machine",
        "corral admin verify --store sqlite:////backup/corral.db",
    )
)
def verify(config: Config = "", store: RunningStoreUrl = "", output: Output = Format.TABLE) -> int:
    """Read the whole store, and check that its content was neither changed nor damaged.

    The command checks the hash chain of the journal, and compares the row of each job with the journal. A
    person with write access to the store could replace the whole hash chain. To detect this, keep the printed
    number and hash of the last entry on another machine: the journal must contain this entry later.
    """
    report = _verify_here(store or _url(config)) if store or config or not _answers() else _verify_there()
    if output.is_data:
        write_data(output, report)
    else:
        facts = [
            ("Store", report.store),
            ("Journal", f"entries {report.begins + 1} to {report.seq}"),
            ("Head hash", report.head),
            ("Jobs", f"{report.jobs}, {report.compared} compared with the journal"),
            ("Nodes", str(report.nodes)),
        ]
        write_facts(facts if report.store else [])
        write("" if report.problems else "The store has no errors.\n")
    for problem in report.problems:
        print_error(problem)
    return FAILED if report.problems else 0


@app.command(epilog=examples("corral admin backup /backup/corral-$(date +%F).db"))
def backup(
    file: Annotated[Path, argument("FILE", "File to create; it must not exist yet.")],
    config: Config = "",
    store: RunningStoreUrl = "",
    output: Output = Format.TABLE,
) -> int:
    """Copy the store into one file and verify the copy. The controller may be running.

    Only the owner of the file can read the file, because the file contains the environment variables of jobs.
    For PostgreSQL use pg_dump, and write down the number and hash of the last entry, which 'corral admin
    verify' prints. After a restore, the journal must still contain that entry.
    """
    from controller.store.errors import StoreFailure
    from controller.store.maintenance.backup_and_restore import back_up

    target = file.absolute()
    source = store or (_url(config) if config else _store_of_controller())
    try:
        report = back_up(source, target)
    except StoreFailure as failure:
        raise _mistake(failure) from None
    if not report.good:
        raise CommandError(
            f"{target} is damaged: {report.problems[0]}",
            "Check the store with 'corral admin verify'.",
            FAILED,
        )
    made = BackedUp(str(target), source, report.store, report.head.seq, report.head.hash.hex(), report.jobs)
    if output.is_data:
        write_data(output, made)
    else:
        write_facts([(name.capitalize(), str(value)) for name, value in asdict(made).items()])
    return 0


@app.command(
    epilog=examples(
        "corral admin restore /backup/corral-2026-11-19.db --yes",
        "corral admin restore /backup/old.db --yes --accept-loss",
    )
)
def restore(
    file: Annotated[Path, argument("FILE", "File written by 'corral admin backup'.")],
    config: Config = "",
    store: StoreUrl = "",
    yes: Annotated[
        bool, switch("--yes", "Replace an existing store. Without --yes, the command refuses to do so.")
    ] = False,
    accept_loss: Annotated[
        bool,
        switch(
            "--accept-loss",
            "Restore the backup even if it lacks the newest journal entries. These entries are then lost.",
        ),
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """Replace the store by a backup. The controller must be stopped.

    The old store is renamed, not deleted. Without --accept-loss, a backup is refused if it lacks journal
    entries that the controller had already confirmed to users.
    """
    from controller.store.errors import StoreFailure
    from controller.store.maintenance.backup_and_restore import restore as put

    url = store or _url(config)
    if not url.startswith("sqlite:///"):
        raise CommandError("a PostgreSQL database is restored with pg_restore", "", USAGE)
    try:
        done = put(file, Path(url.removeprefix("sqlite:///")), replace=yes, accept_loss=accept_loss)
    except StoreFailure as failure:
        raise _mistake(failure) from None
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}", "", FAILED) from None
    if output.is_data:
        write_data(output, _Restored(done.store, done.head.seq, done.jobs, done.moved_to, done.lost))
    else:
        write_facts(
            [
                ("Store", done.store),
                ("Last entry", str(done.head.seq)),
                ("Jobs", str(done.jobs)),
                ("Old store", done.moved_to),
                ("Entries lost", str(done.lost) if done.lost else ""),
            ]
        )
    return 0


@dataclass(frozen=True)
class _Restored:
    store: str
    seq: int
    jobs: int
    moved_to: str
    lost: int


@app.command(
    epilog=examples(
        "corral admin compact                       delete now what [retention] no longer keeps",
        "corral admin compact --journal-days 30     delete journal entries older than 30 days",
    )
)
def compact(
    jobs_days: Annotated[
        float | None,
        option("--jobs-days", "DAYS", "Delete jobs that ended more than this number of days ago.", min=0.001),
    ] = None,
    journal_days: Annotated[
        float | None,
        option("--journal-days", "DAYS", "Delete journal entries older than this number of days.", min=0.001),
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """Delete old jobs and old journal entries now. The controller must be running.

    Without options, the limits of [retention] in scheduler.toml apply. The hash of the last deleted entry is
    kept, so the hash chain of the journal remains valid. The daily usage and the newest 1,000 entries are
    always kept.
    """
    done = Client(timeout_s=COMPACT_S).compact(CompactRequest(jobs_days, journal_days))
    if output.is_data:
        write_data(output, done)
    else:
        write_facts(
            [
                ("Jobs deleted", str(done.jobs)),
                ("Entries deleted", str(done.entries)),
                ("Journal begins after", f"entry {done.begins}"),
            ]
        )
    return 0


@app.command(
    "accept-loss",
    epilog=examples(
        "corral admin accept-loss --yes",
        "corral admin accept-loss --yes --epoch 12     if a node says that it has served epoch 12",
    ),
)
def accept_loss(
    config: Config = "",
    store: StoreUrl = "",
    epoch: Annotated[
        int, option("--epoch", "N", "Highest epoch that a node names in the reason why it is away.")
    ] = 0,
    yes: Annotated[bool, switch("--yes", "Accept the loss. Without --yes, nothing changes.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Use a PostgreSQL database that lacks acknowledged journal entries. All controllers must be stopped.

    A controller refuses a database that went back in time, because an old backup was restored or a standby
    server that lagged behind was promoted. After this command, the journal continues after its present last
    entry. Jobs and changes in the missing entries are lost. The next controller finds jobs that still run on
    the nodes.
    """
    from controller.store.errors import StoreFailure
    from controller.store.maintenance.accepted_loss import accept_loss as accept

    if not yes:
        raise CommandError(
            "acknowledged jobs and changes would be lost",
            "Restore the newest database if you can; otherwise repeat the command with --yes.",
            USAGE,
        )
    try:
        seq, raised = accept(store or _url(config), epoch)
    except StoreFailure as failure:
        raise _mistake(failure) from None
    accepted = AcceptedLoss(seq, raised)
    if output.is_data:
        write_data(output, accepted)
    else:
        write_facts([("Last entry", str(seq)), ("Epoch", str(raised))])
    return 0


def _answers() -> bool:
    if os.environ.get("CORRAL_URL"):
        # Return True although this controller may not answer: the user has named it, so the command must fail
        # in this case and not use the local store.
        return True
    try:
        with Client() as client:
            client.health()
    except Unreachable:
        return False
    return True


def _store_of_controller() -> str:
    """Return the URL of the store of the controller that answers, because scheduler.toml of the present
    directory may belong to another controller. If no controller answers, return the URL of the store that
    scheduler.toml names. Raise CommandError if the controller is on another machine.
    """
    if not _answers():
        return _url("")
    with Client() as client:
        named = client.config().store
        if not client.url.startswith("unix:"):
            raise CommandError(
                f"the store is on the machine of the controller {client.url}",
                "Run the command on that machine, or name another store with --store or --config.",
                USAGE,
            )
    return named or _url("")


def _verify_there() -> VerifyLine:
    last = VerifyLine(problems=("the controller ended before the verification was over",))
    for last in Client().verify():
        _print_progress(last)
    return last if last.done else VerifyLine(problems=("the verification was interrupted",))


def _verify_here(url: str) -> VerifyLine:
    from controller.store.errors import StoreFailure
    from controller.store.read_only_store import StoreReader

    try:
        found = StoreReader(url).verify(
            lambda what, count: _print_progress(VerifyLine(doing=what, count=count))
        )
    except StoreFailure as failure:
        raise _mistake(failure) from None
    return found.last_line()


def _print_progress(line: VerifyLine) -> None:
    if not line.done:
        print_note(f"{line.doing}: {line.count:,} read")


def _url(config: str) -> str:
    from controller.config import ConfigRefused, load

    try:
        return load(addresses.find_config(config)).store_url
    except ConfigRefused as refused:
        raise CommandError(str(refused.problems[0]), "'corral config check' lists all problems.") from None


def _mistake(failure: StoreFailure) -> CommandError:
    return CommandError(failure.message, failure.hint, FAILED)
