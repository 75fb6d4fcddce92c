"""The database itself records which controller wrote each journal entry, which one led, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import create_engine, make_url, text

from tests.oracle.verdict import Broken

_AUDIT = (
    "CREATE TABLE corral_control.audit (seq bigint, writer text, leader text, at float8)",
    "CREATE FUNCTION corral_control.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO corral_control.audit SELECT NEW.seq, current_setting('application_name'), "
    "(SELECT holder FROM corral_control.leader), extract(epoch FROM clock_timestamp()); "
    "RETURN NEW; END $$",
    "CREATE TRIGGER note AFTER INSERT ON journal FOR EACH ROW EXECUTE FUNCTION corral_control.note()",
)
_STALE = (
    "SELECT seq, writer, leader FROM corral_control.audit WHERE substring(writer from 'pid [0-9]+ on [^ ]+') "
    "IS DISTINCT FROM substring(leader from 'pid [0-9]+ on [^ ]+')"
)
_WRONG_TIME = (
    "SELECT seq, journal.at - audit.at FROM journal JOIN corral_control.audit USING (seq) "
    "WHERE abs(journal.at - audit.at) > :most"
)
WRONG_S = 300.0
"""Seconds. The time of a journal entry may differ from the server's clock by less than this."""


@contextmanager
def audited(database: str) -> Iterator[Callable[[], list[Broken]]]:
    """Record the writer of each journal entry from now on. Yields a function that returns the entries of a
    former leader (L), and those with a wrong time (T).
    """
    engine = create_engine(make_url(database).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        for statement in _AUDIT:
            connection.execute(text(statement))

    def found() -> list[Broken]:
        with engine.begin() as connection:
            stale = connection.execute(text(_STALE)).all()
            wrong = connection.execute(text(_WRONG_TIME), {"most": WRONG_S}).all()
        return [
            *(
                Broken("L", f"entry {seq} was written by {writer} while {leader} led")
                for seq, writer, leader in stale
            ),
            *(Broken("T", f"the time of entry {seq} is wrong by {by:.0f} s") for seq, by in wrong),
        ]

    try:
        yield found
    finally:
        engine.dispose()
