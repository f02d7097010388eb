"""Verdicts where numbers would lie: too few labels, doubtful queries, parts apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from kbeval.errors import ConfigError
from kbeval.evaluation.queries import Query
from kbeval.evaluation.tuning.constraints import Constraints, Infeasible
from kbeval.evaluation.tuning.cuts import doubtful
from kbeval.evaluation.tuning.gains import SeparateCuts, separate_cuts
from kbeval.evaluation.tuning.held_out import HeldOut, NotHeldOut
from kbeval.evaluation.tuning.ladder import PreciseRule
from kbeval.evaluation.tuning.plan import TooFewLabels, too_few_labels
from kbeval.retrieval.grading import l2_to_similarity
from kbeval.studies.terminal import some
from kbeval.studies.tuning_parts import SEPARATE, Ask, Parts, part_names

USUAL_PRECISION = 0.95  # the claim that is spoken of where none is asked
CLOSED = "precision[HIGHLY_RELEVANT]"


def too_few(
    held: HeldOut | Infeasible | NotHeldOut, parts: Parts, ask: Ask
) -> tuple[TooFewLabels, ...]:
    """The claims that these labels could not support even without an error (method.md 6).

    Counted are held-out queries graded HIGHLY_RELEVANT, and unanswerable ones where a leak is
    asked. Without constraints the claim is a precision of 0.95.
    """
    asked = ask.objective if isinstance(ask.objective, Constraints) else None
    precision = USUAL_PRECISION if asked is None else asked.precision
    leak = None if asked is None else asked.leak
    claims = 2 if asked is None else max(1, (precision is not None) + (leak is not None))
    graded = held.rates[CLOSED].n if isinstance(held, HeldOut) else 0
    found = []
    if precision is not None and 0 < precision < 1:
        found.append(too_few_labels(graded, precision=precision, claims=claims))
    if leak is not None and 0 < leak < 1:
        n = int((~parts.reported.answerable).sum())
        found.append(too_few_labels(n, leak=leak, claims=claims))
    return tuple(few for few in found if few is not None)


def broken_promises(held: HeldOut | Infeasible | NotHeldOut, ask: Ask) -> Iterator[str]:
    """What was asked of the cuts and is not kept on queries held out, a line each."""
    asked = ask.objective
    if not isinstance(asked, Constraints) or not isinstance(held, HeldOut):
        return
    for name, bound, least in (
        (CLOSED, asked.precision, True),
        ("leak_rate", asked.leak, False),
        ("false_closure_rate_by_level[HIGHLY_RELEVANT]", asked.false_closure, False),
    ):
        rate = held.rates.get(name)
        if bound is None or rate is None or rate.value is None:
            continue
        if rate.value < bound if least else rate.value > bound:
            end = rate.high if least else rate.low
            sure = end is not None and (end < bound if least else end > bound)
            doubt = "" if sure else ", which chance alone may do"
            yield f"{name} {'>=' if least else '<='} {bound} is not kept held out: {rate}{doubt}"


def doubtful_table(parts: Parts, ask: Ask, count: int = 10) -> pd.DataFrame:
    """The nearest wrong and the farthest right of the choosing labels, for a person to read.

    A row each: `which`, query, text, distance, similarity, the first document, what was expected.
    """
    judged, labelled, rows = parts.chosen_on, parts.labelled, []
    for which, places in doubtful(judged, count).items():
        for place in places:
            query = labelled.queries[judged.query[place]]
            distance = float(judged.distance[place])
            rows.append(
                {
                    "which": which,
                    "query_id": query.id,
                    "text": query.text,
                    "distance": distance,
                    "similarity": float(l2_to_similarity(distance, ask.present.max_l2_distance)),
                    "primary": parts.evidence.paths[judged.primary[place]],
                    "expected": _expected(query) if judged.answerable[place] else "",
                }
            )
    columns = ["which", "query_id", "text", "distance", "similarity", "primary", "expected"]
    return pd.DataFrame(rows, columns=columns)


def separate_parts(
    parts: Parts, ask: Ask, rule: PreciseRule
) -> tuple[tuple[SeparateCuts, ...], tuple[str, ...]]:
    """Whether languages, kinds or domains should have cuts of their own, and what was not tried.

    Judged out of fold on the labels that choose. A name that unanswerable queries alone carry
    would tell what no look-up can know, so what is told apart by it is not tried.
    """
    judged, tried, left = parts.chosen_on, {}, []
    for by in SEPARATE:
        names = part_names(parts, judged, by)
        if len(np.unique(names)) < 2:
            continue
        alone = sorted(set(names.tolist()) - set(names[judged.answerable].tolist()))
        if alone:
            told = some([repr(name) for name in alone])
            left.append(
                f"{by}: not tried; unanswerable queries alone are called {told}, so no look-up "
                "could tell"
            )
        else:
            tried[by] = names
    if not tried:
        return (), tuple(left)
    try:
        found = separate_cuts(
            judged,
            tried,
            ask.objective,
            groups=parts.groups,
            normalization=ask.present,
            precise_requires=rule,
            costs=ask.costs,
            seed=ask.seed,
        )
    except ConfigError as error:  # a training part cannot serve the objective
        return (), (*left, f"{', '.join(tried)}: not tried; {error}")
    return found, tuple(left)


def _expected(query: Query) -> str:
    best = max(query.grades.values(), default=0)
    return "|".join(path for path, grade in query.grades.items() if grade == best > 0)
