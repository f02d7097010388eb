"""The net statement of one policy, in one sentence, with its uncertainty (method.md 11)."""

from __future__ import annotations

from collections.abc import Mapping

from kbeval.evaluation.ledger.entry import PolicyLedger
from kbeval.evaluation.ledger.ledger import Ledger
from kbeval.evaluation.replaying.fidelity import FAITHFUL
from kbeval.evaluation.statistics import NO_SPREAD, Rate
from kbeval.records import Locale

WORDS: Mapping[Locale, Mapping[str, str]] = {
    "en": {
        "unfaithful": "Replay gives {given} of the recorded answers again, less than {least}: "
        "no saving of policy {policy} is claimed.",
        "fewer": "For the {lookups} recorded look-ups in these {sessions} sessions, policy "
        "{policy} hands out {tokens} fewer tokens {interval} than no memory; {after}. ",
        "more": "For the {lookups} recorded look-ups in these {sessions} sessions, policy "
        "{policy} hands out {tokens} more tokens {interval} than no memory; {after}. ",
        "share_after": "{share} of that is after the agent's view would have changed",
        "tokens_after": "{tokens} tokens of that are after the agent's view would have changed",
        "not_recorded": "all of it is for this sequence of questions",
        "partly": " (in the {count} sessions that were recorded)",
        "harm": "It withholds the only answering document in {high} turns, in {low} of which the "
        "agent cannot have it from before{unknown}. ",
        "some_unknown": "; harm is unknown for {count} turns",
        "unknown": "Harm is unknown for {count} turns: no document is labelled as their answer. ",
        "end": "Whether an agent would ask differently is not known from records.",
        "no_interval": "[no interval: {why}]",
    },
    "zh": {
        "unfaithful": "回放只重现了 {given} 的已记录答案，低于 {least}："
        "不对策略 {policy} 的节省作任何断言。",
        "fewer": "就这 {sessions} 个会话中记录的 {lookups} 次检索而言，策略 {policy} "
        "比无记忆少发出 {tokens} 个 token {interval}；{after}。",
        "more": "就这 {sessions} 个会话中记录的 {lookups} 次检索而言，策略 {policy} "
        "比无记忆多发出 {tokens} 个 token {interval}；{after}。",
        "share_after": "其中 {share} 发生在智能体所见已经改变之后",
        "tokens_after": "其中 {tokens} 个 token 发生在智能体所见已经改变之后",
        "not_recorded": "全部仅针对这一提问序列",
        "partly": "（在有记录的 {count} 个会话中）",
        "harm": "它在 {high} 轮中扣下了唯一能回答的文档，其中 {low} 轮"
        "智能体也无法从先前的答案中得到它{unknown}。",
        "some_unknown": "；另有 {count} 轮的损害未知",
        "unknown": "{count} 轮的损害未知：没有文档被标注为其答案。",
        "end": "智能体是否会改变提问，无法从记录中得知。",
        "no_interval": "[无区间：{why}]",
    },
}
WHY_ZH = {"too few sessions": "会话太少", NO_SPREAD: "各会话相同，没有离散"}


def net_sentence(ledger: Ledger, policy: str, locale: Locale = "en") -> str:
    """What may be said of one policy, harm beside saving.

    Where replay does not give the record again it is that, and no saving.
    """
    words, page = WORDS[locale], ledger.pages[policy]
    if not ledger.supports_claims and ledger.fidelity is not None:
        given = ledger.fidelity.value or 0.0
        return words["unfaithful"].format(
            given=f"{given:.1%}", least=f"{FAITHFUL:.0%}", policy=policy
        )
    saved = page.once.total
    net = words["fewer" if (saved.value or 0) >= 0 else "more"].format(
        lookups=f"{ledger.lookups:,}",
        sessions=f"{ledger.sessions:,}",
        policy=policy,
        tokens=f"{abs(saved.value or 0):,.0f}",
        interval=_interval(saved, locale),
        after=_after(ledger, page, words),
    )
    return net + _harm(page, words) + words["end"]


def _interval(saved: Rate, locale: Locale) -> str:
    if saved.low is None or saved.high is None:
        why = WHY_ZH.get(saved.note, saved.note) if locale == "zh" else saved.note
        return WORDS[locale]["no_interval"].format(why=why)
    ends = (saved.low, saved.high) if (saved.value or 0) >= 0 else (-saved.high, -saved.low)
    return f"[{ends[0]:,.0f}, {ends[1]:,.0f}]"


def _after(ledger: Ledger, page: PolicyLedger, words: Mapping[str, str]) -> str:
    """How much rests on an agent that asks the same although it has seen something else."""
    split = page.split
    if split is None:
        return words["not_recorded"]
    sign = 1 if (page.once.total.value or 0) >= 0 else -1  # of the tokens that are spoken of
    before, after = sign * split.before_divergence, sign * split.after_divergence
    if before >= 0 and after >= 0 and before + after > 0:
        text = words["share_after"].format(share=f"{after / (before + after):.0%}")
    else:
        text = words["tokens_after"].format(tokens=f"{after:,}")
    if split.recorded_sessions == ledger.sessions:
        return text
    return text + words["partly"].format(count=f"{split.recorded_sessions:,}")


def _harm(page: PolicyLedger, words: Mapping[str, str]) -> str:
    harm = page.harm
    if not harm.answerable:
        return words["unknown"].format(count=f"{harm.unlabelled:,}") if harm.unlabelled else ""
    unknown = ""
    if harm.unlabelled:
        unknown = words["some_unknown"].format(count=f"{harm.unlabelled:,}")
    return words["harm"].format(
        high=f"{harm.harmed:,}", low=f"{harm.surely_harmed:,}", unknown=unknown
    )
