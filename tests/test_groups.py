"""Per kind and language, worked out by hand."""

import numpy as np
import pandas as pd

from kbeval.evaluation.groups import by_group
from kbeval.evaluation.ranked import Ranked

QUERIES = pd.DataFrame(
    [
        ("q1", "how-to", "en", "REFERENCE", "right"),
        ("q2", "how-to", "zh", "NOT_FOUND", "right"),
        ("q3", "how-to", "en", "REFERENCE", "wrong"),
        ("q4", "near", "en", "REFERENCE", "unanswerable"),
        ("q5", "near", "zh", "NOT_FOUND", "unanswerable"),
    ],
    columns=["query_id", "kind", "lang", "level", "outcome"],
).assign(cluster=["a", "b", "c", "d", "e"])
RANKED = Ranked(("q1", "q2", "q3"), {"R(rel=2)@5": np.array([1.0, 1.0, 0.0])}, {})


def values(group):
    return {name: rate["value"] for name, rate in group.items() if isinstance(rate, dict)}


def test_each_kind_and_language_has_its_own_rates():
    table = by_group(QUERIES, RANKED, answers_from=2)
    assert values(table["kind"]["how-to"]) == {
        "recall_at_5": 2 / 3,
        "answered": 1 / 3,
        "found_rate": 2 / 3,
        "leak_rate": None,
    }
    assert values(table["kind"]["near"]) == {
        "recall_at_5": None,
        "answered": None,
        "found_rate": None,
        "leak_rate": 0.5,
    }
    assert {lang: row["queries"] for lang, row in table["lang"].items()} == {"en": 3, "zh": 2}


def test_a_set_without_kinds_has_no_groups():
    assert by_group(QUERIES.assign(kind="", lang="en"), RANKED, answers_from=2) == {}
