"""What a run answers, and the sentence of a tuning."""

from __future__ import annotations

import json

from kbeval.studies.answers import QUESTIONS, answers
from kbeval.studies.report import page


def test_the_three_answers_stand_in_the_order_of_the_questions(tmp_path):
    for name, said in (
        ("replay.json", "It saves little."),
        ("tuning.json", "Cut here."),
        ("evaluation-b.json", "Half were true."),
        ("evaluation-a.json", "All were true."),
        ("evaluation-c.json", "All were true."),
    ):
        (tmp_path / name).write_text(json.dumps({"headline": said}), encoding="utf-8")
    (tmp_path / "tuning-old.json").write_text("{}", encoding="utf-8")
    assert list(answers(tmp_path).items()) == [
        (QUESTIONS["evaluation"], ("All were true.", "Half were true.")),
        (QUESTIONS["tuning"], ("Cut here.",)),
        (QUESTIONS["replay"], ("It saves little.",)),
    ]


def test_a_question_nobody_asked_is_not_answered(tmp_path):
    (tmp_path / "evaluation.json").write_text('{"set": "a"}', encoding="utf-8")
    assert answers(tmp_path) == {}


def test_the_page_shows_each_notebooks_pictures_under_its_name(tmp_path):
    for name in ("b/z.png", "a/y.png", "a/x.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    entries = [
        {"file": f"{stem}.ipynb", "status": "ok", "seconds": 1.0, "error": None} for stem in "ba"
    ]
    about = {"study": "s", "status": "ok", "started": "1", "ended": "2", "kbeval": "3"}
    text = page(tmp_path, {**about, "python": "4", "notebooks": entries})
    shown = [line for line in text.splitlines() if line.startswith(("## P", "!["))]
    assert shown == [
        "## Pictures of [b](<b.ipynb>)",
        "![z](<b/z.png>)",
        "## Pictures of [a](<a.ipynb>)",
        "![x](<a/x.png>)",
        "![y](<a/y.png>)",
    ]
