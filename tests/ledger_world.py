"""Replays made by hand or drawn at random: what the ledger's tests read."""

from random import Random

from hypothesis import strategies as st

from kbeval.config import Settings, load_settings
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.replaying.outcomes import Handed, Outcome, SessionReplay
from kbeval.evaluation.replaying.policies import Policy

FRAME = 60  # tokens of an answer without its documents


def handed(path, tokens=100, *, domain="ops", content=None, passage=None):
    return Handed(path, domain, content or f"text of {path}", tokens, passage)


def outcome(*documents, level="REFERENCE", withheld=(), domains=(), frame=FRAME, **fields):
    """An answer; documents are `Handed` or paths of documents of 100 tokens."""
    given = tuple(handed(d) if isinstance(d, str) else d for d in documents)
    everything = bool(withheld) and not given
    reason = "ALL_RETRIEVED" if everything else "PARTIAL" if withheld else None
    known = {"level": None if everything else level if given else "NOT_FOUND", "reason": reason}
    return Outcome(
        handed=given,
        withheld=tuple(withheld),
        domains=tuple(domains),
        token_count=frame + sum(d.token_count for d in given),
        **(known | fields),
    )


SKIPPED = Outcome(None, None, (), (), (), token_count=0, skipped=True)


def turn(query="q", relevant=None, *, need=None, **fields):
    metadata = {} if need is None else {"need": need}
    return Turn(query, relevant=relevant, metadata=metadata, **fields)


def replayed(turns, none, *, session_id="s", relevant=None, metadata=None, **policies):
    session = Session(session_id, tuple(turns), relevant, metadata or {})
    given = {"none": none} | {name.replace("_", " "): found for name, found in policies.items()}
    return SessionReplay(session, {name: tuple(found) for name, found in given.items()})


def policy(name="documents", **session):
    keys = {key.replace("_", "-"): value for key, value in session.items()}
    return Policy(name, load_settings({"session": keys}))


NONE = policy("none", memory="none")
DOCUMENTS = Policy("documents", Settings())

PATHS = ("a", "b", "c", "d", "e")
LEVELS = ("PRECISE", "HIGHLY_RELEVANT", "REFERENCE")


class World:
    """Draws replays: nothing but the tokens of an answer has to fit together."""

    def __init__(self, seed):
        self.random = Random(seed)

    def some(self, most):
        return tuple(self.random.sample(PATHS, self.random.randint(0, most)))

    def document(self, path):
        """Now and then changed, or a passage."""
        return Handed(
            path,
            domain=self.random.choice(("ops", "api")),
            content=f"{path}{self.random.randint(1, 2)}",
            token_count=self.random.randint(1, 500),
            passage=self.random.choice((None, None, "p1", "p2")),
        )

    def outcome(self, *, skip=0.0):
        if self.random.random() < skip:
            return SKIPPED
        given = tuple(map(self.document, self.some(3)))
        return Outcome(
            level=self.random.choice((None, "NOT_FOUND", *LEVELS)),
            reason=self.random.choice((None, "PARTIAL", "ALL_RETRIEVED")),
            handed=given,
            withheld=self.some(4),
            domains=tuple(self.random.sample(("ops", "api"), self.random.randint(0, 2))),
            token_count=self.random.randint(1, 500) + sum(d.token_count for d in given),
        )

    def turn(self):
        groups = tuple(filter(None, (self.some(2) for _ in range(self.random.randint(0, 2)))))
        return turn(
            self.random.choice(("How?", "how?", "why")),
            self.random.choice((None, self.some(2))),
            need=self.random.choice((None, "n1", "n2")),
            answerable=self.random.choice((None, None, True, False)),
            changed=self.some(1),
            needs=self.random.choice(((), groups)),
        )

    def replay(self, session_id="s"):
        asked = [self.turn() for _ in range(self.random.randint(1, 7))]
        return replayed(
            asked,
            [self.outcome() for _ in asked],
            documents=[self.outcome() for _ in asked],
            hints=[self.outcome(skip=0.2) for _ in asked],
            session_id=session_id,
            relevant=self.random.choice((None, None, self.some(3))),
        )


worlds = st.integers(0, 2**32).map(World)
