"""P10: claims of 5 documents, 8 threads on 64 sessions, against one lock around a dict of dicts.

Run: python benchmarks/p10_tracker.py
The peer has the same function: atomic claim by the rule of `places`, content hashes, withheld,
changed and redelivered documents, domains as first seen, a bound whose oldest idle session leaves,
and take-back that restores exactly, by a stack of marks for each document. `agree` checks that
by random operations on both before anything is measured. The tracker's own code under one lock is
measured as well, to see what the locks alone make. One claim in ten is asked for by a second
thread, too, so that the check "one winner per (session, document)" means something. All are
measured in turn in every round; the ratio is the median over rounds.
A second peer does without take-back, options and changed content, which is less than the tracker.
Excluded: making threads and candidates.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain, takewhile
from typing import Any, NamedTuple

from kbeval.retrieval.ranking import places
from kbeval.retrieval.tracker import Candidate, Claim, RetrievedDocTracker

GOAL = 1.5
THREADS, SESSIONS, BATCHES, CLAIM, ROUNDS = 8, 64, 100, 5, 15
Job = tuple[str, list[Candidate]]


class Answer(NamedTuple):
    """The peer's claim; the same names as the tracker's."""

    taken: tuple[Candidate, ...]
    marked: tuple[Candidate, ...]
    withheld: tuple[Candidate, ...]
    content_changed: tuple[Candidate, ...]
    redelivered: tuple[Candidate, ...]
    domains: tuple[str, ...]
    stamp: int


FIELDS = Answer._fields[:-1]
Marks = dict[str, list[tuple[int, Candidate]]]  # by path: (stamp of the claim, what it gave)


class OneLock:
    """One lock around everything; a session is a dict of documents, each a stack of marks."""

    def __init__(self, max_sessions: int = 10_000) -> None:
        self.max_sessions = max_sessions
        self.lock = threading.Lock()
        self.stamp = 0
        self.sessions: OrderedDict[str, Marks] = OrderedDict()
        self.domains: dict[str, dict[str, None]] = {}

    def claim(
        self,
        session_id: str,
        exact: Sequence[Candidate],
        near: Sequence[Candidate],
        *,
        limit: int,
        mark: str = "all",
        redeliver: bool = False,
    ) -> Answer:
        """The same rule, all of it under the lock."""
        with self.lock:
            self.stamp += 1
            marks = self.sessions.get(session_id)
            if marks is None:
                marks = self.opened(session_id)
            else:
                self.sessions.move_to_end(session_id)
            taken, passed = self.choose(marks, exact, near, limit, redeliver)
            handed_count = len(taken) if mark == "all" else min(1, len(taken))
            again, changed = self.mark(session_id, marks, taken, handed_count)
            handed = taken[:handed_count]
            return Answer(
                tuple(taken),
                tuple([c for c in handed if c not in again] if again else handed),
                tuple(passed),
                tuple(changed),
                tuple(again),
                tuple(self.domains[session_id]),
                self.stamp,
            )

    def choose(
        self,
        marks: Marks,
        exact: Sequence[Candidate],
        near: Sequence[Candidate],
        limit: int,
        redeliver: bool,
    ) -> tuple[list[Candidate], Iterable[Candidate]]:
        """What gets a place, and what is passed over because the session has it."""
        if redeliver or not marks:
            return places(exact, near, limit=limit), ()
        passed: dict[str, Candidate] = {}

        def given(candidate: Candidate) -> bool:
            stack = marks.get(candidate.path)
            if stack is None or not same_version(stack[-1][1], candidate):
                return False
            passed[candidate.path] = candidate
            return True

        taken = places(exact, near, limit=limit, given=given)
        if len(exact) >= limit:
            last = taken[-1] if len(taken) == limit else None
            passed.clear()
            for candidate in takewhile(lambda c: c != last, chain(exact, near)):
                given(candidate)
        return taken, passed.values()

    def mark(
        self, session_id: str, marks: Marks, taken: Sequence[Candidate], handed_count: int
    ) -> tuple[list[Candidate], list[Candidate]]:
        """Put marks on the stacks; what was given before in the same and in another version."""
        again: list[Candidate] = []
        changed: list[Candidate] = []
        moved, domains = False, self.domains[session_id]
        for position, candidate in enumerate(taken):
            stack = marks.get(candidate.path)
            if stack is not None:
                same = same_version(stack[-1][1], candidate)
                (again if same else changed).append(candidate)
            if position >= handed_count:
                continue
            if stack is None:
                marks[candidate.path] = [(self.stamp, candidate)]
            else:
                moved |= stack[-1][1].domain != candidate.domain
                stack.append((self.stamp, candidate))
            domains[candidate.domain] = None
        if moved:
            self.derive(session_id)
        return again, changed

    def take_back(self, session_id: str, claim: Answer) -> None:
        """Remove the marks of this claim from their stacks, wherever they stand by now."""
        with self.lock:
            marks = self.sessions.get(session_id)
            if marks is None:
                return
            self.sessions.move_to_end(session_id)
            for candidate in claim.taken:
                stack = marks.get(candidate.path, [])
                stack[:] = [entry for entry in stack if entry[0] != claim.stamp]
                if not stack:
                    marks.pop(candidate.path, None)
            self.derive(session_id)

    def opened(self, session_id: str) -> Marks:
        """An empty session; the one idle longest leaves if there are too many."""
        if len(self.sessions) >= self.max_sessions:
            oldest, _ = self.sessions.popitem(last=False)
            del self.domains[oldest]
        self.domains[session_id] = {}
        self.sessions[session_id] = {}
        return self.sessions[session_id]

    def derive(self, session_id: str) -> None:
        """Read the domains off the marks again."""
        stacks = self.sessions[session_id].values()
        self.domains[session_id] = dict.fromkeys(stack[-1][1].domain for stack in stacks)


def same_version(mark: Candidate, candidate: Candidate) -> bool:
    """No hash stands for every version."""
    before, now = mark.content_hash, candidate.content_hash
    return before == now or before is None or now is None


class LeanLock:
    """One lock with less function: marks, hashes, domains, bound; no take-back, no options."""

    def __init__(self, max_sessions: int = 10_000) -> None:
        self.max_sessions = max_sessions
        self.lock = threading.Lock()
        self.hashes: OrderedDict[str, dict[str, str | None]] = OrderedDict()
        self.domains: dict[str, dict[str, None]] = {}

    def claim(
        self, session_id: str, exact: Sequence[Candidate], near: Sequence[Candidate], *, limit: int
    ) -> LeanAnswer:
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
            return LeanAnswer(tuple(taken), tuple(passed), tuple(domains))


class LeanAnswer:
    """As little as serves."""

    __slots__ = ("domains", "taken", "withheld")

    def __init__(
        self,
        taken: tuple[Candidate, ...],
        withheld: tuple[Candidate, ...],
        domains: tuple[str, ...],
    ) -> None:
        self.taken, self.withheld, self.domains = taken, withheld, domains


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


def agree(draw: random.Random, steps: int = 20_000) -> bool:
    """Random claims and take-backs on few sessions, more than are kept: every answer is equal."""
    ours, peer = RetrievedDocTracker(max_sessions=4), OneLock(max_sessions=4)
    done: list[tuple[str, Claim, Answer]] = []
    for _ in range(steps):
        if done and draw.random() < 0.3:
            session_id, claim, answer = draw.choice(done[-30:])
            ours.take_back(session_id, claim)
            peer.take_back(session_id, answer)
            continue
        session_id = f"session {min(draw.randrange(6), draw.randrange(6))}"
        every = [
            Candidate(f"{name}.md", f"domain {draw.randrange(3)}", draw.choice(("1", "1", "2")))
            for name in draw.sample("abcdefgh", 8)
        ]
        exact, near = every[: draw.randrange(5)], draw.sample(every, draw.randrange(8))
        options: dict[str, Any] = {
            "limit": draw.randint(1, 5),
            "mark": draw.choice(("all", "all", "primary")),
            "redeliver": draw.random() < 0.1,
        }
        claim = ours.claim(session_id, exact, near, **options)
        answer = peer.claim(session_id, exact, near, **options)
        if any(getattr(claim, name) != getattr(answer, name) for name in FIELDS):
            return False
        done.append((session_id, claim, answer))
    return True


def run(
    memory: OneLock | LeanLock | RetrievedDocTracker, shared: list[list[Job]]
) -> tuple[float, bool]:
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
    print(f"peer and tracker give the same answers: {agree(random.Random(3))}")
    shared = jobs(random.Random(10))
    sides = (OneLock, LeanLock, Serialised, RetrievedDocTracker)
    rounds = [[run(side(), shared) for side in sides] for _ in range(ROUNDS)]
    rates = [
        statistics.median(rate for rate, _ in results) for results in zip(*rounds, strict=True)
    ]
    checks = [all(once for _, once in results) for results in zip(*rounds, strict=True)]
    full, lean, same = (
        statistics.median(row[-1][0] / row[i][0] for row in rounds) for i in (0, 1, 2)
    )
    print(f"{THREADS} threads, {SESSIONS} sessions, claims of {CLAIM} documents, M marks/s:")
    for side, rate, once in zip(sides, rates, checks, strict=True):
        print(f"  {side.__name__}: {rate / 1e6:.2f}, one winner per (session, document): {once}")
    print(f"tracker over one lock with the same function: {full:.2f}x (goal {GOAL}x)")
    print(f"tracker over one lock without take-back and options: {lean:.2f}x (goal {GOAL}x)")
    print(f"tracker over itself under one lock: {same:.2f}x")


if __name__ == "__main__":
    main()
