"""What the planner is told, held against the documents it stands for."""

import pandas as pd
import pytest
from stand_ins import TableEncoder, document

from kbeval.corpus.hashing import HashingEncoder
from kbeval.domains.knowledge_map import MapDocument, MapDomain
from kbeval.errors import ConfigError, DatabaseError
from kbeval.service import open_service
from kbeval.store.domains import upsert_domain
from kbeval.studies.domain_charts import map_lengths_chart, overlap_chart
from kbeval.studies.domain_tables import (
    domain_report,
    overlapping_domains,
    unmentioned_documents,
)
from kbeval.studies.invocation_chart import invocation_chart

TEXT = "---\ntitle: {0}\ncategory: {1}\ncovers: [{2}]\nwhen_to_retrieve: w\n---\nBody of {0}.\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KBEVAL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def database(tmp_path):
    """Three documents in two domains, one of which has a text that names one of them."""
    service = open_service(tmp_path, encoder="hashing")
    service.upload_many(
        [
            (TEXT.format("Nginx", "web", "reload"), "nginx.md"),
            (TEXT.format("Caddy", "web", "certificates"), "caddy.md"),
            (TEXT.format("Keys", "security", "rotation"), "keys.md"),
        ]
    )
    upsert_domain(service.engine, "web", when_to_retrieve="When nginx has to reload.")
    service.close()
    return tmp_path / "kbeval.db"


def test_a_report_of_a_database_is_worked_out_by_hand(database):
    report = domain_report(database=database, encoder="hashing")
    assert report.headline().to_dict() == {
        "domains": 2,
        "documents": 3,
        "characters of the map": len(report.map_text),
        "characters before any cut": len(report.map_text) - len("available_knowledge_domains:") - 2,
        "documents no text mentions": 2,
        "domains without a text": 1,
        "degraded fields": 2,
    }
    assert report.lengths[["domain", "documents", "text"]].to_numpy().tolist() == [
        ["web", 2, 25],
        ["security", 1, 0],
    ]
    assert report.unmentioned.to_numpy().tolist() == [
        ["web", "caddy.md", "Caddy"],
        ["security", "keys.md", "Keys"],
    ]
    assert report.overlaps[["domain", "other", "compared"]].to_numpy().tolist() == [
        ["security", "web", "titles and text"]
    ]
    assert set(report.degraded["name"]) == {"web", "security"}


def test_a_report_is_saved_whole(database, tmp_path):
    written = domain_report(database=database, encoder="hashing").save(tmp_path / "out")
    assert [path.name for path in written] == [
        "degraded.csv",
        "lengths.csv",
        "map.yml",
        "overlaps.csv",
        "unmentioned.csv",
    ]


def test_what_cannot_be_opened_is_an_error(database, tmp_path):
    with pytest.raises(DatabaseError, match="no such database"):
        domain_report(database=tmp_path / "none.db")
    with pytest.raises(ConfigError, match=r"^knowledge map: "):
        domain_report(database=database, encoder="hashing", budget=10)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("about nothing", ["a.md", "b.md"]),
        ("what A covers: quota", ["b.md"]),
        ("quotas are another word", ["a.md", "b.md"]),
        ("see b.md and a quota", []),
    ],
)
def test_a_document_is_mentioned_by_the_rule_of_exact_keys(text, left):
    documents = [document("b.md"), document("a.md", covers=("quota",))]
    assert list(unmentioned_documents(documents, [text])["path"]) == left


def test_the_nearest_texts_come_first_and_ties_by_name():
    encoder = TableEncoder({"A": [1, 0], "B": [1, 0], "C": [0, 1], "D": [0, 1]})
    domains = [
        MapDomain(name.lower(), "", name, (MapDocument(name),)) for name in ("A", "B", "C", "D")
    ]
    table = overlapping_domains(domains, encoder, limit=3)
    assert table.to_numpy().tolist() == [
        ["a", "b", 1.0, "text"],
        ["c", "d", 1.0, "text"],
        ["a", "c", 0.0, "text"],
    ]
    assert overlapping_domains(domains[:1], HashingEncoder()).empty


@pytest.mark.parametrize("count", [0, 1, 40])
def test_charts_hold_for_any_number_of_rows(count, tmp_path):
    lengths = pd.DataFrame(
        [(f"域 {i}", i, 100 + i, i) for i in range(count)],
        columns=["domain", "documents", "characters", "text"],
    )
    overlaps = pd.DataFrame(
        [(f"a{i}", f"b{i}", 0.5, "text") for i in range(count)],
        columns=["domain", "other", "cosine", "compared"],
    )
    repeated = {f"{i}.md": i for i in range(count)}
    charts = [
        map_lengths_chart(lengths),
        overlap_chart(overlaps),
        invocation_chart({None: count}, {"PARTIAL": count}, repeated),
    ]
    for chart, bars in zip(charts, (2 * min(count, 30), min(count, 30), 2), strict=True):
        chart.savefig(tmp_path / "chart.png")
        drawn = sum(len(axes.patches) for axes in chart.axes)
        assert drawn == bars + (min(count, 10) if chart is charts[2] else 0)
