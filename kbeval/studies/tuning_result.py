"""The answer of a tuning: a `Tuned` for one encoder, a `Tuning` for all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.tuning.calibration import Calibration, NotCalibrated
from kbeval.evaluation.tuning.certificate import Certificate
from kbeval.evaluation.tuning.constraints import Constraints, Infeasible
from kbeval.evaluation.tuning.cuts import Choice, name_of
from kbeval.evaluation.tuning.exact_first import FirstPlace
from kbeval.evaluation.tuning.export import Triple
from kbeval.evaluation.tuning.gains import SeparateCuts
from kbeval.evaluation.tuning.held_out import HeldOut, NotHeldOut
from kbeval.evaluation.tuning.ladder import PreciseRule
from kbeval.evaluation.tuning.plan import TooFewLabels
from kbeval.evaluation.tuning.stability import Stability
from kbeval.records import Level
from kbeval.studies.tuning_compare import Comparison
from kbeval.studies.tuning_effects import PreciseRules, WrongBelief
from kbeval.studies.tuning_parts import Ask, Parts
from kbeval.studies.tuning_topics import Topics


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """A pair of cuts, and the ways to write it as settings."""

    choice: Choice
    triples: tuple[Triple, ...]

    @property
    def triple(self) -> Triple | None:
        """The settings to paste: the first way that says the same."""
        return next((triple for triple in self.triples if triple.equivalent), None)


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """The answer for one encoder; `choice` is None where no pair keeps the constraints.

    `chosen` is what is recommended: the choice, with a constant in place of a cut that does not
    pay. `certified` are the certified cuts, where these were asked and found. `before` are the
    present settings' rates on the reported queries, `gain` the paired saving per query from there
    to the best cuts, held out.
    """

    encoder: str
    header: Mapping[str, Any]
    ask: Ask
    parts: Parts
    rule: PreciseRule
    held: HeldOut | Infeasible | NotHeldOut
    choice: Choice | None
    chosen: Choice | None
    stability: Stability | None
    hinges: tuple[str, ...]
    before: Mapping[str, Rate]
    gain: Rate | None
    rules: PreciseRules
    first: FirstPlace
    certificate: Certificate | None
    calibration: Calibration | NotCalibrated
    separate: tuple[SeparateCuts, ...]
    not_separated: tuple[str, ...]  # why something was not tried
    too_few: tuple[TooFewLabels, ...]
    doubtful: pd.DataFrame
    triples: tuple[Triple, ...]
    certified: Written | None
    topics: Topics | None
    beliefs: tuple[WrongBelief, ...]

    @property
    def after(self) -> Mapping[str, Rate]:
        """The chosen cuts' rates on queries held out; empty where nothing could be held out."""
        return self.held.rates if isinstance(self.held, HeldOut) else {}

    @property
    def triple(self) -> Triple | None:
        """The settings to paste: the first way to write the cuts that says the same."""
        return None if self.chosen is None else Written(self.chosen, self.triples).triple

    @property
    def ungrounded(self) -> frozenset[Level]:
        """The levels for which no cut can be chosen, or none pays; under constraints the former."""
        pays = self.held.pays if isinstance(self.held, HeldOut) else {}
        asked = isinstance(self.ask.objective, Constraints)
        unpaid = [level for level, found in pays.items() if found.pays is False and not asked]
        return frozenset([*unpaid, *(self.chosen.one_class if self.chosen else ())])

    @property
    def refused(self) -> str:
        """Why no settings are recommended; empty where they are."""
        if self.chosen is None:
            return "no pair of cuts keeps what is asked"
        if self.certificate is not None and not self.certificate.certified:
            return "the certificate that was asked for is not given"
        if self.triple is None:
            return "no settings say exactly what the cuts say"
        if self.certified is not None and self.certified.triple is None:
            return "no settings say exactly what the certified cuts say"
        if len(self.ungrounded) == 2 and self.rule == self.ask.present_rule:
            return "these labels give no ground for either cut"
        return ""

    @property
    def recommended(self) -> bool:
        """There are settings to paste, and the certificate that was asked for was given."""
        return not self.refused

    def to_json(self) -> dict[str, Any]:
        """Plain values for `tune --json`."""
        limit = self.ask.present.max_l2_distance
        held = self.held
        return {
            **self.header,
            "precise_requires": self.rule,
            "tuned_on": {"split": self.parts.splits[0], "n": len(self.parts.chosen_on)},
            "reported_on": {"split": self.parts.splits[1], "n": len(self.parts.reported)},
            "grouped_by": self.parts.grouped_by if self.parts.folded else None,
            "held_out": held.to_json(limit) if isinstance(held, HeldOut) else held.to_json(),
            "recommended": self.recommended,
            "refused": self.refused,
            "choice": None if self.choice is None else self.choice.to_json(limit),
            "chosen": None if self.chosen is None else self.chosen.to_json(limit),
            "certified": None if self.certificate is None else self.certificate.to_json(),
            "triples": [triple.to_json() for triple in self.triples],
            "certified_triples": []
            if self.certified is None
            else [triple.to_json() for triple in self.certified.triples],
            "topics": None if self.topics is None else self.topics.to_json(),
            "before": {name: rate.to_json() for name, rate in self.before.items()},
            "after": {name: rate.to_json() for name, rate in self.after.items()},
            "gain": None if self.gain is None else self.gain.to_json(),
            "stability": None if self.stability is None else self.stability.to_json(),
            "hinges_on": list(self.hinges),
            "precise_rules": self.rules.to_json(),
            "first_place": self.first.to_json(),
            "calibration": self.calibration.to_json(),
            "separate_cuts": [
                part.to_json() | {"advised": bool(part.advised)} for part in self.separate
            ],
            "not_separated": list(self.not_separated),
            "too_few_labels": [few.to_json() for few in self.too_few],
            "doubtful": self.doubtful.to_dict("records"),
            "wrong_convention": [belief.to_json() for belief in self.beliefs],
        }


@dataclass(frozen=True, slots=True, eq=False)
class Tuning:
    """The answers for every encoder, and how they compare at cuts of their own."""

    name: str
    ask: Ask
    tuned: tuple[Tuned, ...]
    comparison: Comparison | None

    def to_json(self) -> dict[str, Any]:
        """Plain values for `tune --json`."""
        return {
            "set": self.name,
            "objective": name_of(self.ask.objective),
            "costs": self.ask.costs.to_json(),
            "break_evens": [str(line) for line in self.ask.costs.break_evens()],
            "seed": self.ask.seed,
            "settings": self.ask.settings.to_yml(),
            "encoders": {tuned.encoder: tuned.to_json() for tuned in self.tuned},
            "comparison": None if self.comparison is None else self.comparison.to_json(),
        }


def own_folder(folder: str | Path, encoder: str, *, among: int) -> Path:
    """Where one encoder's files are: the folder, or one of its own beside other encoders'."""
    return Path(folder) if among == 1 else Path(folder) / slug(encoder)


def slug(text: str) -> str:
    """The text as a name for a folder."""
    return re.sub(r"[^\w.]+", "-", text).strip("-.")
