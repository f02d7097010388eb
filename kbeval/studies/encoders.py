"""Compare encoders on one labelled set: the way in, and the files it leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbeval.config import Settings
from kbeval.corpus.encoders import Encoder
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import ConfigError
from kbeval.studies.encoder_charts import coverage_chart, distances_by_encoder
from kbeval.studies.encoder_tables import (
    cost_table,
    coverage_table,
    disagreements,
    gap_table,
    pair_table,
)
from kbeval.studies.tuning import tune_set
from kbeval.studies.tuning_compare import Comparison
from kbeval.studies.tuning_result import Tuning


def compare_set(
    dataset: str | Path,
    *,
    encoders: Sequence[str | Encoder],
    corpus: str | Path | None = None,
    split: str | None = None,
    objective: str | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    cache: EmbeddingCache | None = None,
    seed: int = 0,
) -> Tuning:
    """Tune each encoder by itself under one objective and compare them (method.md 9).

    As `tune_set`; raises `ConfigError` for fewer than two encoders, before anything is embedded.
    """
    if isinstance(encoders, str) or len(encoders) < 2:
        raise ConfigError(f"encoders: got {encoders!r}; a list of at least two is expected")
    return tune_set(
        dataset,
        encoders=encoders,
        corpus=corpus,
        split=split,
        objective=objective,
        settings=settings,
        cache=cache,
        seed=seed,
    )


def save_comparison(tuning: Tuning, folder: str | Path) -> list[Path]:
    """Write the comparison as JSON, tables and pictures. Raises `ConfigError` without one."""
    comparison = comparison_of(tuning)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    tables = {
        "encoders": cost_table(comparison),
        "pairs": pair_table(comparison),
        "coverage": coverage_table(comparison),
        "coverage_differences": gap_table(comparison),
        "disagreements": disagreements(tuning),
    }
    written = [target / "comparison.json"]
    text = json.dumps(comparison.to_json(), ensure_ascii=False, indent=1, allow_nan=False)
    written[0].write_text(text + "\n", encoding="utf-8")
    for name, table in tables.items():
        written.append(target / f"{name}.csv")
        table.to_csv(written[-1], index=False)
    figures = {
        "coverage": coverage_chart(tables["coverage"]),
        "distances": distances_by_encoder(tuning),
    }
    for name, figure in figures.items():
        written.append(target / f"{name}.png")
        figure.savefig(written[-1])
    return written


def comparison_of(tuning: Tuning) -> Comparison:
    """The comparison of a tuning. Raises `ConfigError` where one encoder alone was tuned."""
    if tuning.comparison is None:
        raise ConfigError(
            f"{tuning.name}: {tuning.tuned[0].encoder} alone was tuned; two encoders or more are "
            "expected to compare"
        )
    return tuning.comparison
