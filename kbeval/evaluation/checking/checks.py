"""Is a labelled set fit to be measured on? What is wrong with it, and what it can support."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kbeval.config import Settings
from kbeval.evaluation.checking.agreement import Agreement
from kbeval.evaluation.checking.budget import Claim, claims
from kbeval.evaluation.checking.duplicates import Relatives, near_pairs, relatives
from kbeval.evaluation.checking.findings import Finding, finding_of, label_findings
from kbeval.evaluation.checking.pool import Pool, judged_rates, pool_of, unjudged_pairs
from kbeval.evaluation.checking.second import Judging, judging
from kbeval.evaluation.judge import judge
from kbeval.evaluation.measures import levels
from kbeval.evaluation.queries import LabelledSet, Query
from kbeval.evaluation.statistics import Rate
from kbeval.records import Corpus
from kbeval.retrieval.knowledge import Knowledge

DEPTH = 5  # of the pool: Judged@5


@dataclass(frozen=True, slots=True, eq=False)
class SetCheck:
    """A checked set: its findings, and the numbers they rest on.

    `judged` holds Judged@5 by ranking, over answerable and unanswerable queries apart; it is
    empty where the labels are declared complete.
    """

    name: str
    folder: str
    labels: Literal["complete", "pooled"]
    documents: int
    findings: tuple[Finding, ...]
    counts: Mapping[str, Mapping[str, Any]]  # split -> what -> how many
    judged: Mapping[str, Mapping[str, Rate]]
    unjudged: tuple[tuple[str, str], ...]  # pairs of the pool without a judgement
    claims: tuple[Claim, ...]
    relatives: Relatives
    near_documents: Mapping[str, int]  # encoder -> pairs
    judging: Judging | None

    @property
    def fit(self) -> bool:
        """Whether nothing is wrong; warnings do not count."""
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def agreement(self) -> Agreement | None:
        """Of the second judgement with the labels as they stand, if the set carries one."""
        return self.judging.agreement if self.judging else None

    def to_json(self) -> dict[str, Any]:
        """Plain values for `datasets check --json`."""
        near = self.relatives.undeclared()
        return {
            "set": self.name,
            "folder": self.folder,
            "fit": self.fit,
            "labels": self.labels,
            "documents": self.documents,
            "findings": [asdict(finding) for finding in self.findings],
            "counts": {split: dict(counts) for split, counts in self.counts.items()},
            "judged_at_5": {
                which: {name: rate.to_json() for name, rate in rates.items()}
                for which, rates in self.judged.items()
            },
            "unjudged_pairs": len(self.unjudged),
            "label_budget": [claim.to_json() for claim in self.claims],
            "near_documents": {
                "by_encoder": dict(self.near_documents),
                "undeclared": [[*pair, cosine] for pair, cosine in near.items()],
                "declared_groups": [list(group) for group in self.relatives.declared],
                "equal_content": [list(group) for group in self.relatives.equal],
            },
            "judgements": self.judging.to_json() if self.judging else None,
        }


def check_set(
    labelled: LabelledSet,
    corpus: Corpus,
    bases: Sequence[Knowledge],
    *,
    settings: Settings | None = None,
    seed: int = 0,
) -> SetCheck:
    """Check a labelled set over its corpus, with one knowledge base for each encoder.

    `settings` decide what counts as graded HIGHLY_RELEVANT in the label budget. `seed` is that
    of the agreement's bootstrap. Raises `DatasetError` for a file of judgements that cannot be
    read.
    """
    chosen = settings or Settings()
    limit = chosen.retrieval.limit
    texts = [query.text for query in labelled.queries]
    evidence = {b.encoder.name: b.gather(texts, depth=max(DEPTH, limit)) for b in bases}
    judged = {name: judge(labelled, found, limit=limit) for name, found in evidence.items()}
    normalization, rule = chosen.retrieval.normalization, chosen.retrieval.l0.precise_requires
    level = {name: levels(found, normalization, rule) for name, found in judged.items()}
    pooling = labelled.judged == "pooled"  # else every document is judged, by declaration
    pool = pool_of(labelled.queries, corpus.documents, evidence, depth=DEPTH)
    unjudged = unjudged_pairs(pool, labelled.queries) if pooling else []
    near = {base.encoder.name: near_pairs(base) for base in bases}
    alike = relatives(corpus.documents, near.values())
    files = judging(labelled, seed=seed)
    found = (
        *label_findings(labelled, corpus, alike),
        *_pool(unjudged),
        *(Finding(*problem) for problem in (files.problems if files else ())),
    )
    budget = claims(labelled, judged, level)
    return SetCheck(
        name=labelled.name,
        folder=labelled.folder,
        labels=labelled.judged,
        documents=len(corpus),
        findings=tuple(sorted((*found, *_budget(budget)), key=lambda f: f.severity)),
        counts=counts_by_split(labelled),
        judged=_judged_at_5(pool, labelled.queries) if pooling else {},
        unjudged=tuple(unjudged),
        claims=budget,
        relatives=alike,
        near_documents={name: len(pairs) for name, pairs in near.items()},
        judging=files,
    )


def counts_by_split(labelled: LabelledSet) -> dict[str, dict[str, Any]]:
    """How many queries of each kind and language each split has, and how many need nothing."""
    found = {}
    for split in labelled.splits:
        queries = [query for query in labelled.queries if query.split == split]
        unanswerable = [query for query in queries if query.answerable is False]
        near = Counter(query.nearness or "unstated" for query in unanswerable)
        found[split] = {
            "queries": len(queries),
            "clusters": len({query.cluster for query in queries}),
            "answerable": len(queries) - len(unanswerable),
            "unanswerable": len(unanswerable),
            **{f"unanswerable_{name}": near[name] for name in ("near", "far", "unstated")},
            "kinds": _counted(query.kind for query in queries),
            "languages": _counted(query.lang for query in queries),
        }
    return found


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(name or "unstated" for name in names).items()))


def _judged_at_5(pool: Pool, queries: Sequence[Query]) -> dict[str, dict[str, Rate]]:
    rates = {}
    for which, wanted in (("answerable", True), ("unanswerable", False)):
        rows = [i for i, q in enumerate(queries) if (q.answerable is not False) == wanted]
        if rows:
            rates[which] = judged_rates(pool.only(rows), [queries[i] for i in rows])
    return rates


def _pool(unjudged: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    shown = [f"{query}: {path}" for query, path in unjudged]
    problem = f"pairs among the first {DEPTH} of a ranking are not judged"
    yield from finding_of("unjudged", "warning", problem, shown)


def _budget(budget: Sequence[Claim]) -> Iterator[Finding]:
    short = [str(claim) for claim in budget if claim.supported != "one of two"]
    problem = "claims lack labels, even without an error, alone or as one of two"
    yield from finding_of("label_budget", "warning", problem, short)
