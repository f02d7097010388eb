"""The answer of a verdict in plain words, zh and en, with the yml to paste."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from kbeval.evaluation.statistics import Rate
from kbeval.records import Locale

Kind = Literal[
    "not_known",
    "no_saving",
    "yes",
    "only_with_horizon",
    "only_while_the_text_is_in_context",
    "no",
]
SWITCH_ON: tuple[Kind, ...] = ("yes", "only_with_horizon", "only_while_the_text_is_in_context")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the answer is what it is: a sentence by its name, and the values it states."""

    name: str
    values: Mapping[str, object]

    def text(self, locale: Locale = "en") -> str:
        """The sentence in words."""
        shown = {name: _shown(name, value, locale) for name, value in self.values.items()}
        return WORDS[locale][self.name].format(**shown)


@dataclass(frozen=True, slots=True)
class Answer:
    """Should the session memory be on? `policy` is the one to switch on, None if there is none.

    `candidates` holds what is known of every policy that was compared. `settings` is what to
    paste, empty where nothing is known.
    """

    kind: Kind
    policy: str | None
    reasons: tuple[Reason, ...]
    settings: Mapping[str, Any]
    tolerance: float
    candidates: tuple[Mapping[str, Any], ...]

    @property
    def yml(self) -> str:
        """The settings as yml, empty where nothing is to be pasted."""
        if not self.settings:
            return ""
        return yaml.safe_dump(dict(self.settings), sort_keys=False, allow_unicode=True)

    def text(self, locale: Locale = "en") -> str:
        """The answer and its reasons, one paragraph."""
        answer = WORDS[locale][self.kind].format(
            policy=self.policy, tolerance=f"{self.tolerance:.0%}"
        )
        between = " " if locale == "en" else ""
        return between.join([answer, *(reason.text(locale) for reason in self.reasons)])

    def to_json(self) -> dict[str, Any]:
        """Kind, policy, both texts, the settings, and the candidates with their numbers."""
        return {
            "kind": self.kind,
            "policy": self.policy,
            "tolerance": self.tolerance,
            "answer": self.text("en"),
            "answer_zh": self.text("zh"),
            "settings": dict(self.settings),
            "yml": self.yml,
            "candidates": [dict(candidate) for candidate in self.candidates],
        }


def _shown(name: str, value: object, locale: Locale) -> str:
    if isinstance(value, Rate):
        return _rate(value, "{:.1%}" if name.startswith("lost") else "{:,.0f}", locale)
    words = WORDS[locale]
    if value is None:
        return words[f"{name}_none"]
    if isinstance(value, float):
        value = f"{value:.1%}" if name == "fidelity" else f"{value:.1f}"
    elif isinstance(value, int):
        value = f"{value:,}"
    return words.get(f"{name}_some", "{value}").format(value=value)


def _rate(rate: Rate, form: str, locale: Locale) -> str:
    value = "-" if rate.value is None else form.format(rate.value)
    if rate.low is None or rate.high is None:
        return f"{value} {WORDS[locale]['no_interval']}"
    return f"{value} [{form.format(rate.low)}, {form.format(rate.high)}]"


WORDS: Mapping[Locale, Mapping[str, str]] = {
    "en": {
        "not_known": "Whether the session memory should be on is not known.",
        "no_saving": "No: no saving is shown.",
        "yes": "Yes: switch on {policy}. It withholds at most {tolerance} of the answers, even "
        "from an agent that remembers nothing.",
        "only_with_horizon": "Yes, but only with a horizon: {policy}. It withholds at most "
        "{tolerance} of the answers, even from an agent that remembers nothing; without a horizon "
        "that is not shown.",
        "only_while_the_text_is_in_context": "Only while the text is in the agent's context: "
        "{policy}.",
        "no": "No: every policy that saves tokens withholds more than {tolerance} of the answers "
        "from an agent that cannot have them from before.",
        "no_policy": "No memory policy with the thresholds of no memory was replayed.",
        "unfaithful": "Replay gives only {fidelity} of the recorded answers again.",
        "few_sessions": "{sessions} sessions are too few; {least} are the least for an interval.",
        "no_labels": "A saving is shown, but no document is labelled as an answer of any turn, so "
        "what it hides is unknown ({turns} turns).",
        "nothing_answered": "A saving is shown, but even without memory none of the {turns} "
        "turns that have an answer is answered: retrieval fails first.",
        "saves_nothing": "The best policy, {policy}, saves {saved_once} tokens a session once and "
        "{saved_cumulative} cumulatively: refill and notices eat what is withheld.",
        "saving_not_shown": "The best policy, {policy}, saves {saved_once} tokens a session once "
        "and {saved_cumulative} cumulatively; both must be above 0.",
        "saves": "{policy} saves {saved_once} tokens a session once, {saved_cumulative} "
        "cumulatively; {break_even}.",
        "harmless": "Of the {could_lose} turns given an answer without memory it takes one from "
        "{lost_high}.",
        "may_be_in_context": "Of the {could_lose} turns given an answer without memory it takes "
        "one from {lost_high}; in {lost_low} the agent cannot have it from before, in the others "
        "it may still be in its context.",
        "context_kept": "So it holds only if the context keeps every answer {horizon}: an agent "
        "that drops or summarises them earlier needs a horizon as short as that.",
        "without_context_open": "Whether it is harmless without that too is not settled; sessions "
        "that would settle it: {wanted}.",
        "hides": "The least harmful, {policy}, takes from {lost_low} of the {could_lose} turns "
        "given an answer without memory one that the agent cannot have from before.",
        "harm_open": "A saving is shown, but its harm is not settled: of the {could_lose} turns "
        "given an answer without memory {policy} takes one from {lost_low} at least and "
        "{lost_high} at most. Sessions that would settle it: {wanted}.",
        "harm_unknown": "Harm is unknown for {turns} of {all} turns, which have no labels.",
        "break_even_some": "{value} extra look-ups per blocked one would eat what it saves once",
        "break_even_none": "no look-up is blocked",
        "horizon_some": "for {value} turns",
        "horizon_none": "to the end of the session",
        "wanted_some": "about {value}",
        "wanted_none": "these do not tell how many",
        "no_interval": "[no interval]",
    },
    "zh": {
        "not_known": "是否应开启会话记忆：未知。",
        "no_saving": "否：没有显示出任何节省。",
        "yes": "是：开启 {policy}。即使智能体什么都不记得，它扣下的答案也不超过 {tolerance}。",
        "only_with_horizon": "是，但必须带时限：{policy}。即使智能体什么都不记得，"
        "它扣下的答案也不超过 {tolerance}；没有时限则未能证明。",
        "only_while_the_text_is_in_context": "仅当文本仍在智能体的上下文中时：{policy}。",
        "no": "否：每一种能节省 token 的策略，都会扣下超过 {tolerance} 的答案，"
        "而智能体无法从先前的答案中得到它们。",
        "no_policy": "没有回放过与无记忆阈值相同的记忆策略。",
        "unfaithful": "回放只重现了 {fidelity} 的已记录答案。",
        "few_sessions": "{sessions} 个会话太少；至少 {least} 个才有区间。",
        "no_labels": "有节省，但没有任何文档被标注为某一轮的答案，"
        "因此它隐藏了什么是未知的（{turns} 轮）。",
        "nothing_answered": "有节省，但在 {turns} 轮有答案的检索中，无记忆也一轮都没有答出："
        "首先失败的是检索。",
        "saves_nothing": "最好的策略 {policy} 每个会话节省 {saved_once} 个 token（计一次），"
        "累计 {saved_cumulative}：补位文档和提示吃掉了扣下的文本。",
        "saving_not_shown": "最好的策略 {policy} 每个会话节省 {saved_once} 个 token（计一次），"
        "累计 {saved_cumulative}；两者都必须大于 0。",
        "saves": "{policy} 每个会话节省 {saved_once} 个 token（计一次），"
        "累计 {saved_cumulative}；{break_even}。",
        "harmless": "在无记忆能给出答案的 {could_lose} 轮中，它使 {lost_high} 失去答案。",
        "may_be_in_context": "在无记忆能给出答案的 {could_lose} 轮中，它使 {lost_high} 失去答案；"
        "其中 {lost_low} 智能体无法从先前的答案中得到，其余的可能仍在其上下文中。",
        "context_kept": "因此只有当上下文把每个答案保留{horizon}时才成立："
        "若智能体更早丢弃或压缩它们，就需要同样短的时限。",
        "without_context_open": "没有这一条件时它是否也无害，尚无定论；"
        "要得出定论所需的会话数：{wanted}。",
        "hides": "危害最小的 {policy}，在无记忆能给出答案的 {could_lose} 轮中，使 {lost_low} "
        "失去智能体无法从先前得到的答案。",
        "harm_open": "有节省，但损害尚无定论：在无记忆能给出答案的 {could_lose} 轮中，"
        "{policy} 使至少 {lost_low}、至多 {lost_high} 失去答案。要得出定论所需的会话数：{wanted}。",
        "harm_unknown": "{all} 轮中有 {turns} 轮没有标注，其损害未知。",
        "break_even_some": "每次拦截若引出 {value} 次额外检索，计一次的节省就被吃掉",
        "break_even_none": "没有检索被拦截",
        "horizon_some": "至少 {value} 轮",
        "horizon_none": "到会话结束",
        "wanted_some": "约 {value} 个",
        "wanted_none": "由现有会话无法推知",
        "no_interval": "[无区间]",
    },
}
