"""What a run answers, and the sentence of a tuning."""

from __future__ import annotations

import json

from kbeval.studies.answers import QUESTIONS, answers


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
