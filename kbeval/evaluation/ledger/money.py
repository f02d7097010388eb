"""Tokens in money, at cached and at uncached prices side by side (method.md 12)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbeval.config import read_yml
from kbeval.errors import ConfigError
from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.totals import Totals

SHIPPED = Path(__file__).with_name("prices.yml")
KEYS = ("input", "cached-input", "currency", "source")
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """What a million input tokens of one model cost."""

    model: str
    input: float
    cached_input: float
    currency: str
    date: str  # on which the price was read
    source: str


@dataclass(frozen=True, slots=True)
class Money:
    """What a saving is worth with one model: two scenarios, never added.

    A saved token is paid once when it first comes and once for each later look-up that still
    carries it, there at the cached or at the full price.
    """

    price: Price
    later_cached: Rate  # per session, in the price's currency
    later_uncached: Rate

    def to_json(self) -> dict[str, Any]:
        """The price, and both scenarios per session."""
        return {
            "model": self.price.model,
            "currency": self.price.currency,
            "date": self.price.date,
            "input_per_million": self.price.input,
            "cached_input_per_million": self.price.cached_input,
            "later_cached": self.later_cached.to_json(),
            "later_uncached": self.later_uncached.to_json(),
        }


@dataclass(frozen=True, slots=True)
class MapLine:
    """The planner's knowledge map, per planner call: no part of a memory policy's saving."""

    token_count: int
    prices: tuple[Price, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Tokens of one call, and what they cost with each model."""
        return {
            "tokens_per_planner_call": self.token_count,
            "money_per_planner_call": [
                {
                    "model": price.model,
                    "currency": price.currency,
                    "cached": self.token_count * price.cached_input / MILLION,
                    "uncached": self.token_count * price.input / MILLION,
                }
                for price in self.prices
            ],
        }


def map_line(token_count: int, prices: tuple[Price, ...] = ()) -> MapLine:
    """The line of a map of `token_count` tokens. Raises `ConfigError` for a negative count."""
    if token_count < 0:
        raise ConfigError(f"tokens per planner call: got {token_count}; 0 or more is expected")
    return MapLine(token_count, prices)


def money_of(totals: Totals, price: Price) -> Money:
    """What the saving of a policy is worth per session."""
    first, cached = price.input / MILLION, price.cached_input / MILLION
    return Money(
        price,
        later_cached=totals.weighted({"saved": first, "saved_later": cached}),
        later_uncached=totals.weighted({"saved": first, "saved_later": first}),
    )


def load_prices(source: str | Path | Mapping[str, Any] | None = None) -> tuple[Price, ...]:
    """The prices of a yml file or a mapping with the keys of `prices.yml`; None: the shipped ones.

    `date` and `source` may stand once above all models or with one of them. Raises `ConfigError`
    naming the file, the key, the value found and what is allowed.

    >>> table = {"date": "2026-11-30", "models": {"m": {"input": 2, "cached-input": 0.5}}}
    >>> load_prices(table)[0].cached_input
    0.5
    """
    if isinstance(source, Mapping):
        return _prices(source)
    path = SHIPPED if source is None else Path(source)
    try:
        return _prices(read_yml(path))
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith(f"{path}") else f"{path}: {text}") from None


def _prices(table: Mapping[str, Any]) -> tuple[Price, ...]:
    unknown = [key for key in table if key not in ("models", "date", "source")]
    if unknown:
        raise ConfigError(f"unknown key {unknown[0]!r}; known keys are date, source, models")
    models = table.get("models")
    if not isinstance(models, Mapping) or not models:
        raise ConfigError(f"models: got {models!r}; a mapping model -> prices is expected")
    return tuple(_price(str(model), row, table) for model, row in models.items())


def _price(model: str, row: object, table: Mapping[str, Any]) -> Price:
    where = f"models.{model}"
    if not isinstance(row, Mapping):
        raise ConfigError(f"{where}: got {row!r}; a mapping with {', '.join(KEYS)} is expected")
    unknown = [key for key in row if key not in (*KEYS, "date")]
    if unknown:
        raise ConfigError(
            f"{where}: unknown key {unknown[0]!r}; known keys are {', '.join(KEYS)}, date"
        )
    date = row.get("date", table.get("date"))
    if not date:
        raise ConfigError(f"{where}: no date; say when the prices were read, as in 2026-11-30")
    full, cached = (_amount(row, key, where) for key in ("input", "cached-input"))
    if cached > full:
        raise ConfigError(f"{where}.cached-input: got {cached:g}, above the input price {full:g}")
    origin = row.get("source", table.get("source", ""))
    return Price(model, full, cached, str(row.get("currency", "USD")), str(date), str(origin))


def _amount(row: Mapping[str, Any], key: str, where: str) -> float:
    value = row.get(key)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and value >= 0):  # type: ignore[arg-type, operator]
        raise ConfigError(
            f"{where}.{key}: got {value!r}; the price of a million tokens is expected"
        )
    return float(value)  # type: ignore[arg-type]
