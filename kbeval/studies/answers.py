"""What a run answers: kbeval's three questions, each with the sentences its notebooks left."""

from __future__ import annotations

from pathlib import Path

from kbeval.studies.manifest import read_json

QUESTIONS = {  # the file a notebook leaves -> what it answers
    "evaluation": "Are the verdicts and hints true?",
    "tuning": "Which cuts fit this knowledge base and encoder, and how sure is that?",
    "replay": "What does the session memory save, and what does it hide?",
}


def answers(folder: Path) -> dict[str, tuple[str, ...]]:
    """Question -> sentences, each once, in the order of the questions, then of the files."""
    found: dict[str, tuple[str, ...]] = {}
    for stem, question in QUESTIONS.items():
        facts = (read_json(path) for path in sorted(folder.rglob(f"{stem}*.json")))
        said = [str(fact["headline"]) for fact in facts if fact.get("headline")]
        if said:
            found[question] = tuple(dict.fromkeys(said))
    return found
