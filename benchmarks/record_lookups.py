"""No look-up is lost: tool calls of several processes and threads, recorded into one database.

Run: python benchmarks/record_lookups.py [DATABASE] [--look-ups N] [--processes P] [--threads T]
DATABASE is a SQLite file or a URL, upgraded first where it is new; by default a SQLite file in a
temporary folder. Every process opens the service itself and answers tool calls through it; then
the rows are counted, and every (session, query) is looked for. Exits with 1 if one is missing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from kbeval.service import open_service
from kbeval.store.database import open_database
from kbeval.store.invocations import read_invocations
from kbeval.store.migrations import upgrade

DOCUMENTS = [(f"# Topic {i}\n\nWhat to know about topic {i}.", f"{i}.md") for i in range(20)]


def work(database: str, home: str, name: str, threads: int, look_ups: int) -> dict[str, int]:
    """Answer `look_ups` calls on each thread; what was answered and what was not recorded."""
    service = open_service(database, folder=home, encoder="hashing")
    answered: Counter[str] = Counter()

    def look(thread: int) -> None:
        for i in range(look_ups):
            call = {"query": f"topic {i % 20} asked {i}"}
            reply = json.loads(service.handle_tool_call(call, f"{name}-{thread}"))
            answered["error" if "error" in reply else "answered"] += 1

    running = [threading.Thread(target=look, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return {**answered, "lost": service.recorder.lost_count}


def record(
    database: str, home: str, *, look_ups: int, processes: int, threads: int
) -> dict[str, object]:
    """Record and count; `each` is the number of look-ups a thread."""
    each = -(-look_ups // (processes * threads))
    engine = open_database(database)
    upgrade(engine)
    service = open_service(database, folder=home, encoder="hashing")
    service.upload_many(DOCUMENTS)
    service.close()
    before = len(read_invocations(engine))
    began = time.perf_counter()
    command = [sys.executable, __file__, database, "--worker", home]
    running = [
        subprocess.Popen(
            [*command, f"p{number}", str(threads), str(each)], stdout=subprocess.PIPE, text=True
        )
        for number in range(processes)
    ]
    said = [json.loads(process.communicate()[0].splitlines()[-1]) for process in running]
    seconds = time.perf_counter() - began
    rows = [(row.session_id, row.query) for row in read_invocations(engine)][before:]
    wanted = Counter(
        (f"p{p}-{t}", f"topic {i % 20} asked {i}")
        for p in range(processes)
        for t in range(threads)
        for i in range(each)
    )
    engine.dispose()
    return {
        "asked": wanted.total(),
        "answered": sum(one.get("answered", 0) for one in said),
        "recorded": len(rows),
        "missing": (wanted - Counter(rows)).total(),
        "doubled": (Counter(rows) - wanted).total(),
        "counted as lost": sum(one["lost"] for one in said),
        "look-ups a second": round(len(rows) / seconds),
    }


def main() -> int:
    """Parse, run, print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", nargs="?", default="")
    parser.add_argument("--look-ups", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--worker", nargs=4, metavar=("HOME", "NAME", "THREADS", "EACH"))
    given = parser.parse_args()
    if given.worker:
        home, name, threads, each = given.worker
        print(json.dumps(work(given.database, home, name, int(threads), int(each))))
        return 0
    with tempfile.TemporaryDirectory() as home:
        found = record(
            given.database or str(Path(home) / "kbeval.db"),
            home,
            look_ups=given.look_ups,
            processes=given.processes,
            threads=given.threads,
        )
    print(json.dumps(found))
    return int(bool(found["missing"] or found["doubled"]))


if __name__ == "__main__":
    sys.exit(main())
