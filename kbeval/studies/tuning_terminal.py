"""What `tune` prints: plain lines, the answer first, then what it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from kbeval.config import Normalization
from kbeval.evaluation.measures import cuts as present_cuts
from kbeval.evaluation.tuning.calibration import NotCalibrated
from kbeval.evaluation.tuning.constraints import Infeasible
from kbeval.evaluation.tuning.cuts import name_of
from kbeval.evaluation.tuning.export import Triple
from kbeval.evaluation.tuning.held_out import HeldOut
from kbeval.evaluation.tuning.plateau import Cut, Interval, decimal
from kbeval.records import Level
from kbeval.studies.tuning_compare import Comparison
from kbeval.studies.tuning_effects import WHICH, WrongBelief
from kbeval.studies.tuning_files import told, verdict_lines
from kbeval.studies.tuning_headline import headline
from kbeval.studies.tuning_result import Tuned, Tuning

NAMES = (  # shown before and after
    "expected_cost",
    "precision[HIGHLY_RELEVANT]",
    "coverage[HIGHLY_RELEVANT]",
    "false_closure_rate_by_level[HIGHLY_RELEVANT]",
    "found_rate",
    "leak_rate",
    "closed_leak_rate",
    "leak_floor",
    "accuracy",
    "macro_f1",
)


def tuning_lines(tuning: Tuning) -> Iterator[str]:
    """The whole result, line by line."""
    yield f"{tuning.name}: cuts for the best {name_of(tuning.ask.objective)}"
    yield "the costs in use say:"
    yield from (f"  {line}" for line in tuning.ask.costs.break_evens())
    for tuned in tuning.tuned:
        yield ""
        yield from tuned_lines(tuned)
    if tuning.comparison is not None:
        yield ""
        yield from comparison_lines(tuning.comparison)
    yield ""
    yield f"answer: {headline(tuning)}"


def tuned_lines(tuned: Tuned) -> Iterator[str]:
    """The answer for one encoder."""
    parts, (dev, test) = tuned.parts, tuned.parts.splits
    yield f"== {tuned.encoder} ({parts.reported.convention}: {_which(tuned)} distances)"
    if not tuned.header["semantic"]:
        yield "a stand-in that only compares spelling: not semantic"
    if parts.folded:
        yield f"no dev split: {len(parts.chosen_on)} queries of {test}, folds by {parts.grouped_by}"
    else:
        chose, reported = len(parts.chosen_on), len(parts.reported)
        yield f"tuned on {chose} queries of {dev}, reported on {reported} of {test}"
    yield from _present_lines(tuned)
    yield from _cut_lines(tuned)
    yield from _held_lines(tuned)
    yield from _verdicts(tuned)
    yield from _certificate(tuned)
    if tuned.topics is not None:
        yield from tuned.topics.lines()
    yield from _precise_rules(tuned)
    yield f"calibration: {_calibration(tuned)}"
    yield from _settings(tuned)
    for belief in tuned.beliefs:
        yield from _belief(belief)


def _which(tuned: Tuned) -> str:
    return WHICH[tuned.parts.reported.convention]


def _present_lines(tuned: Tuned) -> Iterator[str]:
    """How far the present thresholds reach with this encoder, and why they may say nothing."""
    judged, present = tuned.parts.chosen_on, tuned.ask.present
    near = judged.distance[(judged.l0_count == 0) & np.isfinite(judged.distance)]
    if not len(near):
        return
    reach = present_cuts(present)
    high, reference = (int((near <= cut).sum()) for cut in reach)
    yield (
        f"the present thresholds{_whose(present)} {decimal(present.highly_relevant_threshold)} and "
        f"{decimal(present.reference_threshold)} of max {decimal(present.max_l2_distance)} reach "
        f"to distance {' and '.join(f'{cut:.3f}' for cut in reach)}"
    )
    yield (
        f"  of {len(near)} queries of {tuned.parts.splits[0]} without an exact match {high} are "
        f"HIGHLY_RELEVANT there, {reference} REFERENCE or better: their nearest documents lie at "
        f"{near.min():.3f} to {near.max():.3f}, half of them within {np.median(near):.3f}"
    )
    if not high or high == len(near):
        yield (
            f"  {'every' if high else 'none'} of them is HIGHLY_RELEVANT, so that level tells "
            "nothing: thresholds belong to an encoder, and these were not chosen for this one"
        )


def _whose(present: Normalization) -> str:
    defaults = Normalization(distance=present.distance)
    return " (the specs' defaults)" if present == defaults else ""


def _cut_lines(tuned: Tuned) -> Iterator[str]:
    if isinstance(tuned.held, Infeasible):
        yield f"no cuts: {tuned.held}"
    chosen, limit = tuned.chosen, tuned.ask.present.max_l2_distance
    if chosen is None:
        return
    yield f"the cuts, similarity under max-l2-distance {decimal(limit)}"
    for cut in (chosen.highly_relevant, chosen.reference):
        yield f"  {cut.describe(chosen.convention, limit)}"
        if cut.level in chosen.constants:
            best = _best(tuned, cut.level).describe(chosen.convention, limit)
            yield f"    {chosen.constants[cut.level]}; the best cut was"
            yield f"    {best}"
        yield from (f"    {line}" for line in _plateau(cut))
    stable = tuned.stability
    if stable is not None:
        yield f"  how much they move, {stable.resamples} resamples (no confidence interval):"
        yield f"    {stable.highly_relevant}"
        yield f"    {stable.reference}"


def _best(tuned: Tuned, level: Level) -> Cut:
    """The best cut of a level where cuts were chosen, whether it pays or not."""
    if tuned.choice is None:
        raise ValueError("no cuts were chosen")
    high = level == Level.HIGHLY_RELEVANT
    return tuned.choice.highly_relevant if high else tuned.choice.reference


def _plateau(cut: Cut) -> Iterator[str]:
    if not cut.note:
        yield f"of equal value {_range(cut.plateau)}"
    for other in cut.others[:3]:
        yield f"also {_range(other)}"


def _range(interval: Interval) -> str:
    """An interval of cut distances in words; an open end is left away."""
    low = "" if math.isinf(interval.accepted) else f"from distance {decimal(interval.accepted)}"
    high = "on" if math.isinf(interval.refused) else f"to below {decimal(interval.refused)}"
    return f"{low} {high}" if low else f"anywhere {high}"


def _end(distance: float) -> str:
    return "any" if distance in (float("inf"), -float("inf")) else decimal(distance)


def _held_lines(tuned: Tuned) -> Iterator[str]:
    held = tuned.held
    if not isinstance(held, HeldOut):
        yield f"before, on {tuned.parts.splits[1]} with the present settings"
        yield from _rows(tuned)
        if not isinstance(held, Infeasible):
            yield str(held)
        return
    yield f"before (present settings) and after (the best cuts), held out: {held.told}"
    yield from _rows(tuned)
    if tuned.parts.folded and tuned.rule != tuned.ask.present_rule:
        yield "  the rule of PRECISE was chosen anew in every training part"
    yield f"  saved a query: {told(tuned.gain)}"
    for name in ("expected_cost", "accuracy", "macro_f1"):
        if name in held.gaps:
            gap = held.gaps[name]
            yield f"  optimism gap of {name}: {gap.gap:+.3f} (where tuned {gap.tuned:.3f})"


def _rows(tuned: Tuned) -> Iterator[str]:
    for name in NAMES:
        if name in tuned.before or name in tuned.after:
            after = f"  ->  {told(tuned.after.get(name))}" if tuned.after else ""
            yield f"  {name:<28} {told(tuned.before.get(name))}{after}"


def _verdicts(tuned: Tuned) -> Iterator[str]:
    lines = list(verdict_lines(tuned))
    yield "verdicts:" if lines else "verdicts: none stands in the way"
    yield from (f"  {line}" for line in lines)
    if any(line.startswith("no_cut_pays") for line in lines):
        yield "  read these, mislabel or truth (doubtful.csv):"
        for row in tuned.doubtful.to_dict("records"):
            expected = row["expected"] or "nothing"
            yield (
                f"    {row['which']} {row['query_id']} at {row['distance']:.3f} {row['text']!r}: "
                f"first {row['primary']}, expected {expected}"
            )


def _certificate(tuned: Tuned) -> Iterator[str]:
    certificate = tuned.certificate
    if certificate is None:
        return
    yield f"certified: {certificate}"
    yield f"  naive optimum: {_naive(tuned)}"
    if certificate.coverage_given_up is not None:
        yield f"  coverage given up for the certificate: {certificate.coverage_given_up:.3f}"
    for step in certificate.steps[-1:]:
        yield (
            f"  last tried: distance {decimal(step.distance)}, {step.errors} errors in {step.n}, "
            f"precision at least {step.lower_bound:.3f}"
        )
    if certificate.enough is not None:
        yield f"  {certificate.enough} graded HIGHLY_RELEVANT would have done"


def _naive(tuned: Tuned) -> str:
    certificate = tuned.certificate
    if certificate is None or isinstance(certificate.naive, Infeasible):
        return "" if certificate is None else str(certificate.naive)
    high, reference = (_end(cut) for cut in certificate.naive)
    return f"cuts {high} and {reference}, coverage {told(certificate.naive_coverage)}"


def _precise_rules(tuned: Tuned) -> Iterator[str]:
    yield "PRECISE (no cut changes it), held out, each rule at cuts of its own:"
    for outcome in tuned.rules.outcomes:
        yield (
            f"  {outcome.rule}: graded {outcome.graded}, precision {told(outcome.precision)}, "
            f"expected_cost {told(outcome.expected_cost)}"
        )
    yield f"  unique-and-nearest less unique: {told(tuned.rules.difference)}"
    yield f"  chosen by {_rule_chosen_by(tuned)}: {tuned.rules.chosen.rule}"
    first = tuned.first
    yield (
        f"  an L0 match put first: {first.moved_count} moved, {first.lost} answers lost, "
        f"{first.gained} gained; under the present settings it {_price(float(first.price))}"
    )


def _rule_chosen_by(tuned: Tuned) -> str:
    if not tuned.parts.folded:
        return tuned.parts.splits[0]
    return "all labels" if tuned.certificate is None else "the half that proposes"


def _price(price: float) -> str:
    if not price:
        return "costs nothing"
    return f"{'costs' if price > 0 else 'saves'} {abs(price):.3f} a query"


def _calibration(tuned: Tuned) -> str:
    found = tuned.calibration
    if isinstance(found, NotCalibrated):
        return str(found)
    return (
        f"{found.method}, Brier {told(found.brier)}, "
        f"less the base rate's {told(found.brier_difference)}"
    )


def _settings(tuned: Tuned) -> Iterator[str]:
    if tuned.refused:
        yield f"no settings are recommended: {tuned.refused}"
    if tuned.triples:
        yield "the same cuts as settings (max-l2-distance, highly-relevant, reference):"
        yield from _triples(tuned.triples)
    if tuned.certified is not None:
        yield "the certified cuts as settings:"
        yield from _triples(tuned.certified.triples)


def _triples(triples: Iterable[Triple]) -> Iterator[str]:
    for triple in triples:
        high, reference = (
            "-" if value is None else decimal(value)
            for value in (triple.highly_relevant, triple.reference)
        )
        refused = f"; not equivalent: {triple.refused}" if triple.refused else ""
        yield (
            f"  {decimal(triple.max_l2_distance)}, {high}, {reference}  "
            f"keeps {triple.keeps}{refused}"
        )


def _belief(belief: WrongBelief) -> Iterator[str]:
    yield (
        f"if the engine's distances are {belief.actual} where the {belief.settings} settings "
        f"believe {belief.believed}: {belief.differ} of {belief.n} queries get another level"
    )
    mix = ", ".join(f"{name} {a:.3f} -> {b:.3f}" for name, (a, b) in belief.mix.items())
    yield f"  {mix}"
    for name, (right, wrong) in belief.rates.items():
        yield f"  {name:<28} {told(right)}  ->  {told(wrong)}"


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Encoders side by side, each at its own cuts."""
    yield "== encoders, each at cuts of its own, on the same queries held out"
    for name, cost in comparison.cost.items():
        none = comparison.proposed[name] is None
        cuts = "; no cuts keep what is asked: exact matches alone" if none else ""
        rule = comparison.rules[name]
        yield f"  {name}: expected_cost {told(cost)}, PRECISE requires {rule}{cuts}"
    yield from (f"  {pair}" for pair in comparison.pairs)
    yield from _chosen_without_test(comparison)
    matching = comparison.matching
    source = "the other folds" if matching.folded else "dev"
    yield (
        f"at equal precision of HIGHLY_RELEVANT alone on {source}, {matching.resamples} resamples "
        "(coverage counts PRECISE too):"
    )
    for row in matching.rows:
        doubt = "; not matched" if matching.not_matched(row.encoder, row.wanted) else ""
        yield f"  {row.wanted:g} {row.encoder}: {row}{doubt}"
    yield from (f"  {gap}" for gap in matching.pairs)


def _chosen_without_test(comparison: Comparison) -> Iterator[str]:
    """Which encoder the choosing labels prefer; which was certified first."""
    best = ", ".join(
        f"{name} {'none' if value is None else format(value, '.3f')}"
        for name, value in comparison.proposed.items()
    )
    source = "the half that proposes" if comparison.matching.folded else "dev"
    yield (
        f"on {source} alone, best {comparison.objective}: {best}; "
        f"preferred there: {comparison.preferred or 'none above the others'}"
    )
    if len(comparison.certified) > 1:
        order = ", then ".join(comparison.certified)
        yield (
            f"the confirming labels were used for {order}; a certificate holds for an encoder "
            "chosen without them (as above), choosing among these here voids it"
        )
