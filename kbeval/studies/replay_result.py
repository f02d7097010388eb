"""The result of a replay: its numbers, its tables, its answer, and the files they are kept in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from kbeval.evaluation.ledger.answer import Answer
from kbeval.evaluation.ledger.ledger import Ledger
from kbeval.evaluation.ledger.sentences import net_sentence
from kbeval.evaluation.recorded.conventions import ConventionGuess
from kbeval.evaluation.recorded.repeats import Repeats
from kbeval.evaluation.replaying.obedience import ObedienceCurve
from kbeval.evaluation.replaying.policies import NO_MEMORY
from kbeval.records import Locale
from kbeval.studies.replay_charts import saved_against_hidden
from kbeval.studies.replay_kept import KeptSession, most_different
from kbeval.studies.replay_opening import Opened
from kbeval.studies.replay_policies import compared, metrics, obedience_table
from kbeval.studies.replay_record import Record
from kbeval.studies.replay_session_charts import along_chart, obedience_chart, repeats_chart

REPORT, METRICS, ANSWER = "replay.json", "metrics.json", "answer.md"


@dataclass(frozen=True, slots=True, eq=False)
class ReplayResult:
    """What a replay found; turns are not among it, they are in turns.csv.

    `sessions` are the few that were kept: where policies differ most, and those asked for.
    `rows_saved` counts look-ups written to a database, None where none was named.
    """

    opened: Opened
    repeats: Repeats
    convention: ConventionGuess
    record: Record
    ledger: Ledger
    answer: Answer
    curves: Mapping[str, ObedienceCurve]  # by the policy whose executor obeys
    along: pd.DataFrame
    repeated_by_turn: pd.DataFrame
    repeated_by_domain: pd.DataFrame
    sessions: Mapping[str, KeptSession]
    rows_saved: int | None = None

    def headline(self) -> str:
        """What was replayed, and the plain answer."""
        return f"{self.opened.name}: {self.answer.text()}"

    def sentences(self, locale: Locale = "en") -> dict[str, str]:
        """The net statement of each policy that obeys nothing."""
        return {
            name: net_sentence(self.ledger, name, locale)
            for name, policy in self.ledger.policies.items()
            if name != NO_MEMORY and policy.obeys == "nothing"
        }

    def compared(self) -> pd.DataFrame:
        """A row a policy, those that can be compared."""
        return compared(self.ledger)

    def obedience(self) -> pd.DataFrame:
        """A row a policy that has an executor that obeys, and level of obedience."""
        return obedience_table(self.curves)

    def differences(self) -> pd.DataFrame:
        """A row a session, those where the policies differ most first."""
        return most_different(self.sessions)

    def session(self, session_id: str = "") -> KeptSession:
        """A session that was kept; by default the one where the policies differ most."""
        return self.sessions[session_id or next(iter(self.sessions))]

    def shown(self, query: str) -> str:
        """A query as it may be shown: itself, or its name where queries are hashed."""
        return self.opened.loaded.names.shown(query)

    def to_json(self) -> dict[str, Any]:
        """Everything but turns and sessions, under the names that the rest of kbeval uses."""
        return {
            "headline": self.headline(),
            **self.opened.to_json(),
            "record": self.record.to_json(),
            "recorded_convention": self.convention.to_json(),
            "repeats": self.repeats.to_json(),
            "ledger": self.ledger.to_json(),
            "obedience": {
                name: [point.to_json() for point in curve.points]
                for name, curve in self.curves.items()
            },
            "sentences": self.sentences(),
            "sentences_zh": self.sentences("zh"),
            "answer": self.answer.to_json(),
            "rows_saved": self.rows_saved,
        }

    def save(self, folder: str | Path) -> list[Path]:
        """Write replay.json, metrics.json, policies.csv, answer.md and the pictures."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        texts = {
            REPORT: json.dumps(self.to_json(), ensure_ascii=False, indent=1, allow_nan=False),
            METRICS: json.dumps(metrics(self.ledger), ensure_ascii=False, indent=1),
            ANSWER: self.markdown(),
        }
        for name, text in texts.items():
            (target / name).write_text(text.rstrip() + "\n", "utf-8", errors="backslashreplace")
        self.ledger.table().to_csv(target / "policies.csv", index=False)
        pictures = {
            "saved_against_hidden.png": saved_against_hidden(self.compared()),
            "along.png": along_chart(self.along),
            "repeats.png": repeats_chart(self.repeated_by_turn, self.repeated_by_domain),
        }
        if self.curves:
            pictures["obedience.png"] = obedience_chart(self.obedience())
        for name, figure in pictures.items():
            figure.savefig(target / name)
        return [target / name for name in (*texts, "policies.csv", *pictures)]

    def markdown(self) -> str:
        """The answer for a reader, in English and Chinese, with what to paste."""
        lines = [f"# {self.opened.name}: should the session memory be on?", "", self.answer.text()]
        if self.answer.yml:
            lines += ["", "```yaml", self.answer.yml.rstrip(), "```"]
        lines += ["", "![Saved against hidden](saved_against_hidden.png)", ""]
        lines += [f"- {sentence}" for sentence in self.sentences().values()]
        lines += ["", self.answer.text("zh"), ""]
        return "\n".join([*lines, *(f"- {sentence}" for sentence in self.sentences("zh").values())])
