"""A small base full of ties, shared keys and doubled contents, and sessions that ask about it."""

from dataclasses import replace

from hypothesis import strategies as st
from stand_ins import at_similarity, document, knowledge

from kbeval.corpus.tokens import Tokenizer
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.replaying.policies import parse_policy

PATHS = [f"d{i}.md" for i in range(7)]
SIMILARITIES = [1.0, 0.8, 0.8, 0.6, 0.6, 0.6, 0.3]
QUERIES = {
    "q one": [1.0, 0.0],
    "q two": at_similarity(0.8),
    "q three": [0.0, 1.0],
    "redis": [1.0, 0.0],
    "about redis and kafka": at_similarity(0.6),
    "kafka": [0.0, 1.0],
    "zookeeper": [-1.0, 0.0],
}
ALIASES = {0: ("zookeeper",), 1: ("redis",), 2: ("redis",), 3: ("kafka",), 4: ("redis", "kafka")}
SAME_CONTENT = {5: "same", 6: "same"}
WITHOUT_HASH = 4


def words(texts):
    return [len(text.split()) for text in texts]


def count_words():
    """A tokenizer that counts words."""
    return Tokenizer("words", words)


def documents():
    made = [
        document(path, domain=f"domain {i % 3}", body=f"Body {i}. " * (i + 1))
        for i, path in enumerate(PATHS)
    ]
    made = [replace(doc, aliases=ALIASES.get(i, ())) for i, doc in enumerate(made)]
    for i, name in SAME_CONTENT.items():
        made[i] = replace(made[i], content_hash=name)
    made[WITHOUT_HASH] = replace(made[WITHOUT_HASH], content_hash="")
    return made


def vectors():
    of_documents = dict(zip(PATHS, map(at_similarity, SIMILARITIES), strict=True))
    return of_documents | QUERIES


def base(encoder=None):
    return knowledge(documents(), vectors(), encoder=encoder)


POLICIES = [
    "none",
    "documents",
    "path",
    "content",
    "primary",
    "documents horizon-turns=1",
    "documents horizon-turns=2",
    "content horizon-turns=3",
    "documents horizon-tokens=40",
    "documents limit=1",
    "documents limit=2 reference=0.2",
    "content limit=5 reference=0",
    "documents supplement-content=passage",
    "path mark=primary precise-requires=unique-and-nearest",
]


def policies(texts=POLICIES):
    return [parse_policy(text) for text in texts]


turns = st.builds(
    lambda query, changed: Turn(query, changed=tuple(changed)),
    st.sampled_from([*QUERIES, " "]),
    st.one_of(st.just([]), st.lists(st.sampled_from([*PATHS, "unknown.md"]), max_size=2)),
)
sessions = st.lists(
    st.builds(lambda asked: tuple(asked), st.lists(turns, max_size=9)), min_size=1, max_size=4
).map(lambda all_turns: [Session(f"s{i}", asked) for i, asked in enumerate(all_turns)])
