"""Labelled sets in the layout of BEIR: `queries.jsonl`, and judgements in `qrels/SPLIT.tsv`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from kbeval.errors import DatasetError
from kbeval.evaluation.reading.declaration import read_declaration
from kbeval.evaluation.reading.joining import joined
from kbeval.evaluation.reading.labels import (
    LABEL_NAMES,
    QUERY_NAMES,
    Draft,
    Label,
    Labels,
    doubled_fault,
    drafts_of,
)
from kbeval.evaluation.reading.rows import read_rows
from kbeval.evaluation.reading.sources import (
    Source,
    placed,
    read_labels,
    refuse_own_labels,
    unknown_fault,
    unknown_queries,
)
from kbeval.records import Fault


@dataclass(frozen=True, slots=True)
class _Qrels:
    """The qrels files of a folder, and which of them are asked for."""

    files: Mapping[str, Path]  # name of the split -> file
    listed: tuple[str, ...]  # those that dataset.yml lists
    chosen: tuple[str, ...]
    labels: Mapping[str, Labels]  # of the files in `listed` and `chosen`
    doubled: tuple[Label, ...]  # of the chosen ones

    @property
    def judging(self) -> tuple[str, ...]:
        """The files that decide where a query belongs."""
        return self.listed if set(self.chosen) <= set(self.listed) else self.chosen


def read_beir(folder: Path, split: str | None) -> Source:
    """Read the splits that `dataset.yml` lists, or the one asked for.

    Any file of qrels may be asked for; with one that is not listed the queries are those that it
    judges, or that name it as their split. Raises `DatasetError`.
    """
    declaration = read_declaration(folder)
    qrels = _read_qrels(folder, tuple(declaration.splits), split)
    rows = read_rows(folder / "queries.jsonl", QUERY_NAMES)
    refuse_own_labels(rows, "qrels")
    drafts, malformed = drafts_of(rows)
    together = joined(drafts, long=False)
    here, lost_count, astray = _here(together.drafts, qrels)
    labels = {name: qrels.labels[name] for name in qrels.chosen}
    unknown = [label for name in labels for label in unknown_queries(labels[name], drafts)]
    beside = (*doubled_fault(qrels.doubled), *unknown_fault(unknown, "queries.jsonl"))
    return Source(
        drafts=here,
        labels=dict(chain.from_iterable(row.items() for row in labels.values())),
        splits=tuple(declaration.splits),
        form="beir",
        faults=(*malformed, *together.faults, *astray, *beside),
        declaration=declaration,
        left_out={
            "malformed": len(malformed),
            "duplicate": together.duplicate_count,
            "no_split": lost_count,
        },
        counts={
            "empty_rows": rows.empty_count,
            "doubled_labels": len(qrels.doubled),
            "unknown_queries": len(unknown),
            "other_split": len(together.drafts) - len(here) - lost_count,
        },
    )


def _read_qrels(folder: Path, splits: tuple[str, ...], split: str | None) -> _Qrels:
    files = {path.stem: path for path in sorted((folder / "qrels").glob("*.tsv"))}
    chosen = splits if split is None else (split,)
    for name in chosen:
        if name not in files:
            there = ", ".join(files) or "none"
            raise DatasetError(f"{folder}: no split {name!r} in qrels; the splits are {there}")
    listed = tuple(name for name in splits if name in files)
    read = {name: read_labels(files[name]) for name in dict.fromkeys((*listed, *chosen))}
    doubled = tuple(label for name in chosen for label in read[name][1])
    return _Qrels(files, listed, chosen, {name: read[name][0] for name in read}, doubled)


def _here(drafts: Sequence[Draft], qrels: _Qrels) -> tuple[tuple[Draft, ...], int, list[Fault]]:
    """The queries of the chosen splits, how many belong to none, and what is odd about it."""
    judged = {name: qrels.labels[name] for name in qrels.judging}
    elsewhere = _judged_elsewhere(qrels)
    homes = [_home(draft, judged, elsewhere, qrels) for draft in drafts]
    here = [
        placed(draft, home)
        for draft, home in zip(drafts, homes, strict=True)
        if home in qrels.chosen
    ]
    lost = [d for d, home in zip(drafts, homes, strict=True) if home and home not in qrels.files]
    moved = [d for d in here if d.declared_split not in ("", d.query.split)]
    faults = []
    if lost:
        problem = f"{len(lost)} queries belong to no split with a qrels file"
        faults.append(_first_fault(lost, problem, "error"))
    if moved and qrels.judging == qrels.listed:
        problem = f"{len(moved)} queries name another split than that of the qrels that judge them"
        faults.append(_first_fault(moved, problem, "warning"))
    return tuple(here), len(lost), faults


def _first_fault(
    drafts: Sequence[Draft], problem: str, severity: Literal["error", "warning"]
) -> Fault:
    first = drafts[0]
    problem += f", the first is {first.query.id!r} with {first.declared_split or 'test'!r}"
    return Fault(first.file, problem, line=first.line, severity=severity)


def _judged_elsewhere(qrels: _Qrels) -> frozenset[str]:
    """The queries of files that do not decide where a query belongs."""
    read = chain.from_iterable(
        qrels.labels[name] for name in qrels.labels if name not in qrels.judging
    )
    paths = (path for name, path in qrels.files.items() if name not in qrels.labels)
    rows = (row for path in paths for row in read_rows(path, LABEL_NAMES).rows)
    return frozenset(chain(read, (str(row.fields.get("query")) for row in rows)))


def _home(
    draft: Draft, judged: Mapping[str, Labels], elsewhere: frozenset[str], qrels: _Qrels
) -> str:
    """The split of a query: that of the file that judges it, else its own word, else `test`.

    "" for a query that only another file judges. Raises `DatasetError` if two splits judge it.
    """
    query = draft.query.id
    found = [name for name, labels in judged.items() if query in labels]
    if len(found) > 1:
        second = next(iter(judged[found[1]][query].values()))
        raise DatasetError(
            f"{second.file}:{second.line}: query {query!r} is judged in {found[0]} too; "
            "a query belongs to one split"
        )
    if found or draft.declared_split:
        return found[0] if found else draft.declared_split
    if query in elsewhere:
        return ""
    only = qrels.listed if qrels.judging == qrels.listed else tuple(qrels.files)
    return only[0] if len(only) == 1 else "test"
