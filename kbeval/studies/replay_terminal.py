"""What `replay` prints: what it rests on, a table a policy, what may be said, the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kbeval.evaluation.ledger.entry import PolicyLedger
from kbeval.evaluation.replaying.policies import NO_MEMORY
from kbeval.evaluation.statistics import Rate
from kbeval.studies.replay_result import ReplayResult
from kbeval.studies.terminal import SHOWN, counted
from kbeval.studies.tuning_files import told


def replay_lines(result: ReplayResult) -> Iterator[str]:
    """The whole result, line by line."""
    yield from _rests_on(result)
    yield from _recorded(result)
    for name, page in result.ledger.pages.items():
        yield ""
        yield from _page(page, obeying=result.ledger.policies[name].obeys != "nothing")
    yield from _obedience(result)
    yield from _map(result)
    sentences = result.sentences()
    spoken_of = result.answer.policy or next(iter(sentences), None)
    if spoken_of is not None:
        yield ""
        yield sentences[spoken_of]
    yield ""
    yield f"answer: {result.answer.text()}"
    count = len(result.answer.candidates)
    if count > 1 and result.answer.kind != "not_known":
        yield (
            f"  its intervals hold for {count} policies together, since the best of them is taken; "
            "those above hold for one alone"
        )
    if result.answer.yml:
        yield "to paste:"
        yield from (f"  {line}" for line in result.answer.yml.splitlines())


def _rests_on(result: ReplayResult) -> Iterator[str]:
    facts = result.opened.to_json()
    yield (
        f"{facts['set']}: {counted(facts['sessions'], 'session')}, "
        f"{counted(facts['look_ups'], 'look-up')} ({facts['form']}); "
        f"{counted(facts['documents'], 'document')}, encoder {facts['encoder']}, "
        f"distances {facts['convention']}"
    )
    if not facts["semantic"]:
        yield "a stand-in that only compares spelling: not semantic"
    yield f"settings: {facts['settings_from']}" + _untuned(facts["settings_from"])
    horizon = result.ledger.horizon
    context = "the whole session" if horizon is None else counted(horizon, "turn")
    yield f"tokens by {result.ledger.tokenizer}; the agent's context holds {context}"
    for title, counts in (("left out", facts["left_out"]), ("met", facts["counts"])):
        if counts:
            yield f"{title}: {_counts(counts)}"
    faults = result.opened.loaded.faults
    yield from (f"  {fault}" for fault in faults[:SHOWN])
    if len(faults) > SHOWN:
        yield f"  and {len(faults) - SHOWN} more faults, in replay.json"


def _untuned(settings_from: str) -> str:
    return " (`kbeval tune` recommends others)" if settings_from.startswith("the specs") else ""


def _recorded(result: ReplayResult) -> Iterator[str]:
    yield f"fidelity: {result.record.told()}"
    repeats = result.repeats
    yield (f"repeats: the same text {told(repeats.exact)}, a near one {told(repeats.near_repeats)}")
    if repeats.same_documents.n:
        yield (
            f"  the same documents {told(repeats.same_documents)}, "
            f"documents returned again {told(repeats.overlap)}"
        )
        yield f"  a document given before, returned or withheld {told(repeats.documents_again)}"
    convention, used = result.convention, result.opened.settings.retrieval.normalization.distance
    yield f"recorded distances: {convention.convention or '-'} ({convention.reason})"
    if convention.convention not in (None, used):
        yield f"  they are not those of these settings, which are {used}: thresholds differ"


def _page(page: PolicyLedger, *, obeying: bool) -> Iterator[str]:
    yield f"== {page.policy}" + (" (one draw of who obeys)" if obeying else "")
    if page.policy == NO_MEMORY:
        yield f"  hands out         {page.tokens:,} tokens in {counted(page.documents, 'document')}"
        yield f"  turns answered    {told(page.harm.answered)}"
        return
    parts = page.once.parts
    yield (
        f"  saved once        {_number(page.once.per_session)} tokens a session; in all "
        f"{page.once.total.value or 0:,.0f} = withheld text {parts['withheld_text']:,} - refill "
        f"{parts['refill']:,} - notices and lists {parts['notices']:,}"
    )
    if page.split is not None:
        split = page.split
        yield (
            f"    {split.before_divergence:,} up to the first answer unlike the record, "
            f"{split.after_divergence:,} after it; never unlike {told(split.never_diverges)}"
        )
    saved = _number(page.cumulative.per_session)
    yield f"  saved cumulative  {saved} tokens a session{_worth(page)}"
    if page.avoided:
        yield (
            f"  not asked         {counted(page.avoided, 'look-up')}, {page.avoided_tokens:,} "
            "tokens: never a saving"
        )
    blocks = page.break_even
    even = (
        ""
        if blocks is None
        else f"; {blocks:.1f} extra look-ups after each would eat what is saved once"
    )
    yield f"  blocked           {told(page.blocked)}{even}"
    yield from _harm(page)


def _worth(page: PolicyLedger) -> str:
    """The saving in money with the first model of the prices; the others are in replay.json."""
    if not page.money or page.money[0].later_uncached.value is None:
        return ""
    money, price = page.money[0], page.money[0].price
    cached, uncached = (
        f"{1000 * (rate.value or 0):,.2f}" for rate in (money.later_cached, money.later_uncached)
    )
    return (
        f"; a 1,000 sessions: {price.currency} {cached} where later calls are cached, {uncached} "
        f"where not ({price.model}, {price.date})"
    )


def _harm(page: PolicyLedger) -> Iterator[str]:
    harm = page.harm
    if not harm.answerable:
        yield f"  turns harmed      unknown: {counted(harm.unlabelled, 'turn')} without labels"
        yield from _never_delivered(page)
        return
    causes = {name.replace("_", " "): count for name, count in harm.causes.items() if count}
    yield f"  turns harmed      {told(harm.low)} at least"
    why = f": {_counts(causes)}" if causes else ""
    yield f"                    {told(harm.high)} at most{why}"
    yield f"  dead ends         {told(harm.dead_ends)}"
    if harm.unlabelled:
        yield f"  harm unknown for  {counted(harm.unlabelled, 'turn')}"


def _never_delivered(page: PolicyLedger) -> Iterator[str]:
    """All that labels of a whole session tell: what it needed and no turn of it was given."""
    found = page.never_delivered
    if found["needs"]:
        yield (
            f"  never delivered   {found['by_policy']:,} of {counted(found['needs'], 'need')}, "
            f"{found['by_none']:,} of them without memory"
        )


def _obedience(result: ReplayResult) -> Iterator[str]:
    for name, curve in result.curves.items():
        yield ""
        yield f"== if the executor obeyed: {name} (a sensitivity, not a saving)"
        for point in curve.points:
            yield (
                f"  obeys {point.obedience:<5g} look-ups not made {told(point.avoided_share)}, "
                f"answered turns harmed {told(point.harmed_share)}"
            )


def _map(result: ReplayResult) -> Iterator[str]:
    found = result.ledger.knowledge_map
    if found is not None:
        yield ""
        yield (
            f"the planner's map of titles and topics: {found.token_count:,} tokens a planner "
            "call, no part of any saving above"
        )


def _number(rate: Rate) -> str:
    if rate.value is None:
        return "-"
    if rate.low is None or rate.high is None:
        return f"{rate.value:,.0f} ({rate.note or 'no interval'})"
    about = "≈" if "approximate" in rate.note else ""
    return f"{rate.value:,.0f} {about}[{rate.low:,.0f}, {rate.high:,.0f}]"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
