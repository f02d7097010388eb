"""kbeval: is your agent's knowledge base look-up telling the truth?

The names below are loaded when they are first used, so that `import kbeval` stays light.
"""

from importlib import import_module

TYPE_CHECKING = False  # `typing` itself would double the cost of the import
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Document": "records",
    "Corpus": "records",
    "Evidence": "records",
    "Invocation": "records",
    "Level": "records",
    "LookupResult": "records",
    "KbevalError": "errors",
    "Settings": "config",
    "load_settings": "config",
    "open_corpus": "corpus.sources",
    "open_encoder": "corpus.encoders",
    "Knowledge": "retrieval.knowledge",
    "RetrievedDocTracker": "retrieval.tracker",
    "KnowledgeTool": "retrieval.tool",
    "session_scope": "retrieval.session",
    "in_session": "retrieval.session",
    "grade": "retrieval.grading",
    "l2_to_similarity": "retrieval.grading",
    "open_service": "service",
    "lookup_tool_schema": "domains.schema",
    "load_set": "evaluation.readers",
    "evaluate_set": "evaluation.evaluate",
    "tune_set": "studies.tuning",
    "replay_set": "studies.replaying",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> "Any":  # noqa: ANN401
    if name not in _HOME:
        raise AttributeError(f"module 'kbeval' has no attribute {name!r}")
    value = getattr(import_module(f"kbeval.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
