"""Whether a team should switch the session memory on, and with which horizon (REQ-01).

A memory pays where it saves tokens in both views, once and cumulative. It is harmless where it
withholds at most `tolerance` of the answers from an agent that remembers nothing (the upper bound
of harm, method.md 12), and harmless as long as the text is in its context where that holds of the
answers which the agent cannot have (the lower bound). Shares are of the turns given an answer
without memory, not of all: else a weak retrieval, which answers few, would make every memory look
harmless.

Of several policies the best is taken, so their intervals hold together (`candidates`). An interval
that lies on both sides of the tolerance is no answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kbeval.errors import ConfigError
from kbeval.evaluation.ledger.answer import SWITCH_ON, Answer, Kind, Reason
from kbeval.evaluation.ledger.candidates import Candidate, candidates_of
from kbeval.evaluation.ledger.ledger import Ledger
from kbeval.evaluation.statistics import FEWEST_CLUSTERS, Rate

TOLERANCE = 0.02  # share of the answers that may be lost


def verdict(ledger: Ledger, *, tolerance: float = TOLERANCE) -> Answer:
    """The plain answer, with its numbers, its reasons and the yml to paste.

    Raises `ConfigError` unless 0 < tolerance < 1.
    """
    if not 0 < tolerance < 1:
        raise ConfigError(f"tolerance: got {tolerance}; a share between 0 and 1 is expected")
    candidates = candidates_of(ledger, tolerance)
    savers = [candidate for candidate in candidates if candidate.saves == "yes"]
    reason = _not_known(ledger, candidates, savers)
    if reason is not None:
        return _answer("not_known", candidates, [reason], tolerance=tolerance)
    if not savers:
        best = _best(candidates)
        refuted = all(candidate.saves == "no" for candidate in candidates)
        why = Reason("saves_nothing" if refuted else "saving_not_shown", _saving_of(best))
        return _answer("no_saving", candidates, [why], tolerance=tolerance, best=best)
    return _by_harm(candidates, savers, ledger, tolerance)


def _not_known(
    ledger: Ledger, candidates: Sequence[Candidate], savers: Sequence[Candidate]
) -> Reason | None:
    """Why nothing can be said; labels are only missed where something is saved."""
    if not candidates:
        return Reason("no_policy", {})
    if not ledger.supports_claims and ledger.fidelity is not None:
        return Reason("unfaithful", {"fidelity": ledger.fidelity.value})
    if ledger.sessions < FEWEST_CLUSTERS:
        return Reason("few_sessions", {"sessions": ledger.sessions, "least": FEWEST_CLUSTERS})
    if savers and not candidates[0].lost_high.n:
        page = candidates[0].page
        name = "nothing_answered" if page.harm.answerable else "no_labels"
        return Reason(name, {"turns": page.harm.answerable or page.lookups})
    return None


def _by_harm(
    candidates: Sequence[Candidate],
    savers: Sequence[Candidate],
    ledger: Ledger,
    tolerance: float,
) -> Answer:
    """The answer for policies that save something."""
    harmless = [candidate for candidate in savers if candidate.harmless == "yes"]
    in_context = [candidate for candidate in savers if candidate.harmless_in_context == "yes"]
    if harmless:
        kind, best, reasons = _harmless(harmless)
    elif in_context:
        kind, best, reasons = _in_context(in_context, ledger.horizon, tolerance)
    else:
        kind, best, reasons = _harmful(savers, tolerance)
    unlabelled = best.page.harm.unlabelled
    if unlabelled:
        reasons.append(Reason("harm_unknown", {"turns": unlabelled, "all": best.page.lookups}))
    return _answer(kind, candidates, reasons, tolerance=tolerance, best=best)


Found = tuple[Kind, Candidate, list[Reason]]


def _harmless(harmless: Sequence[Candidate]) -> Found:
    """A memory that forgets nothing goes before one with a horizon; of these the thriftiest."""
    plain = [candidate for candidate in harmless if not candidate.has_horizon]
    best = _best(plain or harmless)
    reasons = [Reason("saves", _saving_of(best)), Reason("harmless", _harm_of(best))]
    return "yes" if plain else "only_with_horizon", best, reasons


def _in_context(in_context: Sequence[Candidate], horizon: int | None, tolerance: float) -> Found:
    """What the policy withholds has to be where the agent can read it."""
    best = _best(in_context)
    turns = best.policy.settings.session.horizon_turns  # later it hands them out again
    kept = min((h for h in (horizon, turns) if h is not None), default=None)
    reasons = [
        Reason("saves", _saving_of(best)),
        Reason("may_be_in_context", _harm_of(best)),
        Reason("context_kept", {"horizon": kept}),
    ]
    if best.harmless == "open":
        wanted = _sessions_wanted(best, best.lost_high, tolerance)
        reasons.append(Reason("without_context_open", {"wanted": wanted}))
    return "only_while_the_text_is_in_context", best, reasons


def _harmful(savers: Sequence[Candidate], tolerance: float) -> Found:
    """Every policy surely withholds too much, or that is not settled."""
    unsettled = [candidate for candidate in savers if candidate.harmless_in_context != "no"]
    best = min(unsettled or savers, key=lambda candidate: candidate.lost_low.value or 0.0)
    if not unsettled:
        return "no", best, [Reason("hides", _harm_of(best))]
    wanted = _sessions_wanted(best, best.lost_low, tolerance)
    return "not_known", best, [Reason("harm_open", _harm_of(best) | {"wanted": wanted})]


def _sessions_wanted(candidate: Candidate, lost: Rate, tolerance: float) -> int | None:
    """About how many sessions like these would settle it; None where the rate is not below."""
    if lost.value is None or lost.value >= tolerance:
        return None
    if lost.value == 0 or lost.high is None:
        return candidate.fewest_sessions
    narrower = (lost.high - lost.value) / (tolerance - lost.value)
    count = math.ceil(candidate.page.totals.session_count * narrower**2)
    return max(candidate.fewest_sessions, count)


def _best(candidates: Sequence[Candidate]) -> Candidate:
    return max(candidates, key=lambda candidate: candidate.saved_once.value or 0.0)


def _saving_of(candidate: Candidate) -> dict[str, object]:
    return {
        "policy": candidate.policy.name,
        "saved_once": candidate.saved_once,
        "saved_cumulative": candidate.saved_cumulative,
        "break_even": candidate.page.break_even,
    }


def _harm_of(candidate: Candidate) -> dict[str, object]:
    return {
        "policy": candidate.policy.name,
        "lost_low": candidate.lost_low,
        "lost_high": candidate.lost_high,
        "harmed": candidate.page.harm.harmed,
        "could_lose": candidate.lost_high.n,
    }


def _answer(
    kind: Kind,
    candidates: Sequence[Candidate],
    reasons: Sequence[Reason],
    *,
    tolerance: float,
    best: Candidate | None = None,
) -> Answer:
    """`best` is the policy to switch on, or that the refusal speaks of."""
    settings: dict[str, Any] = {}
    if kind in SWITCH_ON and best is not None:
        settings = best.policy.to_yml()
    elif kind in ("no", "no_saving"):
        settings = {"session": {"memory": "none"}}
    return Answer(
        kind=kind,
        policy=best.policy.name if best is not None and kind in SWITCH_ON else None,
        reasons=tuple(reasons),
        settings=settings,
        tolerance=tolerance,
        candidates=tuple(candidate.to_json() for candidate in candidates),
    )
