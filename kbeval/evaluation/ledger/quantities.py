"""What is added up of a session under a policy, by name: the ledger's vocabulary."""

from __future__ import annotations

from collections import Counter

from kbeval.evaluation.ledger.labels import CANNOT_HAVE, Label
from kbeval.evaluation.ledger.lines import SessionLines, TurnLine

LOOKUPS = ("lookups", "found", "blocked", "avoided", "avoided_tokens", "documents")
TOKENS = ("tokens", "none_tokens", "saved", "saved_later", "saved_before", "saved_after")
PARTS = ("withheld_text", "refill", "notices")
RECORD = ("recorded", "never_diverges", "cut")
WITHHELD = (
    *(f"withheld_{label}" for label in Label),
    *(f"withheld_{label}_tokens" for label in Label),
    "withheld_by_text",
)
HARM = (
    *("answerable", "unlabelled", "answered_by_none", "answered"),
    *("could_lose", "harmed", "surely_harmed"),
    *(f"harmed_{label}" for label in Label),
    *("dead_ends", "gained", "primary_answers", "replaced", "grade_changed", "grade_removed"),
)
SESSION = (
    *("listed_by_supplement", "closed_needed", "closed_never_seen"),
    *("needs", "undelivered_by_none", "undelivered"),
)
LATER = "_later"  # the same tokens once for each later look-up that carries them
NAMES = (
    *(*LOOKUPS, *TOKENS, *PARTS, *(part + LATER for part in PARTS)),
    *(*RECORD, *WITHHELD, *HARM, *SESSION),
)


def quantities(lines: SessionLines, divergence: int | None = None) -> Counter[str]:
    """The quantities of one session under one policy.

    `divergence` is the turn, from 0, of the policy's first answer that differs from the record,
    the number of turns if none does, None without a record.
    """
    total: Counter[str] = Counter()
    for turn, line in enumerate(lines.turns):
        _add_lookup(total, line)
        _add_tokens(total, line)
        _add_withheld(total, line)
        _add_harm(total, line)
        if divergence is not None:
            total["saved_before" if turn <= divergence else "saved_after"] += line.parts.saved
    if divergence is not None:
        total["recorded"] = 1
        total["never_diverges"] = int(divergence >= len(lines.turns))
    total["listed_by_supplement"] = lines.closed.listed
    total["closed_needed"] = lines.closed.needed_later
    total["closed_never_seen"] = lines.closed.never_seen
    total["needs"] = lines.needs
    total["undelivered_by_none"] = lines.undelivered_by_none
    total["undelivered"] = lines.undelivered
    return total


def _add_lookup(total: Counter[str], line: TurnLine) -> None:
    policy = line.policy
    total["lookups"] += 1
    total["found"] += policy.found
    total["blocked"] += policy.reason == "ALL_RETRIEVED"
    total["documents"] += len(policy.handed)
    if policy.skipped:
        total["avoided"] += 1
        total["avoided_tokens"] += line.none.token_count
    total["grade_changed"] += line.grade_changed
    total["grade_removed"] += line.grade_changed and not policy.found


def _add_tokens(total: Counter[str], line: TurnLine) -> None:
    total["tokens"] += line.policy.token_count
    total["none_tokens"] += line.none.token_count
    total["saved"] += line.parts.saved
    total["saved_later"] += line.parts.saved * line.later
    for name in PARTS:
        tokens = getattr(line.parts, name)
        total[name] += tokens
        total[name + LATER] += tokens * line.later


def _add_withheld(total: Counter[str], line: TurnLine) -> None:
    for withheld in line.withheld:
        total[f"withheld_{withheld.label}"] += 1
        total[f"withheld_{withheld.label}_tokens"] += withheld.token_count
        total["withheld_by_text"] += withheld.by_text


def _add_harm(total: Counter[str], line: TurnLine) -> None:
    total["unlabelled"] += not line.needed.known
    harm = line.harm
    if harm is None:
        return
    total["answerable"] += 1
    total["answered_by_none"] += harm.answered_by_none
    total["answered"] += harm.answered
    total["could_lose"] += harm.could_lose
    total["gained"] += harm.gained
    total["dead_ends"] += harm.dead_end
    if harm.cause is not None:
        total["harmed"] += 1
        total[f"harmed_{harm.cause}"] += 1
        total["surely_harmed"] += harm.cause in CANNOT_HAVE
    if harm.replaced is not None:
        total["primary_answers"] += 1
        total["replaced"] += harm.replaced
