"""What a replay leaves behind while it runs: a row a turn, and a row a session, for each policy."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pandas as pd

from kbeval.evaluation.ledger.lines import SessionLines
from kbeval.evaluation.recorded.names import QueryNames
from kbeval.evaluation.replaying.outcomes import SessionReplay
from kbeval.studies.replay_rows import session_rows, turn_rows

TURNS, SESSIONS = "turns.csv", "sessions.csv"


class RowFiles:
    """turns.csv and sessions.csv of a folder, written as the sessions pass.

    Whenever it ends, the files hold every session that was added. They are made at once.
    """

    def __init__(self, folder: Path, names: QueryNames) -> None:
        self.paths = (folder / TURNS, folder / SESSIONS)
        self._names = names
        self._files = ExitStack()
        self._tables = [_Table(self._files.enter_context(_opened(path))) for path in self.paths]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files.close()

    def add(self, replayed: SessionReplay, lines: Mapping[str, SessionLines]) -> None:
        """Write one session."""
        turns, sessions = self._tables
        turns.write(turn_rows(replayed, lines, self._names))
        sessions.write(session_rows(replayed, lines))


class _Table:
    """A CSV whose header is that of its first row."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._writer: csv.DictWriter[str] | None = None

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            if self._writer is None:
                self._writer = csv.DictWriter(self._file, list(row), lineterminator="\n")
                self._writer.writeheader()
            self._writer.writerow(row)


def _opened(path: Path) -> IO[str]:
    """A file to write; half of a character pair, which UTF-8 cannot hold, is written escaped."""
    return path.open("w", encoding="utf-8", errors="backslashreplace", newline="")


def save_table(table: pd.DataFrame, folder: str | Path, name: str) -> pd.DataFrame:
    """Write a table as NAME.csv into a folder, and give it back to be shown."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    table.to_csv(target / f"{name}.csv", index=False, errors="backslashreplace")
    return table
