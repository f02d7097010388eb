"""What a tuning leaves behind: settings to paste, a check in SQL, all its numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.measures import levels
from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.tuning.cuts import name_of
from kbeval.evaluation.tuning.export import check_sql, yml_fragment
from kbeval.evaluation.tuning.held_out import HeldOut
from kbeval.studies.tuning_headline import headline
from kbeval.studies.tuning_result import Tuned, Tuning, own_folder
from kbeval.studies.tuning_verdicts import broken_promises

YML, SQL = "recommended.yml", "check.sql"
ASSUMED = {  # what `sensitivity` changes, in words
    "unjudged_left_out": "unjudged first documents; without them",
    "share_halved": "the share of unanswerable queries; with half of it",
    "share_doubled": "the share of unanswerable queries; with twice as many",
}
CERTIFIED_YML, CERTIFIED_SQL = "certified.yml", "certified-check.sql"


def save_tuning(tuning: Tuning, folder: str | Path) -> list[Path]:
    """Write tuning.json and metrics.json; per encoder doubtful.csv and, if advised, yml and SQL.

    Certified cuts get a yml and an SQL of their own. Several encoders get a folder each. Where
    nothing is recommended no settings are written.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    contents = {"tuning.json": tuning_json(tuning), "metrics.json": metrics(tuning)}
    written = [target / name for name in contents]
    for path, content in zip(written, contents.values(), strict=True):
        text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
        path.write_text(text + "\n", encoding="utf-8")
    for tuned in tuning.tuned:
        own = own_folder(target, tuned.encoder, among=len(tuning.tuned))
        own.mkdir(exist_ok=True)
        written += _save_one(tuned, tuning.name, own)
    return written


def tuning_json(tuning: Tuning) -> dict[str, Any]:
    """The whole result as plain values, its sentence first."""
    return {"headline": headline(tuning), **tuning.to_json()}


def metrics(tuning: Tuning) -> dict[str, Any]:
    """What a sweep compares: rates held out at the chosen cuts, the saving, the cuts themselves.

    With several encoders each name holds one value an encoder.
    """
    found: dict[str, dict[str, Any]] = {}
    for tuned in tuning.tuned:
        rates = dict(tuned.after) if tuned.gain is None else {**tuned.after, "saved": tuned.gain}
        values = {name: rate.to_json() for name, rate in rates.items()}
        if tuned.choice is not None:
            for cut in (tuned.choice.highly_relevant, tuned.choice.reference):
                known = cut.distance if math.isfinite(cut.distance) else None
                values[f"cut_distance[{cut.level.name}]"] = {"value": known}
        for name, value in values.items():
            found.setdefault(name, {})[tuned.encoder] = value
    if len(tuning.tuned) > 1:
        return found
    return {name: value for name, by in found.items() for value in by.values()}


def fragment(tuned: Tuned, name: str) -> str:
    """The yml to paste. Raises `ConfigError` where no settings say what the cuts say."""
    if tuned.chosen is None or tuned.triple is None:
        raise ConfigError(f"{name}, {tuned.encoder}: no settings are recommended")
    return yml_fragment(
        tuned.chosen, tuned.triple, tuned.ask.present, reasons=list(reasons(tuned, name))
    )


def certified_fragment(tuned: Tuned, name: str) -> str:
    """The yml of the certified pair. Raises `ConfigError` where there is none to write."""
    certified = tuned.certified
    if certified is None or certified.triple is None:
        raise ConfigError(f"{name}, {tuned.encoder}: no certified settings")
    return yml_fragment(
        certified.choice,
        certified.triple,
        tuned.ask.present,
        reasons=list(certified_reasons(tuned, name)),
    )


def certified_reasons(tuned: Tuned, name: str) -> Iterator[str]:
    """What the certified pair may claim, and what it costs: bounds, as rates would flatter it."""
    certificate = tuned.certificate
    yield f"{name}, encoder {tuned.encoder}, distances in {tuned.parts.reported.convention}"
    if certificate is None or certificate.cuts is None:
        return
    yield str(certificate)
    last = [step for step in certificate.steps if step.distance == certificate.cuts[0]]
    for step in last[:1]:
        yield (
            f"precision[HIGHLY_RELEVANT] at least {step.lower_bound:.3f} "
            f"({step.errors} errors in {step.n} of the confirming queries)"
        )
    if certificate.leak is not None:
        leak = certificate.leak
        yield f"leak_rate at most {leak.bound:.3f} ({leak.errors} of {leak.n} unanswerable queries)"
    if certificate.coverage_given_up is not None:
        yield f"coverage given up for the certificate: {certificate.coverage_given_up:.3f}"
    if tuned.topics is not None:
        yield from tuned.topics.lines()


def reasons(tuned: Tuned, name: str) -> Iterator[str]:
    """Why these settings, a line each: comments of the yml."""
    dev, test = tuned.parts.splits
    yield f"{name}, encoder {tuned.encoder}, distances in {tuned.parts.reported.convention}"
    yield f"best {name_of(tuned.ask.objective)} on {len(tuned.parts.chosen_on)} queries of {dev}"
    if tuned.certified is not None:
        yield f"the best on the labels that chose it, without a claim: see {CERTIFIED_YML}"
    if isinstance(tuned.held, HeldOut):
        yield f"held out ({test}, {tuned.held.n} queries): {tuned.held.told}"
        if tuned.chosen is not None and tuned.chosen.constants:
            yield "after: with the best cuts, before a cut that does not pay became a constant"
        yield _changed(tuned, "expected_cost")
        yield _changed(tuned, "leak_rate")
        yield _changed(tuned, "precision[HIGHLY_RELEVANT]")
    else:
        yield str(tuned.held)
    if tuned.stability is not None:
        yield f"{tuned.stability.highly_relevant} (distances; not a confidence interval)"
        yield f"{tuned.stability.reference} (distances; not a confidence interval)"
    yield from verdict_lines(tuned)


def verdict_lines(tuned: Tuned) -> Iterator[str]:
    """The verdicts that stand beside or in place of numbers, a line each."""
    if tuned.choice is not None:
        for level, why in tuned.choice.one_class.items():
            yield f"one_class: {level.name}: {why}"
    if isinstance(tuned.held, HeldOut):
        for pays in tuned.held.pays.values():
            if pays.pays is not True:
                yield f"no_cut_pays: {pays}" if pays.pays is False else str(pays)
    yield from (f"promise: {line}" for line in broken_promises(tuned.held, tuned.ask))
    yield from (f"too_few_labels: {few}" for few in tuned.too_few)
    yield from (f"separate_cuts: {part}" for part in (*tuned.separate, *tuned.not_separated))
    yield from (f"hinges on {_assumed(line)}" for line in tuned.hinges)
    if tuned.rule != tuned.ask.present_rule:
        yield (
            "precise-requires: unique costs more beyond doubt on the labels that choose "
            f"(unique-and-nearest less unique: {told(tuned.rules.chosen.difference)}, out of "
            f"fold); {tuned.rule} is used"
        )


def _assumed(line: str) -> str:
    """`share_doubled: REFERENCE at distance 1.1` with its first word spelled out."""
    name, _, rest = line.partition(": ")
    return f"{ASSUMED.get(name, name)}: {rest}, outside the stability range"


def settings_after(tuned: Tuned, text: str) -> Normalization:
    """The present settings with a fragment pasted in; its comments change nothing."""
    pasted = yaml.safe_load(text)["retrieval"]["normalization"]
    present = tuned.ask.present.model_dump(by_alias=True)
    return Normalization.model_validate(present | pasted)


def _save_one(tuned: Tuned, name: str, folder: Path) -> list[Path]:
    paths = [folder / "doubtful.csv"]
    tuned.doubtful.to_csv(paths[0], index=False)
    if tuned.recommended:
        paths += _save_settings(tuned, fragment(tuned, name), folder / YML, folder / SQL)
    if tuned.recommended and tuned.certified is not None:
        text = certified_fragment(tuned, name)
        paths += _save_settings(tuned, text, folder / CERTIFIED_YML, folder / CERTIFIED_SQL)
    return paths


def _save_settings(tuned: Tuned, text: str, yml: Path, sql: Path) -> list[Path]:
    level = levels(tuned.parts.reported, settings_after(tuned, text), tuned.rule)
    yml.write_text(text, encoding="utf-8")
    sql.write_text(check_sql(level), encoding="utf-8")
    return [yml, sql]


def _changed(tuned: Tuned, name: str) -> str:
    return f"{name}: {told(tuned.before[name])} before, {told(tuned.after[name])} after"


def told(rate: Rate | None) -> str:
    """A rate with its interval and n, or why there is none."""
    if rate is None or rate.value is None:
        return f"- ({rate.note or 'nothing to count'})" if rate is not None else "-"
    if rate.low is None or rate.high is None:
        return f"{rate.value:.3f} n={rate.n} ({rate.note or 'no interval'})"
    about = "≈" if "approximate" in rate.note else ""
    return f"{rate.value:.3f} {about}[{rate.low:.3f}, {rate.high:.3f}] n={rate.n}"
