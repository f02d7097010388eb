"""The files of judgements beside a set: do they equal its qrels, and do the judges agree?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kbeval.evaluation.checking.agreement import (
    FLOOR,
    JUDGEMENTS,
    SECOND_JUDGEMENTS,
    Agreement,
    Grades,
    agreement,
    grades_of,
    read_judgements,
)
from kbeval.evaluation.queries import LabelledSet
from kbeval.evaluation.reading.sources import read_labels

SHOWN = 10  # examples of a problem
Problem = tuple[str, Literal["error", "warning"], str, int, tuple[str, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Judging:
    """What the files of judgements of a set say.

    `agreement` is with the labels as they stand; `agreement_before` with those of the first
    pass, where pairs of the sample were judged again since (else None): mending labels after
    the second judgement raises the former, never the latter.
    """

    pairs: int
    judged_again: int  # pairs with more than one pass
    problems: tuple[Problem, ...]
    agreement: Agreement | None
    agreement_before: Agreement | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "pairs": self.pairs,
            "judged_again": self.judged_again,
            "agreement": self.agreement.to_json() if self.agreement else None,
            "agreement_before": self.agreement_before.to_json() if self.agreement_before else None,
        }


def judging(labelled: LabelledSet, *, seed: int = 0) -> Judging | None:
    """Read and check `judgements.tsv` and `second-judgements.tsv`; None without the first.

    Raises `DatasetError` naming file and line of a row that is wrong.
    """
    folder = Path(labelled.folder)
    if not (labelled.folder and (folder / JUDGEMENTS).is_file()):
        return None
    rows = read_judgements(folder / JUDGEMENTS)
    last, first = grades_of(rows), grades_of(rows, which="first")
    problems = list(_against_qrels(last, _qrels(folder, labelled)))
    met = before = None
    if (folder / SECOND_JUDGEMENTS).is_file():
        second = grades_of(read_judgements(folder / SECOND_JUDGEMENTS))
        strange = [pair for pair in second if pair not in last]
        problems += _problem(
            "second_unknown",
            "pairs were judged a second time only",
            [": ".join(p) for p in strange],
        )
        sample = {pair: grade for pair, grade in second.items() if pair in last}
        cluster = {query.id: query.cluster for query in labelled.queries}
        met = agreement(last, sample, cluster=cluster, seed=seed)
        if any(first[pair] != last[pair] for pair in sample):
            before = agreement(first, sample, cluster=cluster, seed=seed)
        problems += _below_floor(before or met)
    return Judging(len(last), len(rows) - len(last), tuple(problems), met, before)


def _qrels(folder: Path, labelled: LabelledSet) -> Grades:
    """Every row of the qrels of the set's splits, also of queries that are left out."""
    files = [folder / "qrels" / f"{split}.tsv" for split in labelled.splits]
    return {
        (query, document): label.grade
        for file in files
        if file.is_file()
        for query, row in read_labels(file)[0].items()
        for document, label in row.items()
    }


def _against_qrels(judged: Grades, qrels: Grades) -> Iterator[Problem]:
    table = [
        ("judgement_not_in_qrels", "judged pairs are not in qrels", judged.keys() - qrels.keys()),
        ("qrel_not_judged", "pairs of qrels are in no judgement", qrels.keys() - judged.keys()),
    ]
    for check, problem, pairs in table:
        yield from _problem(check, problem, [": ".join(pair) for pair in sorted(pairs)])
    other = [
        f"{query}: {document} was judged {judged[query, document]}, qrels says {score}"
        for (query, document), score in qrels.items()
        if judged.get((query, document), score) != score
    ]
    yield from _problem("judgement_not_qrel", "pairs have another score in qrels", other)


def _below_floor(found: Agreement) -> Iterator[Problem]:
    if not found.meets_floor:
        problem = f"kappa's lower bound does not reach {FLOOR}: {found.kappa}"
        yield "agreement", "warning", problem, 1, ()


def _problem(check: str, problem: str, examples: list[str]) -> Iterator[Problem]:
    if examples:
        yield check, "error", problem, len(examples), tuple(examples[:SHOWN])
