"""The grid of a sweep: values as typed on a command line, decimal-exact, in every combination."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from kbeval.errors import ConfigError
from kbeval.studies.parameters import (
    Parameter,
    checked_parameters,
    notebook_parameters,
    parse_assignments,
)

MOST = 10_000  # runs of one sweep
ORDERED = (  # parameters of which the first must not be above the second (TH-03)
    ("reference", "highly_relevant"),
    ("reference_threshold", "highly_relevant_threshold"),
)
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"\s*({_NUMBER}):({_NUMBER}):({_NUMBER})\s*")


def parse_grid(
    notebook: str | Path, assignments: Sequence[str], *, base: str | Path | None = None
) -> dict[str, list[object]]:
    """Read `name=a,b,c` and `name=start:stop:step` as values of the notebook's declared types.

    A range is for numbers and holds its stop if the steps meet it. Values of a list parameter
    are parted by `;`, a mapping is one value. A backslash keeps a `,` or `;` in a value, blanks
    around a value are dropped. Relative paths are made absolute against `base`
    (default: the working directory). Raises `ConfigError` for whatever `checked_parameters`
    refuses, for an empty or endless range, an empty value between commas, or a value twice.
    """
    declared = notebook_parameters(notebook)
    grid: dict[str, list[object]] = {}
    for name, text in parse_assignments(assignments).items():
        if name not in declared:
            checked_parameters(notebook, {name: text})  # says which ones there are
        texts = _texts(declared[name], text)
        grid[name] = checked_values(notebook, name, texts, base=base)
    return grid


def checked_values(
    notebook: str | Path, name: str, values: Sequence[object], *, base: str | Path | None = None
) -> list[object]:
    """Each value as the notebook declares it. Raises `ConfigError`, also for none or twins."""
    checked = [checked_parameters(notebook, {name: value}, base=base)[name] for value in values]
    if not checked:
        raise ConfigError(f"parameter {name!r} got no value; one or more are expected")
    for place, value in enumerate(checked):
        if value in checked[:place]:
            raise ConfigError(f"parameter {name!r} got {value!r} twice; once is allowed")
    return checked


def split_values(text: str, mark: str = ",") -> list[str]:
    r"""What stands between the marks, without blanks around it; `\` before a mark keeps it.

    >>> split_values(r"documents, documents horizon=5t,a\, b")
    ['documents', 'documents horizon=5t', 'a, b']
    """
    parts = re.split(rf"(?<!\\){re.escape(mark)}", text)
    return [part.replace(f"\\{mark}", mark).strip() for part in parts]


def decimal_range(start: str, stop: str, step: str) -> list[str]:
    """The decimals from start by step up to stop, stop included where a step meets it (TH-01).

    Raises `ConfigError` for a step of 0, one that leads away from stop, or too many values.

    >>> decimal_range("0.5", "0.7", "0.05")
    ['0.50', '0.55', '0.60', '0.65', '0.70']
    >>> decimal_range("3", "1", "-1")
    ['3', '2', '1']
    """
    first, last, by = Decimal(start), Decimal(stop), Decimal(step)
    if by == 0 or (last - first) / by < 0:
        raise ConfigError(
            f"range {start}:{stop}:{step} has step {step}; one that leads from {start} to {stop} "
            "is expected"
        )
    count = int((last - first) / by) + 1
    if count > MOST:
        raise ConfigError(f"range {start}:{stop}:{step} has {count} values; {MOST} are allowed")
    return [format(first + i * by, "f") for i in range(count)]


def combinations(grid: Mapping[str, Sequence[object]]) -> list[dict[str, object]]:
    """Every combination, the last parameter changing fastest. Raises `ConfigError` beyond 10,000.

    >>> combinations({"a": [1, 2], "b": ["x"]})
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    count = 1
    for values in grid.values():
        count *= len(values)
    if count > MOST:
        raise ConfigError(f"the grid has {count} combinations; at most {MOST} are allowed")
    return [dict(zip(grid, row, strict=True)) for row in itertools.product(*grid.values())]


def is_valid(combination: Mapping[str, object]) -> bool:
    """False if reference is above highly-relevant and both are in the grid (TH-03).

    >>> is_valid({"reference": 0.8, "highly_relevant": 0.6}), is_valid({"reference": 0.8})
    (False, True)
    """
    for lower, upper in ORDERED:
        low, high = combination.get(lower), combination.get(upper)
        if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low > high:
            return False
    return True


def _texts(parameter: Parameter, text: str) -> Sequence[object]:
    """The values in what was typed, by the declared type; those of a list as lists of texts."""
    kind, name = parameter.type, parameter.name
    if kind == "dict":
        return [text]
    is_list = kind.startswith("list")
    parts = split_values(text, ";" if is_list else ",")
    if len(parts) > 1 and not all(parts):
        raise ConfigError(f"parameter {name!r} got {text!r}; an empty value is not expected")
    if is_list:
        return [split_values(part) if part else [] for part in parts]
    if kind == "any" and any(_RANGE.fullmatch(part) for part in parts):
        raise ConfigError(
            f"parameter {name!r} got the range {text!r} but declares no type; "
            "a range is for int and float, as in `name: float | None = None`"
        )
    if kind not in ("int", "float"):
        return parts
    return [value for part in parts for value in _numbers(name, part)]


def _numbers(name: str, part: str) -> list[str]:
    match = _RANGE.fullmatch(part)
    if match:
        return decimal_range(*match.groups())
    if ":" in part:
        raise ConfigError(
            f"parameter {name!r} got {part!r}; a number or start:stop:step is expected"
        )
    return [part]
