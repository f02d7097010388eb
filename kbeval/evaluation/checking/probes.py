"""Near-miss probes: hide what answers a query, and see whether it still gets something.

A probe is unanswerable by construction, as far as the labels go; it is reported apart, never
added to the unanswerable queries of a set, to a leak rate or to a claim (method.md 10).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kbeval.config import Settings
from kbeval.errors import DatasetError
from kbeval.evaluation.checking.duplicates import Relatives
from kbeval.evaluation.checking.hiding import hidden_evidence
from kbeval.evaluation.judge import judge
from kbeval.evaluation.measures import levels
from kbeval.evaluation.queries import LabelledSet, Query
from kbeval.evaluation.reading.rows import read_rows
from kbeval.evaluation.reading.values import RowProblem, integer_of
from kbeval.evaluation.statistics import Rate, clopper_pearson, rate
from kbeval.records import Level
from kbeval.retrieval.knowledge import Knowledge

PROBES, PROBES_READ = "probes.jsonl", "probes-read.tsv"
_NAMES = {"probe": ("probe-id", "probe_id"), "still": ("still_answerable", "still-answerable")}


@dataclass(frozen=True, slots=True)
class Probe:
    """An answerable query whose documents are hidden.

    `hidden` are the paths, sorted: every document with a positive score, and its declared, equal
    or near duplicates. Probe and parent are one cluster.
    """

    id: str
    parent: Query
    hidden: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """One line of `probes.jsonl`, in the layout of `queries.jsonl`."""
        parent = self.parent
        kept = {"lang": parent.lang, "domain": parent.domain, "parent_kind": parent.kind}
        units = {"need_id": parent.need_id, "session_id": parent.session_id}
        return {
            "_id": self.id,
            "text": parent.text,
            "metadata": {
                "split": parent.split,
                "answerable": False,
                "kind": "probe",
                "nearness": "near",
                "parent": parent.id,
                "hidden": list(self.hidden),
                **{name: value for name, value in (kept | units).items() if value},
            },
        }


@dataclass(frozen=True, slots=True)
class ProbeLeak:
    """What probes were given, with each interval over clusters of parents.

    `still_answerable` is the share of probes, read by hand, that another document answers; its
    bounds are Clopper-Pearson's. `bounds` is where the true leak lies with that share at its
    upper bound, None without any that was read.
    """

    leak: Rate
    closed: Rate  # of all probes, those that were given PRECISE or HIGHLY_RELEVANT
    floor: Rate  # of all probes, those that an L0 match gives something at every cut
    still_answerable: Rate | None = None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """[(L - e) / (1 - e), L / (1 - e)], within 0 and 1, e at its upper bound."""
        known = self.still_answerable
        if known is None or known.high is None or self.leak.value is None:
            return None
        return leak_bounds(self.leak.value, known.high)

    def to_json(self) -> dict[str, Any]:
        """Plain values, under names that no measure of answerable or declared queries has."""
        return {
            "probe_leak_rate": self.leak.to_json(),
            "probe_closed_leak_rate": self.closed.to_json(),
            "probe_leak_floor": self.floor.to_json(),
            "still_answerable": self.still_answerable.to_json() if self.still_answerable else None,
            "true_leak_bounds": list(self.bounds) if self.bounds else None,
        }


def leak_bounds(leak: float, still_answerable: float) -> tuple[float, float]:
    """Where the true leak lies if that share of the probes is answerable after all.

    >>> [round(end, 3) for end in leak_bounds(0.5, 0.2)]
    [0.375, 0.625]
    """
    if still_answerable >= 1:
        return 0.0, 1.0
    rest = 1 - still_answerable
    return max(0.0, (leak - still_answerable) / rest), min(1.0, leak / rest)


def make_probes(labelled: LabelledSet, paths: Sequence[str], alike: Relatives) -> tuple[Probe, ...]:
    """A probe of every answerable query, in the order of the set.

    `paths` are the corpus. Queries whose relevant documents are all missing from it, and those
    after whose hiding no document is left, give none.
    """
    known = set(paths)
    found = []
    for query in labelled.queries:
        positive = {path for path, score in query.grades.items() if score > 0} & known
        if query.answerable is False or not positive:
            continue
        hidden = alike.of(positive)
        if len(hidden) < len(known):
            found.append(Probe(f"{query.id}:probe", query, tuple(sorted(hidden))))
    return tuple(found)


def probes_to_read(probes: Sequence[Probe], *, count: int = 50, seed: int = 0) -> tuple[Probe, ...]:
    """Probes to be read by hand, drawn at random, at most one of a cluster."""
    clusters: dict[str, list[Probe]] = {}
    for probe in sorted(probes, key=lambda probe: probe.id):
        clusters.setdefault(probe.parent.cluster, []).append(probe)
    rng = np.random.default_rng(seed)
    one_each = [group[rng.integers(len(group))] for group in clusters.values()]
    drawn = rng.choice(len(one_each), size=min(count, len(one_each)), replace=False)
    return tuple(one_each[i] for i in drawn)


def save_probes(probes: Sequence[Probe], path: str | Path) -> Path:
    """Write `probes.jsonl`, one line a probe."""
    target = Path(path)
    lines = [json.dumps(probe.to_json(), ensure_ascii=False) for probe in probes]
    target.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
    return target


def read_still_answerable(path: str | Path, probes: Sequence[Probe]) -> dict[str, bool]:
    """Probes read by hand, from `probes-read.tsv`: probe-id, still_answerable (0 or 1).

    A row whose second cell is empty is not read yet. Raises `DatasetError` naming the line for
    another value, a probe that does not exist, and one that is read twice.
    """
    rows = read_rows(Path(path), _NAMES, needed=tuple(_NAMES))
    if rows.faults:
        raise DatasetError(str(rows.faults[0]))
    known = {probe.id for probe in probes}
    found: dict[str, bool] = {}
    for row in rows.rows:
        name, still = str(row.fields["probe"]), str(row.fields["still"])
        if not still.strip():
            continue
        try:
            value = integer_of(still)
            if value not in (0, 1):
                raise RowProblem(f"still_answerable is {value}; 0 and 1 are allowed")
            if name in found or name not in known:
                raise RowProblem(
                    f"probe {name!r} "
                    + ("is read twice" if name in found else f"is none of the {len(known)} probes")
                )
        except RowProblem as problem:
            raise DatasetError(f"{rows.file}:{row.line}: {problem}") from None
        found[name] = bool(value)
    return found


def leak_on_probes(
    probes: Sequence[Probe],
    knowledge: Knowledge,
    *,
    settings: Settings | None = None,
    still_answerable: Mapping[str, bool] | None = None,
) -> dict[str, ProbeLeak]:
    """Gather, hide and grade every probe: what leaks, by split (method.md 10).

    The documents are hidden from L0 and L1 alike, and the rest is graded as any look-up.
    `still_answerable` holds the probes read by hand; their share stands for every split.
    """
    if not probes:
        return {}
    chosen = settings or Settings()
    evidence = hidden_evidence(
        knowledge,
        [probe.parent.text for probe in probes],
        [probe.hidden for probe in probes],
        limit=chosen.retrieval.limit,
    )
    judged = judge(_as_set(probes), evidence, limit=chosen.retrieval.limit)
    rule = chosen.retrieval.l0.precise_requires
    level = levels(judged, chosen.retrieval.normalization, rule)
    cluster = np.array([probe.parent.cluster for probe in probes], dtype=object).astype(str)
    split = np.array([probe.parent.split for probe in probes], dtype=object).astype(str)
    share = _still(still_answerable or {}, probes)

    def among(wanted: str, held: ArrayLike) -> Rate:
        here = split == wanted
        return rate(np.asarray(held)[here], cluster[here], empty="no probe")

    return {
        name: ProbeLeak(
            leak=among(name, level > Level.NOT_FOUND),
            closed=among(name, level >= Level.HIGHLY_RELEVANT),
            floor=among(name, judged.l0_count > 0),
            still_answerable=share,
        )
        for name in dict.fromkeys(split.tolist())
    }


def _as_set(probes: Sequence[Probe]) -> LabelledSet:
    """The probes as a labelled set of their own, of unanswerable near queries."""
    queries = (
        replace(
            probe.parent,
            id=probe.id,
            answerable=False,
            grades={},
            needs=(),
            kind="probe",
            nearness="near",
        )
        for probe in probes
    )
    return LabelledSet("probes", "", tuple(queries))


def _still(read: Mapping[str, bool], probes: Sequence[Probe]) -> Rate | None:
    known = [read[probe.id] for probe in probes if probe.id in read]
    if not known:
        return None
    return Rate(sum(known) / len(known), *clopper_pearson(sum(known), len(known)), len(known))
