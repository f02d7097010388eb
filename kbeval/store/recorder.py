"""Record the look-ups of a running tool; whatever the database does, no look-up fails (DB-01)."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING

from kbeval.errors import DatabaseError
from kbeval.records import Invocation
from kbeval.store.database import WAIT_MS, file_of, name_of, reason_of, writing
from kbeval.store.invocations import invocation_row

if TYPE_CHECKING:
    from sqlalchemy import Engine

log = logging.getLogger(__name__)

MAX_REASONS = 20  # told apart; the rest is counted together


class Recorder:
    """Writes each look-up at once, and counts those that could not be written.

    Safe among threads, processes and forked children; writers in one process queue here instead
    of contending in the database. A look-up waits at most `wait` seconds.
    """

    def __init__(self, engine: Engine, *, wait: float = WAIT_MS / 1000) -> None:
        self.engine = engine
        self.wait = wait  # seconds
        self.saved_count = 0
        self.lost_count = 0
        self.reasons: dict[str, int] = {}  # why look-ups were lost -> how many
        self._start()

    def save(self, invocation: Invocation) -> bool:
        """Write one look-up; False if it was lost. Never raises."""
        if self._pid != os.getpid():
            self._start()
        deadline = time.monotonic() + self.wait
        try:
            row = invocation_row(invocation)
            if not self._queue.acquire(timeout=self.wait):
                raise DatabaseError(f"{name_of(self.engine)}: other look-ups are still waiting")
            try:
                self._write(row, deadline)
            finally:
                self._queue.release()
        except Exception as error:  # observing must not break what it observes
            self._lose(reason_of(error))
            return False
        with self._counts:
            self.saved_count += 1
        return True

    def summary(self) -> str:
        """One line: how many look-ups were recorded, how many are missing, and why.

        To be shown with every result that rests on the records.
        """
        with self._counts:
            text = f"{self.saved_count} look-ups recorded"
            if not self.lost_count:
                return text
            why = "; ".join(f"{count} x {reason}" for reason, count in self.reasons.items())
        return f"{text}, {self.lost_count} not recorded ({why})"

    def _start(self) -> None:
        """Fresh locks: those of a parent may have been held at the moment of the fork."""
        self._pid = os.getpid()
        self._queue = threading.Lock()
        self._counts = threading.Lock()
        self._identity: tuple[int, int] | None = None

    def _write(self, row: dict[str, object], deadline: float) -> None:
        from kbeval.store.schema import tool_invocation

        self._check_file()
        wait_ms = max(1, round((deadline - time.monotonic()) * 1000))
        with writing(self.engine, wait_ms=wait_ms) as connection:
            connection.execute(tool_invocation.insert().values(**row))

    def _check_file(self) -> None:
        """Notice a SQLite file that was removed or replaced while its connections stay open."""
        file = file_of(self.engine)
        if file is None:
            return
        try:
            status = file.stat()
        except OSError as error:
            self.engine.dispose()
            raise DatabaseError(f"{file}: {error.strerror}") from error
        identity = (status.st_dev, status.st_ino)
        if self._identity not in (None, identity):
            self.engine.dispose()
        self._identity = identity

    def _lose(self, reason: str) -> None:
        with self._counts:
            self.lost_count += 1
            is_new = reason not in self.reasons
            if is_new and len(self.reasons) >= MAX_REASONS:
                reason, is_new = "other reasons", False
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if is_new:
            log.warning("a look-up was answered but not recorded: %s (logged once)", reason)
