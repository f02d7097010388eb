"""P10: claims of 5 documents, 8 threads on 64 sessions, against one lock around a dict of dicts.

Run: python benchmarks/p10_tracker.py
The peer does the same work (atomic claim by the same rule, content hash, domains, bound) and hands
back what was taken, withheld and the domains; it keeps no record for taking a claim back. The
tracker's own code under one lock is measured as well, to see what the locks alone make. One claim
in ten is asked for by a second thread, too, so that the check "one winner per (session, document)"
means something. All are measured in turn in every round; the ratio is the median over rounds.
Excluded: making threads and candidates.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

from kbeval.retrieval.ranking import places
from kbeval.retrieval.tracker import Candidate, Claim, RetrievedDocTracker

GOAL = 1.5
THREADS, SESSIONS, BATCHES, CLAIM, ROUNDS = 8, 64, 100, 5, 9
Job = tuple[str, list[Candidate]]


class Taken(Protocol):
    """What both sides hand back."""

    @property
    def taken(self) -> tuple[Candidate, ...]:
        """The documents won."""


class Memory(Protocol):
    """What is measured."""

    def claim(
        self, session_id: str, exact: Sequence[Candidate], near: Sequence[Candidate], *, limit: int
    ) -> Taken:
        """Take and mark up to `limit` documents."""


class Answer:
    """The peer's answer: as little as serves."""

    __slots__ = ("domains", "taken", "withheld")

    def __init__(
        self,
        taken: tuple[Candidate, ...],
        withheld: tuple[Candidate, ...],
        domains: tuple[str, ...],
    ) -> None:
        self.taken, self.withheld, self.domains = taken, withheld, domains


class OneLock:
    """One lock around everything; two dicts a session, documents and domains."""

    def __init__(self, max_sessions: int = 10_000) -> None:
        self.max_sessions = max_sessions
        self.lock = threading.Lock()
        self.hashes: OrderedDict[str, dict[str, str | None]] = OrderedDict()
        self.domains: dict[str, dict[str, None]] = {}

    def claim(
        self, session_id: str, exact: Sequence[Candidate], near: Sequence[Candidate], *, limit: int
    ) -> Answer:
        """The same rule, all of it under the lock."""
        with self.lock:
            hashes = self.hashes.get(session_id)
            if hashes is None:
                if len(self.hashes) >= self.max_sessions:
                    oldest, _ = self.hashes.popitem(last=False)
                    del self.domains[oldest]
                hashes = self.hashes[session_id] = {}
                self.domains[session_id] = {}
            self.hashes.move_to_end(session_id)
            domains = self.domains[session_id]
            passed: list[Candidate] = []

            def given(candidate: Candidate) -> bool:
                if hashes.get(candidate.path, "") != candidate.content_hash:
                    return False
                passed.append(candidate)
                return True

            taken = places(exact, near, limit=limit, given=given)
            for candidate in taken:
                hashes[candidate.path] = candidate.content_hash
                domains[candidate.domain] = None
            return Answer(tuple(taken), tuple(passed), tuple(domains))


class Serialised(RetrievedDocTracker):
    """The tracker itself with every claim under one common lock: what the locks alone make."""

    def __init__(self) -> None:
        super().__init__()
        self.one = threading.Lock()

    def claim(self, *args: Any, **kwargs: Any) -> Claim:
        """The same claim, one at a time."""
        with self.one:
            return super().claim(*args, **kwargs)


def jobs(draw: random.Random) -> list[list[Job]]:
    """The claims of every thread, sessions mixed, one in ten given to two threads."""
    shared: list[list[Job]] = [[] for _ in range(THREADS)]
    for session in range(SESSIONS):
        for batch in range(BATCHES):
            candidates = [
                Candidate(f"docs/{batch}-{i}.md", f"domain {(batch + i) % 6}", f"hash {batch}-{i}")
                for i in range(CLAIM)
            ]
            for thread in draw.sample(range(THREADS), 2 if draw.random() < 0.1 else 1):
                shared[thread].append((f"session {session}", candidates))
    for own in shared:
        draw.shuffle(own)
    return shared


def run(memory: Memory, shared: list[list[Job]]) -> tuple[float, bool]:
    """Marks per second, and whether every (session, document) was won exactly once."""
    start = threading.Barrier(THREADS + 1)
    won: list[list[tuple[str, tuple[Candidate, ...]]]] = [[] for _ in shared]

    def work(own: list[Job], mine: list[tuple[str, tuple[Candidate, ...]]]) -> None:
        start.wait()
        for session_id, candidates in own:
            mine.append((session_id, memory.claim(session_id, (), candidates, limit=CLAIM).taken))

    threads = [threading.Thread(target=work, args=pair) for pair in zip(shared, won, strict=True)]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    winners = Counter(
        (session_id, candidate.path)
        for mine in won
        for session_id, taken in mine
        for candidate in taken
    )
    once = len(winners) == SESSIONS * BATCHES * CLAIM and set(winners.values()) == {1}
    return len(winners) / took, once


def main() -> None:
    """Print both rates, their ratio and the checks."""
    shared = jobs(random.Random(10))
    sides = (OneLock, Serialised, RetrievedDocTracker)
    rounds = [[run(side(), shared) for side in sides] for _ in range(ROUNDS)]
    rates = [
        statistics.median(rate for rate, _ in results) for results in zip(*rounds, strict=True)
    ]
    checks = [all(once for _, once in results) for results in zip(*rounds, strict=True)]
    lean, same = (statistics.median(row[2][0] / row[i][0] for row in rounds) for i in (0, 1))
    print(f"{THREADS} threads, {SESSIONS} sessions, claims of {CLAIM} documents, M marks/s:")
    for side, rate, once in zip(sides, rates, checks, strict=True):
        print(f"  {side.__name__}: {rate / 1e6:.2f}, one winner per (session, document): {once}")
    print(f"tracker over one lock: {lean:.2f}x (goal {GOAL}x)")
    print(f"tracker over itself under one lock: {same:.2f}x")


if __name__ == "__main__":
    main()
