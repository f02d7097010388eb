"""The second question in one sentence: which cuts fit, what they bring, how sure that is."""

from __future__ import annotations

from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.tuning.constraints import Infeasible
from kbeval.evaluation.tuning.cuts import name_of
from kbeval.evaluation.tuning.held_out import HeldOut
from kbeval.evaluation.tuning.plateau import Cut, decimal
from kbeval.retrieval.grading import l2_to_similarity
from kbeval.studies.tuning_result import Tuned, Tuning


def headline(tuning: Tuning) -> str:
    """A sentence for each encoder."""
    return " ".join(f"{tuning.name}, {tuned.encoder}: {_told(tuned)}" for tuned in tuning.tuned)


def _told(tuned: Tuned) -> str:
    if isinstance(tuned.held, Infeasible):
        return f"no cuts: {tuned.held}."
    if tuned.chosen is None or not tuned.recommended:
        return f"no settings are recommended: {tuned.refused}."
    cuts = "; ".join(
        _cut(cut, tuned) for cut in (tuned.chosen.highly_relevant, tuned.chosen.reference)
    )
    if tuned.rule != tuned.ask.present_rule:
        cuts += f"; precise-requires {tuned.rule}"
    return f"the best {name_of(tuned.ask.objective)} asks for {cuts}. {_held_out(tuned)}"


def _cut(cut: Cut, tuned: Tuned) -> str:
    if cut.note:
        return f"{cut.level.name}: {cut.note}"  # the constant, where no cut pays
    limit = tuned.ask.present.max_l2_distance
    similarity = float(l2_to_similarity(cut.distance, limit))
    parts = [f"similarity {decimal(similarity)} of max {decimal(limit)}"]
    moved = {} if tuned.stability is None else tuned.stability.ranges
    if cut.level in moved:
        low, high = moved[cut.level]
        parts.append(f"stability range {decimal(low)} to {decimal(high)}")
    if isinstance(tuned.held, HeldOut) and tuned.held.pays[cut.level].pays is False:
        parts.append("held out it does not pay")
    return f"{cut.level.name} at distance {decimal(cut.distance)} ({', '.join(parts)})"


def _held_out(tuned: Tuned) -> str:
    if not isinstance(tuned.held, HeldOut):
        return f"{tuned.held}."
    parts = [
        f"{name} {_short(tuned.before[name])} -> {_short(tuned.after[name])}"
        for name in ("expected_cost", "leak_rate", "found_rate")
        if name in tuned.before and name in tuned.after
    ]
    saved = "" if tuned.gain is None else f"saved a query: {tuned.gain}; "
    return f"On queries that had no part in choosing, at the best cuts: {saved}{', '.join(parts)}."


def _short(rate: Rate) -> str:
    if rate.value is None:
        return "-"
    if rate.low is None or rate.high is None:
        return f"{rate.value:.3f}"
    return f"{rate.value:.3f} [{rate.low:.3f}, {rate.high:.3f}]"
