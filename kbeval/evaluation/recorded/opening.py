"""One door to sessions: written ones, a database, an exported table, spans of a trace."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from kbeval.errors import DatasetError
from kbeval.evaluation.queries import LabelledSet, Session
from kbeval.evaluation.reading.rows import TABLES, parse_object
from kbeval.evaluation.recorded.account import Account
from kbeval.evaluation.recorded.database import read_database
from kbeval.evaluation.recorded.known import with_known_documents
from kbeval.evaluation.recorded.labels import with_labels
from kbeval.evaluation.recorded.loaded import FORMS, Form, LoadedSessions, is_cut
from kbeval.evaluation.recorded.names import QueryNames, hidden_fault, hidden_text
from kbeval.evaluation.recorded.rows import (
    NEEDED,
    ROW_NAMES,
    look_ups,
    read_rows_file,
    starts_as_json,
)
from kbeval.evaluation.recorded.spans import looks_like_span, read_spans
from kbeval.evaluation.recorded.turns import memory_of, sessions_of
from kbeval.evaluation.sessions import SESSIONS, sessions_in

EXPORTED = ("tool_invocation.jsonl", "tool_invocation.csv")  # as `kbeval db export` writes them
SQLITE = b"SQLite format 3\0"


def open_sessions(
    source: str | Path,
    *,
    form: Form | None = None,
    hash_queries: bool | str = False,
    documents: Collection[str] | None = None,
    labels: LabelledSet | None = None,
) -> LoadedSessions:
    """Sessions from a folder or file, or from a database by its SQLAlchemy URL.

    The content tells the form, unless it is named: `sessions` (`sessions.jsonl`), `database`
    (a URL or a SQLite file with `tool_invocation`), `rows` (that table as CSV, TSV or JSON
    lines), `spans` (OpenInference retriever spans). `documents` are the paths of the corpus:
    others that the record names are counted and kept. `labels` gives unlabelled look-ups the
    labels of the queries with the same text. `hash_queries` sets the `names` under which queries
    are written (a text is the salt, else it is random and lost) and keeps queries out of the
    faults; the sessions themselves hold the text, which is needed to embed it.

    Raises `DatasetError` for a source without a session, `DatabaseError` for a database that
    cannot be read.
    """
    names = QueryNames()
    if hash_queries is not False:
        names = QueryNames.hashing(hash_queries if isinstance(hash_queries, str) else None)
    try:
        return _loaded(source, form or form_of(source), documents, labels, names)
    except DatasetError as error:
        raise DatasetError(hidden_text(str(error)) if names.hashed else str(error)) from None
    except OSError as error:
        raise DatasetError(f"{source}: cannot be read ({error.strerror})") from None


def form_of(source: str | Path) -> Form:
    """The form in which a source holds sessions, by its content. Raises `DatasetError`."""
    if "://" in str(source):
        return "database"
    path = Path(source)
    if path.is_dir():
        return form_of(_file(path))
    if not path.is_file():
        raise DatasetError(f"{path}: no such file")
    with path.open("rb") as file:
        start = file.read(len(SQLITE))
    if start == SQLITE:
        return "database"
    if path.suffix.lower() in TABLES:
        return "rows"
    return _form_of_lines(path)


def _form_of_lines(path: Path) -> Form:
    """Sessions, rows or spans, by the first line that is a JSON object."""
    if not starts_as_json(path):
        if path.suffix.lower() in (".jsonl", ".ndjson", ".json") or path.stat().st_size == 0:
            return "sessions"  # whose reader names every line
        raise DatasetError(
            f"{path}: the content does not tell its form; name one of {', '.join(FORMS)}"
        )
    with path.open("rb") as file:
        first = file.readline().decode("utf-8-sig", "replace").strip()
        if first in ("{", "["):
            return "spans"
        for line in (first, *(raw.decode("utf-8", "replace") for raw in file)):
            try:
                value = parse_object(line)
            except ValueError:
                continue
            if looks_like_span(value):
                return "spans"
            is_row = "turns" not in value and all(set(ROW_NAMES[n]) & set(value) for n in NEEDED)
            return "rows" if is_row else "sessions"
    return "sessions"


def _loaded(
    source: str | Path,
    form: Form,
    documents: Collection[str] | None,
    labels: LabelledSet | None,
    names: QueryNames,
) -> LoadedSessions:
    sessions, account = _read(source, form)
    if labels is not None:
        sessions = with_labels(sessions, labels, account)
    unknown: tuple[str, ...] = ()
    if documents is not None:
        sessions, unknown = with_known_documents(sessions, documents, account)
    faults = account.faults()
    if not sessions:
        counted = ", ".join(f"{count} {reason}" for reason, count in account.left_out.items())
        first = f"; {faults[0]}" if faults else ""
        raise DatasetError(f"0 sessions in {account.source}: {counted or 'it is empty'}{first}")
    account.counts["cut_sessions"] = sum(map(is_cut, sessions))
    return LoadedSessions(
        sessions=sessions,
        faults=tuple(map(hidden_fault, faults)) if names.hashed else faults,
        left_out=dict(+account.left_out),
        source=account.source,
        form=form,
        counts=dict(+account.counts),
        recorded_memory=memory_of(sessions),
        unknown_documents=unknown,
        names=names,
    )


def _read(source: str | Path, form: Form) -> tuple[tuple[Session, ...], Account]:
    """The sessions of a form, and the account of what else was met."""
    if form == "database":
        name, rows = read_database(source)
        account = Account(name, unit="row")
        return sessions_of(look_ups(rows, account), account), account
    path = _file(Path(source))
    account = Account(str(path))
    if form == "sessions":
        return sessions_in(path, account), account
    if form not in FORMS:
        raise DatasetError(f"{path}: form {form!r} is none of {', '.join(FORMS)}")
    read = read_rows_file if form == "rows" else read_spans
    return sessions_of(read(path, account), account), account


def _file(path: Path) -> Path:
    """The file of sessions in a folder, or the path itself. Raises `DatasetError`."""
    if not path.is_dir():
        return path
    names = (SESSIONS, *EXPORTED)
    found = next((path / name for name in names if (path / name).is_file()), None)
    if found is None:
        raise DatasetError(f"{path}: the folder holds none of {', '.join(names)}")
    return found
