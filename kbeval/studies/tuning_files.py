"""What a tuning leaves behind: settings to paste, a check in SQL, all its numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import yaml

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.measures import levels
from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.tuning.cuts import name_of
from kbeval.evaluation.tuning.export import check_sql, yml_fragment
from kbeval.evaluation.tuning.held_out import HeldOut
from kbeval.studies.tuning_result import Tuned, Tuning, own_folder

YML, SQL = "recommended.yml", "check.sql"


def save_tuning(tuning: Tuning, folder: str | Path) -> list[Path]:
    """Write tuning.json; per encoder doubtful.csv and, where recommended, the yml and the SQL.

    Several encoders get a folder each. Where nothing is recommended no settings are written.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    text = json.dumps(tuning.to_json(), ensure_ascii=False, indent=1, allow_nan=False)
    written = [target / "tuning.json"]
    written[0].write_text(text + "\n", encoding="utf-8")
    for tuned in tuning.tuned:
        own = own_folder(target, tuned.encoder, among=len(tuning.tuned))
        own.mkdir(exist_ok=True)
        written += _save_one(tuned, tuning.name, own)
    return written


def fragment(tuned: Tuned, name: str) -> str:
    """The yml to paste. Raises `ConfigError` where no settings say what the cuts say."""
    if tuned.chosen is None or tuned.triple is None:
        raise ConfigError(f"{name}, {tuned.encoder}: no settings are recommended")
    return yml_fragment(
        tuned.chosen, tuned.triple, tuned.ask.present, reasons=list(reasons(tuned, name))
    )


def reasons(tuned: Tuned, name: str) -> Iterator[str]:
    """Why these settings, a line each: comments of the yml."""
    dev, test = tuned.parts.splits
    yield f"{name}, encoder {tuned.encoder}, distances in {tuned.parts.reported.convention}"
    yield f"best {name_of(tuned.ask.objective)} on {len(tuned.parts.chosen_on)} queries of {dev}"
    if isinstance(tuned.held, HeldOut):
        yield f"held out ({test}, {tuned.held.n} queries): {tuned.held.told}"
        yield _changed(tuned, "expected_cost")
        yield _changed(tuned, "leak_rate")
        yield _changed(tuned, "precision[HIGHLY_RELEVANT]")
    else:
        yield str(tuned.held)
    if tuned.certificate is not None:
        yield str(tuned.certificate)
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
    yield from (f"too_few_labels: {few}" for few in tuned.too_few)
    yield from (f"separate_cuts: {part}" for part in (*tuned.separate, *tuned.not_separated))
    yield from (f"hinges on {line}" for line in tuned.hinges)
    if tuned.rules.unique_is_worse:
        kept = "the present rule is kept, as labels that confirm may choose nothing"
        written = tuned.rule == "unique-and-nearest"
        yield (
            "precise-requires: unique costs more beyond doubt on queries held out "
            f"(unique-and-nearest less unique: {tuned.rules.difference}); "
            + ("unique-and-nearest is written" if written else kept)
        )


def settings_after(tuned: Tuned, name: str) -> Normalization:
    """The present settings with the fragment pasted in; its comments change nothing."""
    pasted = yaml.safe_load(fragment(tuned, name))["retrieval"]["normalization"]
    present = tuned.ask.present.model_dump(by_alias=True)
    return Normalization.model_validate(present | pasted)


def _save_one(tuned: Tuned, name: str, folder: Path) -> list[Path]:
    paths = [folder / "doubtful.csv"]
    tuned.doubtful.to_csv(paths[0], index=False)
    if tuned.recommended:
        level = levels(tuned.parts.reported, settings_after(tuned, name), tuned.rule)
        for file, text in ((YML, fragment(tuned, name)), (SQL, check_sql(level))):
            (folder / file).write_text(text, encoding="utf-8")
            paths.append(folder / file)
    return paths


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
