"""Replay of a stream: memory stays level and time grows in proportion, however many sessions.

Writes synthetic sessions to a temporary file one line at a time, reads them with `iter_sessions`
and replays them under three policies over a small base with the hashing encoder. Prints, in one
run, peak memory and time after a tenth of the sessions and after all of them, as ratios (goal:
memory near 1, time near 10). Memory that grows is that of the ids seen, to notice a repeated one:
some 140 bytes a session. Excluded: writing the file, building the base, loading the tokenizer.
Unset OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE in the command's environment.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from kbeval.corpus.hashing import HashingEncoder
from kbeval.corpus.identity import content_hash
from kbeval.corpus.tokens import open_tokenizer
from kbeval.evaluation.recorded.account import Account
from kbeval.evaluation.replaying.policies import load_policies
from kbeval.evaluation.replaying.replay import replay
from kbeval.evaluation.sessions import iter_sessions
from kbeval.records import Corpus, Document
from kbeval.retrieval.knowledge import Knowledge

POLICIES = ["documents", "documents horizon-turns=4"]  # and no memory
TOPICS = ["backup", "restore", "quota", "latency", "invoice", "refund", "webhook", "token"]
TASKS = ["limits", "errors", "setup", "alerts", "history"]


def base() -> Knowledge:
    documents = [
        Document(
            path=f"{topic}/{task}.md",
            title=f"{topic} {task}",
            body=f"What to know about {task} of {topic}. " * 20,
            domain=topic,
            content_hash=content_hash(topic, task),
        )
        for topic in TOPICS
        for task in TASKS
    ]
    return Knowledge.build(Corpus("made", tuple(documents)), HashingEncoder())


def write(path: Path, sessions: int, turns: int) -> None:
    rng = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(sessions):
            topics = rng.choices(TOPICS, k=2)
            asked = [
                f"{rng.choice(TASKS)} of {rng.choice(topics)}, case {rng.randrange(10**6)}"
                for _ in range(turns)
            ]
            row = {"session_id": f"s{number}", "turns": [{"query": query} for query in asked]}
            file.write(json.dumps(row) + "\n")


def peak_megabytes() -> float:
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / (1024 * 1024 if sys.platform == "darwin" else 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    knowledge, policies = base(), load_policies(POLICIES)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sessions.jsonl"
        write(file, given.sessions, given.turns)
        tokenizer, account = open_tokenizer(), Account(str(file))
        tokenizer.count("a vocabulary is read when it is first used")
        before, began, spent = peak_megabytes(), time.perf_counter(), time.process_time()
        seen, tokens, marks = 0, 0, []
        sessions = iter_sessions(file, account)
        for one in replay(sessions, knowledge, policies, tokenizer=tokenizer, jobs=given.jobs):
            seen += 1
            tokens += sum(o.token_count for outcomes in one.outcomes.values() for o in outcomes)
            if seen in (given.sessions // 10, given.sessions):
                clocks = time.perf_counter() - began, time.process_time() - spent
                marks.append((peak_megabytes(), *clocks, tokens))
    if seen != given.sessions or account.faults():
        raise SystemExit(
            f"{seen} of {given.sessions} sessions read, {len(account.faults())} faults"
        )
    tenth, whole = marks[0], marks[-1]
    memory, seconds, processor, handed = (b / a for a, b in zip(tenth, whole, strict=True))
    look_ups = seen * given.turns * len(policies)
    print(f"{seen} sessions, {look_ups} look-ups, {len(policies)} policies")
    print(f"peak memory: {before:.0f} MB, {tenth[0]:.0f} after a tenth, {whole[0]:.0f} after all")
    print(f"memory, all / a tenth: {memory:.3f} (goal near 1)")
    print(f"time, all / a tenth: {seconds:.2f} (goal near 10)")
    print(f"processor time of this process, all / a tenth: {processor:.2f} (goal near 10)")
    print(f"tokens handed out, all / a tenth: {handed:.2f} (the same work: near 10)")
    print(f"look-ups a second of processor time of this process: {look_ups / whole[2]:.0f}")


if __name__ == "__main__":
    main()
