"""What the runs of a sweep left behind: status and metrics as JSON, and the one table of all."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from kbeval.errors import RunError
from kbeval.retrieval.saved import write_atomically
from kbeval.studies.manifest import read_json
from kbeval.studies.parameters import notebook_cells

OUT = "out"  # the parameter by which a notebook learns where to write
STATUS = "status.json"
METRICS = ("evaluation.json", "metrics.json")  # of two with one name the last file's counts
AROUND = ("status", "seconds", "error", "folder")  # columns beside parameters and metrics
NOT_VALID = "not valid"  # reference above highly-relevant: never run
OUTDATED = "outdated"  # finished, but on data or versions that are others now


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One combination of a sweep and the folder of its run; none if it is not valid.

    `inputs` is what it would rest on if it ran now: see `sweep_inputs`.
    """

    parameters: Mapping[str, object]
    folder: Path | None
    inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def state(self) -> dict[str, Any]:
        """What status.json says; `not valid` or `missing` where there is none to read.

        A run that ended well on other inputs is `outdated`, its metrics are not those of now;
        `changed` then names the inputs.
        """
        if self.folder is None:
            return {"status": NOT_VALID}
        try:
            state = read_json(self.folder / STATUS)
        except RunError:
            return {"status": "missing"}
        before = state.get("inputs", {})
        names = dict.fromkeys([*self.inputs, *before])
        changed = [name for name in names if before.get(name) != self.inputs.get(name)]
        if changed and state.get("status") == "ok":
            state.update(status=OUTDATED, changed=changed)
        return {"status": "missing", **state}

    @property
    def finished(self) -> bool:
        """Whether it ended well, with these parameters and on these inputs."""
        state = self.state
        return (
            state["status"] == "ok"
            and state.get("parameters") == self.parameters
            and self.folder is not None
            and (self.folder / str(state.get("file"))).is_file()
        )


def run_folder(parent: Path, parameters: Mapping[str, object]) -> Path:
    """A folder named for its parameters: readable, and exact by the hash behind it."""
    text = json.dumps(parameters, sort_keys=True, ensure_ascii=False)
    parts = (f"{name}={_brief(value)}" for name, value in parameters.items())
    readable = re.sub(r"[^\w.=+-]+", "-", ",".join(parts))[:48].strip("-.") or "run"
    return parent / f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def notebook_fingerprint(path: Path) -> str:
    """A hash of what a notebook's cells say; outputs and metadata do not count."""
    sources = [[cell["cell_type"], cell["source"]] for cell in notebook_cells(path)]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()[:16]


def metrics_in(folder: Path) -> dict[str, float]:
    """The numbers in metrics.json and evaluation.json of a folder, by name.

    A rate counts by its `value`, a mapping of rates as `name[key]`. What is no finite number is
    left out. Raises `RunError` for a file that is no JSON object.
    """
    found: dict[str, float] = {}
    for name in METRICS:
        if (folder / name).is_file():
            found.update(_numbers(read_json(folder / name)))
    return found


def sweep_table(runs: Sequence[SweepRun]) -> pd.DataFrame:
    """One row a combination: parameters, status, seconds, metrics, error, folder.

    Only a run that is `ok` has metrics; those of a failed one stay in its status.json. A metric
    named like a parameter or another column gets a `metric: ` in front.
    """
    states = [run.state for run in runs]
    metrics = [state.get("metrics", {}) if state["status"] == "ok" else {} for state in states]
    taken = {*AROUND, *(name for run in runs for name in run.parameters)}
    rows = [
        {
            **{name: _cell(value) for name, value in run.parameters.items()},
            "status": state["status"],
            "seconds": state.get("seconds"),
            **{_column(name, taken): value for name, value in values.items()},
            "error": state.get("error"),
            "folder": run.folder.name if run.folder else None,
        }
        for run, state, values in zip(runs, states, metrics, strict=True)
    ]
    first = list(runs[0].parameters) if runs else []
    names = dict.fromkeys(name for row in rows for name in row)
    measured = [name for name in names if name not in taken]
    return pd.DataFrame(rows, columns=[*first, "status", "seconds", *measured, "error", "folder"])


def write_table(table: pd.DataFrame, folder: Path) -> list[str]:
    """Write sweep.csv, and sweep.parquet if pyarrow is there; returns a line on each."""
    path = folder / "sweep.csv"
    write_atomically(path, table.to_csv(index=False, lineterminator="\n").encode("utf-8"))
    lines = [f"table: {path}"]
    if importlib.util.find_spec("pyarrow") is None:
        return [*lines, "no sweep.parquet: pyarrow is not installed (pip install pyarrow)"]
    table.to_parquet(folder / "sweep.parquet", index=False)
    return [*lines, f"table: {folder / 'sweep.parquet'}"]


def _numbers(content: Mapping[str, Any]) -> Iterable[tuple[str, float]]:
    for name, item in content.items():
        if isinstance(item, Mapping) and "value" not in item:
            inner = {key: _number(rate) for key, rate in item.items() if isinstance(rate, Mapping)}
            yield from ((f"{name}[{key}]", v) for key, v in inner.items() if v is not None)
        elif (value := _number(item)) is not None:
            yield name, value


def _number(item: object) -> float | None:
    """A finite number, given as such or as the value of a rate."""
    value = item.get("value") if isinstance(item, Mapping) else item
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def _column(name: str, taken: set[str]) -> str:
    return f"metric: {name}" if name in taken else name


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value


def _brief(value: object) -> str:
    return Path(value).name if isinstance(value, str) and "/" in value else str(_cell(value))
