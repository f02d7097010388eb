"""Front matter: the block between two lines of three dashes at the top of a document (REQ-05).

Text stays text: `no`, `012`, `1.10` and dates keep their spelling, only `~` and nothing are null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from kbeval.corpus.fields import KNOWN_FIELDS, Entry, Rejected, checked_fields
from kbeval.records import Fault

MAX_VALUES = 10_000  # of one block, aliases followed
MAX_DEPTH = 50

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPEN = re.compile(r"---[ \t]*(?:\n|\Z)")
_CLOSE = re.compile(r"^---[ \t]*(?:\n|\Z)", re.MULTILINE)
_KEY_LINE = re.compile(r"^ {0,3}[\w.-]+[ \t]*:(?=\s|\Z)", re.MULTILINE)
_COLON = re.compile(rf"^({'|'.join(KNOWN_FIELDS)})[ \t]*(?:：|:(?=\S))", re.MULTILINE)
_NAMED = re.compile(r"\s*(- )?\s*(?:([\w.-]+)\s*:)?")
_LOST_COMMENT = re.compile(r"[ \t]+#\w")
_FIRST_LINE = 2  # of the block; line 1 is the opening rule


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What a document declares, and the text that follows.

    `fields` holds the known fields that are not empty (text, or a tuple of texts) and every other
    key as written (text, None, lists, mappings). With an error among `faults` it is empty.
    """

    fields: Mapping[str, Any]
    body: str
    body_line: int = 1  # physical line on which the body starts
    faults: tuple[Fault, ...] = ()


def parse_front_matter(text: str, file: str) -> FrontMatter:
    r"""Split a document into its declared fields and its body; never raises for its content.

    A byte-order mark and CRLF are nothing. The block opens on line 1 and closes at the first line
    of three dashes (trailing blanks allowed) after it. A bare text between two rules is body; a
    list, broken YAML and a block that is never closed are errors. `file` names the place in faults.

    >>> parse_front_matter("---\ntitle: 012\n---\nBody.", "a.md").fields
    {'title': '012'}
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    opening = _OPEN.match(text)
    if opening is None:
        return FrontMatter({}, text, faults=_late(text, file))
    closing = _CLOSE.search(text, opening.end())
    if closing is None:
        return FrontMatter({}, text, faults=(_unclosed(text[opening.end() :], file),))
    block, body = text[opening.end() : closing.start()], text[closing.end() :]
    try:
        entries = _Block(block, file).entries()
    except Rejected as wrong:
        fault = Fault(file, wrong.problem, wrong.remedy, wrong.line)
        return FrontMatter({}, body, _line(text, closing.end()), (fault,))
    if entries is None:
        return FrontMatter({}, text)
    fields, faults = checked_fields(entries.top, file)
    faults = list(dict.fromkeys([*entries.faults, *faults]))
    if any(fault.severity == "error" for fault in faults):
        fields = {}
    return FrontMatter(fields, body, _line(text, closing.end()), tuple(faults))


@dataclass(slots=True)
class _Entries:
    """The keys of a block, and the warnings met while reading them."""

    top: list[Entry] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    count: int = 0


class _Block:
    """Reads the YAML of one block; its marks are turned into physical lines."""

    def __init__(self, block: str, file: str) -> None:
        self.block, self.file = block, file
        self.read = _Entries()

    def entries(self) -> _Entries | None:
        """The entries of the mapping; None for a bare text. Raises `Rejected`."""
        try:
            node = yaml.compose(self.block, Loader=_LOADER)
        except (yaml.YAMLError, RecursionError) as error:
            self._check_colons()
            if not _KEY_LINE.search(self.block):
                return None
            raise _explained(error, self.block) from None
        if isinstance(node, yaml.ScalarNode):
            self._check_colons()
            return None
        if isinstance(node, yaml.SequenceNode):
            raise Rejected(
                "the front matter is a list; a mapping of field: value is expected",
                "write each line as 'field: value', or put an empty line above the first rule",
                self._line(node),
            )
        for key, value in node.value if node is not None else ():
            self.read.top.append(Entry(self._key(key), self._plain(value, 0), self._line(key)))
        return self.read

    def _check_colons(self) -> None:
        """Say so where a field would be taken for prose: `title:Limits`, or a full-width colon."""
        if wrong := _COLON.search(self.block):
            raise Rejected(
                f"the colon after {wrong[1]} is full-width or has no blank behind it",
                f"write '{wrong[1]}: value'",
                _line(self.block, wrong.start(), _FIRST_LINE),
            )

    def _plain(self, node: yaml.Node, depth: int) -> Any:  # noqa: ANN401
        self.read.count += 1
        if self.read.count > MAX_VALUES or depth > MAX_DEPTH:
            raise Rejected(
                f"the front matter expands to more than {MAX_VALUES} values or {MAX_DEPTH} levels",
                "write the values out instead of using aliases",
                self._line(node),
            )
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(entry, depth + 1) for entry in node.value]
        values: dict[str, Any] = {}
        for key, value in node.value:
            name = self._key(key)
            if name in values:
                self._warn(key, f"key {name!r} is written twice; the first value is taken", "")
            values.setdefault(name, self._plain(value, depth + 1))
        return values

    def _scalar(self, node: yaml.ScalarNode) -> str | None:
        if node.style:  # quoted, or a block
            return str(node.value)
        if _LOST_COMMENT.match(self.block, node.end_mark.index):
            problem = f"what follows {node.value!r} from the # on is read as a comment"
            self._warn(node, problem, "put the whole value in quotes")
        return None if node.value in ("", "~") else str(node.value)

    def _key(self, node: yaml.Node) -> str:
        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        return self.block[node.start_mark.index : node.end_mark.index].strip()

    def _warn(self, node: yaml.Node, problem: str, remedy: str) -> None:
        self.read.faults.append(Fault(self.file, problem, remedy, self._line(node), "warning"))

    def _line(self, node: yaml.Node) -> int:
        return _line(self.block, node.start_mark.index, _FIRST_LINE)


def _line(text: str, index: int, first: int = 1) -> int:
    """Physical line of a position; YAML's own count also breaks lines at U+2028 and the like."""
    return first + text.count("\n", 0, index)


def _late(text: str, file: str) -> tuple[Fault, ...]:
    """A warning where blank lines keep a block from being front matter."""
    opening = _OPEN.match(text.lstrip())
    if opening is None or not _KEY_LINE.match(text.lstrip(), opening.end()):
        return ()
    line = _line(text, len(text) - len(text.lstrip()))
    problem = "the front matter does not start on line 1 and is read as body"
    return (Fault(file, problem, "remove what stands above it", line, "warning"),)


def _unclosed(rest: str, file: str) -> Fault:
    """An error where the first line reads like a field, else a warning: the rule is body."""
    if _KEY_LINE.match(rest):
        problem = "the front matter is opened and never closed"
        return Fault(file, problem, "put a line of three dashes below the last field", 1)
    problem = "three dashes on line 1 open no front matter; they are read as body"
    return Fault(file, problem, "put an empty line above them", 1, "warning")


def _explained(error: Exception, block: str) -> Rejected:
    """What is wrong with the YAML, on which physical line, and how to put it right."""
    index = _place(error, block)
    line = _line(block, index, _FIRST_LINE)
    start = block.rfind("\n", 0, index) + 1
    written = block[start:].split("\n", 1)[0]
    named = _NAMED.match(written)
    entry, key = named.groups() if named else (None, None)
    name = "entry" if entry else key or "value"
    if "\t" in written[: len(written) - len(written.lstrip())]:
        tab = "a tab is used as indentation"
        return Rejected(tab, "use spaces instead of the tab", line)
    if isinstance(error, yaml.reader.ReaderError):
        control = f"the {name} holds the control character U+{ord(block[index]):04X}"
        return Rejected(control, "remove it", line)
    problem = str(getattr(error, "problem", None) or "too many levels")
    quote = f"put the {name} in quotes"
    for sign, meaning, remedy in (
        ("mapping values are not allowed", f"the {name} holds an unquoted colon", quote),
        ("alias", f"the {name} begins with a mark that YAML reserves", quote),
        ("cannot start any token", f"the {name} begins with a mark that YAML reserves", quote),
        (
            "end of stream",
            f"a quotation mark of the {name} is never closed",
            f"{quote} at both ends",
        ),
        ("',' or ']'", f"a bracket of the {name} is never closed", f"close it, or {quote}"),
        ("expected ':'", f"{written.strip()!r} is no field", "write 'field: value', or indent it"),
    ):
        if sign in problem:
            return Rejected(meaning, remedy, line)
    return Rejected(f"not valid YAML ({problem})", quote, line)


def _place(error: Exception, block: str) -> int:
    """Position of an error: where the thing began, if the fault shows only at its end."""
    if isinstance(error, yaml.reader.ReaderError):
        wrong = yaml.reader.Reader.NON_PRINTABLE.search(block)
        return wrong.start() if wrong else 0
    problem, context = (getattr(error, name, None) for name in ("problem_mark", "context_mark"))
    place = int(problem.index) if problem else 0
    late = place >= len(block.rstrip()) or "expected ':'" in str(error)
    if context and (late or "',' or ']'" in str(error)):
        return int(context.index)
    return place
