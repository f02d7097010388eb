"""What a verdict costs when it is right or wrong, in needless look-ups (method.md 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kbeval.config import read_yml
from kbeval.errors import ConfigError
from kbeval.evaluation.judge import Worth
from kbeval.records import Level

Row = tuple[float, float, float, float]  # answers, related, wrong, nothing

COLUMNS = (Worth.ANSWERS, Worth.RELATED, Worth.WRONG, Worth.NOTHING)
DECIMALS = 6  # a cost with more is refused, so that sums stay exact


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The share that must answer for one level to pay instead of the next lower one.

    `rest` is what the others are worth, `hit` what the `share` is worth. `share` is None where
    it never pays, 0 where it always does.
    """

    level: str
    instead_of: str
    hit: str
    rest: str
    gain: Fraction  # of each hit, in look-ups
    loss: Fraction  # of each of the rest, in look-ups

    @property
    def share(self) -> Fraction | None:
        """Gain and loss balance where hits are loss / (gain + loss) of all."""
        if self.loss <= 0:
            return Fraction(0) if self.gain >= 0 else None
        return self.loss / (self.gain + self.loss) if self.gain > 0 else None

    def __str__(self) -> str:
        """The consequence in words, to be argued about."""
        if self.share is None:
            pays = f"never pays where the rest is {self.rest}"
        elif self.share == 0:
            pays = f"always pays where the rest is {self.rest}"
        else:
            share = f"{self.share.numerator} in {self.share.denominator}"
            pays = f"pays when at least {share} are {self.hit} and the rest is {self.rest}"
        balance = f"each gain {float(self.gain):g}, each loss {float(self.loss):g}"
        return f"{self.level} instead of {self.instead_of} {pays} ({balance})"


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of each level by the worth of its primary; the defaults are method.md 4's.

    Raises `ConfigError` for a cost that is negative, not finite or finer than 6 decimals, for
    a closed level that is cheaper on wrong than REFERENCE, and for a table in which handing out
    nothing is cheapest for `answers`.
    """

    precise: Row = (0, 5, 12, 12)
    highly_relevant: Row = (0, 4, 11, 11)
    reference: Row = (1, 0, 2, 2)
    none: Row = (5, 2, 1, 0)

    def __post_init__(self) -> None:
        for level in Level:
            for worth in Worth:
                _check_cost(self.cost(level, worth), f"costs.{_name(level)}.{worth.name.lower()}")
        for level in (Level.PRECISE, Level.HIGHLY_RELEVANT):
            closed, open_ = (self.cost(x, Worth.WRONG) for x in (level, Level.REFERENCE))
            if closed < open_:
                raise ConfigError(
                    f"costs.{_name(level)}.wrong: got {closed}, which is cheaper than REFERENCE's "
                    f"{open_}; a closed level must cost at least that where it is wrong"
                )
        withheld = self.cost(Level.NOT_FOUND, Worth.ANSWERS)
        least = min(self.cost(x, Worth.ANSWERS) for x in Level if x != Level.NOT_FOUND)
        if withheld <= least:
            raise ConfigError(
                f"costs.none.answers: got {withheld}, but handing out an answer costs {least}; "
                "withholding it must cost more than the cheapest level"
            )

    @classmethod
    def from_mapping(cls, table: Mapping[str, Any]) -> Self:
        """Costs from a yml mapping: level -> worth -> cost; what is not named keeps its default.

        >>> Costs.from_mapping({"none": {"answers": 9}}).none
        (9, 2, 1, 0)
        """
        default = cls()
        rows = {field: list(getattr(default, field)) for field in _FIELDS.values()}
        for key, row in table.items():
            field = _FIELDS.get("none" if key == "NOT_FOUND" else key)
            if field is None:
                raise _unknown("costs", key, _FIELDS)
            if not isinstance(row, Mapping):
                raise ConfigError(f"costs.{key}: got {row!r}; a mapping worth -> cost is expected")
            for worth, value in row.items():
                if worth not in _WORTHS:
                    raise _unknown(f"costs.{key}", worth, _WORTHS)
                rows[field][_WORTHS.index(worth)] = value
        return cls(**{field: (*row,) for field, row in rows.items()})

    def cost(self, level: Level, worth: Worth) -> float:
        """The cost of one query graded `level` whose primary is of this worth."""
        row: Row = getattr(self, _FIELDS[_name(level)])
        return row[COLUMNS.index(worth)]

    @property
    def scale(self) -> int:
        """What the integers of `scaled` are divided by to be look-ups again."""
        costs = [_exact(self.cost(level, worth)) for level in Level for worth in Worth]
        return math.lcm(*(cost.denominator for cost in costs))

    def scaled(self) -> NDArray[np.int64]:
        """Integer costs `[level, worth]` of shape (4, 4), so that equal totals are equal.

        >>> int(Costs().scaled()[Level.PRECISE, Worth.WRONG]), Costs().scale
        (12, 1)
        """
        scale = self.scale
        rows = [[int(_exact(self.cost(lv, w)) * scale) for w in Worth] for lv in Level]
        return np.array(rows, dtype=np.int64)

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest cost in the table: no mean lies outside."""
        scaled = self.scaled()
        return float(scaled.min()) / self.scale, float(scaled.max()) / self.scale

    def to_json(self) -> dict[str, dict[str, float]]:
        """Each level to worth to cost, with the keys of the yml."""
        return {
            name: dict(zip(_WORTHS, getattr(self, field), strict=True))
            for name, field in _FIELDS.items()
        }

    def break_evens(self) -> tuple[BreakEven, ...]:
        """What this table says about when a level pays; the four consequences to argue about.

        >>> [str(b.share) for b in Costs().break_evens()]
        ['9/10', '4/5', '1/5', '1/3']
        """
        high, reference, none = Level.HIGHLY_RELEVANT, Level.REFERENCE, Level.NOT_FOUND
        return tuple(
            BreakEven(
                _name(level),
                _name(lower),
                Worth.ANSWERS.name.lower(),
                rest.name.lower(),
                _exact(self.cost(lower, Worth.ANSWERS)) - _exact(self.cost(level, Worth.ANSWERS)),
                _exact(self.cost(level, rest)) - _exact(self.cost(lower, rest)),
            )
            for level, lower, rest in (
                (high, reference, Worth.WRONG),
                (high, reference, Worth.RELATED),
                (reference, none, Worth.WRONG),
                (reference, none, Worth.NOTHING),
            )
        )


def load_costs(source: str | Path | Mapping[str, Any] | None = None) -> Costs:
    """Costs from a yml file (the table itself, or under the key `costs`) or a mapping.

    None gives the defaults. Raises `ConfigError` naming the file, the key and what is allowed.
    """
    if source is None:
        return Costs()
    if isinstance(source, Mapping):
        return Costs.from_mapping(source)
    table = read_yml(Path(source))
    inner = table.get("costs", table) if len(table) == 1 else table
    if not isinstance(inner, Mapping):
        raise ConfigError(f"{source}: costs: got {inner!r}; a mapping level -> worth is expected")
    try:
        return Costs.from_mapping(inner)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


_FIELDS = {
    "PRECISE": "precise",
    "HIGHLY_RELEVANT": "highly_relevant",
    "REFERENCE": "reference",
    "none": "none",
}
_WORTHS = [worth.name.lower() for worth in COLUMNS]


def _name(level: Level) -> str:
    return "none" if level == Level.NOT_FOUND else level.name


def _exact(cost: float) -> Fraction:
    return Fraction(str(cost))


def _check_cost(cost: object, where: str) -> None:
    number = isinstance(cost, (int, float)) and not isinstance(cost, bool)
    if not (number and math.isfinite(cost) and cost >= 0):  # type: ignore[arg-type, operator]
        raise ConfigError(f"{where}: got {cost!r}; a finite number from 0 is expected")
    if (10**DECIMALS * _exact(cost)).denominator != 1:  # type: ignore[arg-type]
        raise ConfigError(f"{where}: got {cost!r}; at most {DECIMALS} decimals are expected")


def _unknown(where: str, key: object, known: Mapping[str, str] | list[str]) -> ConfigError:
    return ConfigError(f"{where}: unknown key {key!r}; known keys are {', '.join(known)}")
