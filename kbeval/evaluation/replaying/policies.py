"""Memory policies as data: what a session remembers, under which thresholds, and who obeys.

A policy is written as on a command line, `documents horizon-turns=6 reference=0.4`: first a named
policy, then settings under their yml keys. A named policy sets the whole memory; thresholds and
places are those of the base settings.

| policy | what it is |
|---|---|
| `none` | nothing is remembered: what savings are counted from |
| `documents` | the memory of REQ-01 as the live tool has it |
| `path` | known by path alone: REQ-01 to the letter |
| `content` | known by content alone, under whatever path |
| `primary` | only the primary is marked |
| `horizon` | what was given comes again; needs `horizon-turns` or `horizon-tokens` |
| `hints` | `documents`, and an executor that obeys the hints |
| `domains` | `documents`, and an executor that obeys the list of domains |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from kbeval.config import Settings, read_yml
from kbeval.errors import ConfigError
from kbeval.evaluation.replaying.policy_keys import NAMED, read_words, values_beside, with_values

NO_MEMORY = "none"
OBEDIENCE = 0.5  # of an executor that obeys, where nothing else is said
DEFAULT_POLICIES = (
    "none",
    "documents",
    "primary",
    "documents horizon-turns=8",
    "documents horizon-turns=4",
    "content",
    "hints",
)


@dataclass(frozen=True, slots=True)
class Policy:
    """The tool's settings that make a policy, under the name it has in tables.

    `obeys` is the executor, not the tool: it does not ask about a domain again after a PRECISE or
    HIGHLY_RELEVANT answer from it ("hints"), or after any document of it ("domains").
    """

    name: str
    settings: Settings
    obeys: Literal["nothing", "hints", "domains"] = "nothing"
    obedience: float = 1.0  # probability that it obeys, at each turn

    @property
    def remembers(self) -> bool:
        """Whether the tool keeps what a session was given."""
        return self.settings.session.memory != "none"

    def to_yml(self) -> dict[str, Any]:
        """Settings to paste: the memory, and what of the rest is no default.

        `load_settings` makes the same settings of it; the executor is not part of it.
        """
        changed = self.settings.model_dump(by_alias=True, mode="json", exclude_defaults=True)
        session = self.settings.session.model_dump(by_alias=True, mode="json")
        keys = ("memory", "mark", "known-by") if self.remembers else ("memory",)
        own = {key: session[key] for key in keys}
        return changed | {"session": own | changed.get("session", {})}


def parse_policy(text: str, base: Settings | None = None, *, name: str = "") -> Policy:
    """A policy from its text over the base settings; without `name` it is named by what it does.

    Raises `ConfigError` naming the policy and the word that is wrong.

    >>> parse_policy("documents horizon-turns=8").name
    'documents, 8 turns'
    """
    base = base or Settings()
    _, chosen = read_words(text)
    policy = Policy(name, with_values(text, base, chosen))
    if (obeys := chosen.get("obeys", "nothing")) != "nothing":
        obedience = chosen.get("obedience", OBEDIENCE)
        policy = replace(policy, obeys=obeys, obedience=obedience)
    return policy if name else replace(policy, name=_name(policy, base))


def policy_text(policy: Policy, base: Settings | None = None) -> str:
    """The text that `parse_policy` reads back as this policy, over the same base settings.

    >>> policy_text(parse_policy("horizon horizon-turns=8 mark=primary"))
    'primary horizon-turns=8'
    """
    kind, said = _parts(policy, base or Settings())
    return " ".join([kind, *(f"{key}={value}" for key, value in said.items())])


def load_policies(
    source: str | Path | Mapping[str, Any] | Sequence[str] | None = None,
    base: Settings | None = None,
) -> tuple[Policy, ...]:
    """Policies from a yml file, a mapping or a list of texts; None gives `DEFAULT_POLICIES`.

    A file or mapping has the key `policies`: a list of texts, or a mapping from names of your own
    to texts. No memory, named `none`, is always the first. Raises `ConfigError` for what cannot
    be read, for a policy that is given twice and for a name that is.
    """
    texts, where = _texts(DEFAULT_POLICIES if source is None else source)
    try:
        given = [parse_policy(text, base, name=name) for name, text in texts]
        nothing = parse_policy(NO_MEMORY, base)
        found = (nothing, *(policy for policy in given if policy != nothing))
        _check_distinct(given if nothing in given else found)
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from None
    return found


def _check_distinct(policies: Iterable[Policy]) -> None:
    by_name: dict[str, Policy] = {}
    by_rule: dict[Policy, Policy] = {}
    for policy in policies:
        other = by_rule.setdefault(replace(policy, name=""), policy)
        if other is not policy:
            raise ConfigError(
                f"policies {other.name!r} and {policy.name!r} are the same; give each once"
            )
        if by_name.setdefault(policy.name, policy) is not policy:
            raise ConfigError(f"two policies are named {policy.name!r}; give each its own name")


def _texts(
    source: str | Path | Mapping[str, Any] | Sequence[str],
) -> tuple[list[tuple[str, str]], str]:
    """Pairs of a name ("" for none of its own) and a text, and the place they stand in."""
    where = ""
    if isinstance(source, str | Path):
        where, source = f"{source}: ", read_yml(Path(source))
    listed: object = source
    if isinstance(source, Mapping):
        if set(source) != {"policies"}:
            keys = ", ".join(map(str, source)) or "none"
            raise ConfigError(f"{where}the keys are {keys}; the only one allowed is policies")
        listed = source["policies"]
    if isinstance(listed, Mapping):
        pairs = list(listed.items())
    elif isinstance(listed, Sequence) and not isinstance(listed, str):
        pairs = [("", text) for text in listed]
    else:
        raise ConfigError(f"{where}policies: got {listed!r}; a list of texts is expected")
    for name, text in pairs:
        if not isinstance(name, str) or not isinstance(text, str):
            shown = repr(text) if name == "" else f"{name!r}: {text!r}"
            raise ConfigError(f"{where}policies: {shown} is no policy; a text is expected")
    return pairs, where


def _parts(policy: Policy, base: Settings) -> tuple[str, dict[str, Any]]:
    """The named policy that is closest, and what must be said beside its name."""
    said = values_beside(policy.settings, base)
    if policy.obeys != "nothing":
        return policy.obeys, said | {"obedience": policy.obedience}
    kinds = ("none", "path", "content", "primary")
    kind = next((kind for kind in kinds if NAMED[kind].items() <= said.items()), "documents")
    return kind, {key: value for key, value in said.items() if key not in NAMED[kind]}


def _name(policy: Policy, base: Settings) -> str:
    kind, said = _parts(policy, base)
    words = {
        "horizon-turns": "{} turns",
        "horizon-tokens": "{} tokens",
        "obedience": "obeyed {}",
        "memory": "no memory",
        "mark": "primary marked",
    }
    return ", ".join([kind, *(words.get(key, key + " {}").format(said[key]) for key in said)])
