"""YAML that keeps the spelling: `00123`, `no` and `2024-01-02` can still become text (PM-01)."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

import yaml

from kbeval.errors import ConfigError

_NULL, _TEXT = "tag:yaml.org,2002:null", "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True)
class Spelled:
    """An unquoted YAML scalar: the text as written, and the value YAML makes of it."""

    text: str
    value: object


def read_spelled_yml(path: Path) -> dict[str, object]:
    """A yml file as a mapping whose unquoted numbers, flags and dates are `Spelled`.

    Quoted text is `str`, null is None, an empty file is an empty mapping. Raises `ConfigError`
    for a file that cannot be read, is not YAML, is no mapping, or names a key twice.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = _value(node, path) if node is not None else {}
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{path}: a YAML alias contains itself; a tree is expected") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: a mapping is expected, found {type(plain(content)).__name__}")
    return content


def plain(value: object) -> object:
    """The usual YAML value of something spelled, at any depth; a date or time stays its text.

    >>> plain({"k": Spelled("5", 5), "on": [Spelled("no", False)]})
    {'k': 5, 'on': [False]}
    """
    if isinstance(value, Spelled):
        return value.text if isinstance(value.value, datetime.date) else value.value
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def spelling(value: object) -> object:
    """The text of something spelled; anything else as it is.

    >>> spelling(Spelled("012", 10)), spelling("a"), spelling(None)
    ('012', 'a', None)
    """
    return value.text if isinstance(value, Spelled) else value


def _value(node: yaml.Node, path: Path) -> object:
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, path) for item in node.value]
    if node.tag == _NULL:
        return None
    text = str(node.value)
    return text if node.tag == _TEXT else Spelled(text, _standard(node))


def _mapping(node: yaml.MappingNode, path: Path) -> dict[str, object]:
    content: dict[str, object] = {}
    for key_node, value_node in node.value:
        where = f"{path}:{key_node.start_mark.line + 1}"
        if not isinstance(key_node, yaml.ScalarNode):
            raise ConfigError(f"{where}: a key is expected to be text, found a {key_node.id}")
        if key_node.value in content:
            raise ConfigError(f"{where}: key {key_node.value!r} stands twice; once is allowed")
        content[key_node.value] = _value(value_node, path)
    return content


def _standard(node: yaml.Node) -> object:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    except ValueError:  # looks like a date and is none, as 2024-13-45
        return str(node.value)
    finally:
        loader.dispose()
