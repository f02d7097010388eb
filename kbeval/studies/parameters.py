"""The parameters a notebook declares, and values checked against them before a kernel starts."""

from __future__ import annotations

import ast
import difflib
import io
import json
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbeval.errors import ConfigError
from kbeval.studies.spelled import read_spelled_yml, spelling
from kbeval.studies.typed import KINDS, kind_of, kind_of_annotation, typed

TAG = "parameters"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One assignment of the cell tagged `parameters`.

    `type` is str, int, float, bool, Path, dict, list, list[...] of a scalar, or any. `help` is
    the comment behind it, `line` its line in the cell, from 1.
    """

    name: str
    type: str
    default: object
    help: str = ""
    line: int = 0


def notebook_parameters(path: str | Path) -> dict[str, Parameter]:
    """The parameters of a notebook by name, in the order of the cell; nothing is executed.

    Raises `ConfigError` if the file is no notebook, if no cell or several are tagged
    `parameters`, or if that cell holds anything but assignments of literals (PM-02).
    """
    source = _tagged_source(path)
    if source is None:
        raise ConfigError(f"{path}: no cell is tagged parameters; one code cell must be")
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ConfigError(
            f"{path}: line {error.lineno} of the cell tagged parameters is not Python "
            f"({error.msg}); only name = literal is allowed"
        ) from None
    comments = _comments(source)
    found = (_parameter(statement, comments, path) for statement in tree.body)
    return {parameter.name: parameter for parameter in found}


def checked_parameters(
    path: str | Path, given: Mapping[str, object], *, base: str | Path | None = None
) -> dict[str, Any]:
    """The values given, as the types the notebook declares; the others keep their defaults.

    Relative values of `Path` parameters are made absolute against `base` (default: the working
    directory). Raises `ConfigError` for an unknown name, a value of another type, or a later
    cell that sets the parameter to a literal again, so that the value would not be used.
    """
    if not given:
        _tagged_source(path)  # two tagged cells are refused all the same
        return {}
    declared = notebook_parameters(path)
    for name in given:
        if name not in declared:
            raise ConfigError(_unknown(name, declared, path))
    values = {name: _converted(declared[name], value, path) for name, value in given.items()}
    _refuse_overwritten(path, values)
    return {
        name: _absolute(value, base) if declared[name].type.endswith(("Path", "Path]")) else value
        for name, value in values.items()
    }


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Read `name=value` as typed on a command line; the values stay text.

    Raises `ConfigError` for an entry without `=`, a name that is none, or a name given twice.

    >>> parse_assignments(["session=00123", "note=a=b"])
    {'session': '00123', 'note': 'a=b'}
    """
    values: dict[str, str] = {}
    for entry in assignments:
        name, equals, value = entry.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError(f"parameter {entry!r} is not understood; name=value is expected")
        if name in values:
            raise ConfigError(
                f"parameter {name!r} is given twice, as {values[name]!r} and {value!r}; "
                "once is allowed"
            )
        values[name] = value
    return values


def read_parameters(path: str | Path) -> dict[str, object]:
    """Parameters from a yml file, every value as it is written (PM-01); an empty file is none.

    For `checked_parameters`, which reads them as the declared types. Raises `ConfigError`.
    """
    return read_spelled_yml(Path(path))


def notebook_cells(path: str | Path) -> list[dict[str, Any]]:
    """The cells of a notebook file with their source as one text. Raises `ConfigError`."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such notebook") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path}: not a notebook ({error})") from None
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list):
        raise ConfigError(f"{path}: not a notebook of format 4; a list named cells is expected")
    return [{**cell, "source": "".join(cell.get("source", ""))} for cell in cells]


def _tagged(cell: Mapping[str, Any]) -> bool:
    return cell["cell_type"] == "code" and TAG in cell.get("metadata", {}).get("tags", [])


def _tagged_source(path: str | Path) -> str | None:
    sources = [str(cell["source"]) for cell in notebook_cells(path) if _tagged(cell)]
    if len(sources) > 1:
        raise ConfigError(f"{path}: {len(sources)} cells are tagged parameters; one is allowed")
    return sources[0] if sources else None


def _parameter(statement: ast.stmt, comments: Mapping[int, str], path: str | Path) -> Parameter:
    annotation: ast.expr | None = None
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            pass
        case ast.AnnAssign(
            target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value
        ):
            pass
        case _:
            raise ConfigError(_no_literal(statement, path))
    try:
        default = ast.literal_eval(value)
    except (ValueError, TypeError):
        raise ConfigError(_no_literal(statement, path)) from None
    kind = kind_of(default) if annotation is None else kind_of_annotation(annotation)
    if kind is None:
        found = ast.unparse(annotation) if annotation else ""
        raise ConfigError(
            f"{path}: parameter {name!r} is annotated {found}; allowed are {', '.join(KINDS)}"
        )
    last = statement.end_lineno or statement.lineno
    return Parameter(name, kind, default, comments.get(last, ""), statement.lineno)


def _no_literal(statement: ast.stmt, path: str | Path) -> str:
    return (
        f"{path}: line {statement.lineno} of the cell tagged parameters is "
        f"{ast.unparse(statement).splitlines()[0]!r}; only name = literal is allowed"
    )


def _comments(source: str) -> dict[int, str]:
    """Comments that stand behind code, by line from 1."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.lstrip("# ").rstrip()
        for token in tokens
        if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip()
    }


def _unknown(name: str, declared: Mapping[str, Parameter], path: str | Path) -> str:
    near = difflib.get_close_matches(name, declared, n=1)
    return (
        f"{path} declares no parameter {name!r}; "
        + (f"did you mean {near[0]!r}? " if near else "")
        + f"it declares {', '.join(declared) or 'none'}"
    )


def _converted(parameter: Parameter, value: object, path: str | Path) -> object:
    try:
        return typed(value, parameter.type)
    except ValueError as error:
        raise ConfigError(
            f"{path}: parameter {parameter.name!r} got {spelling(value)!r}; {error} is expected"
        ) from None


def _refuse_overwritten(path: str | Path, names: Iterable[str]) -> None:
    cells = notebook_cells(path)
    first = next(i for i, cell in enumerate(cells) if _tagged(cell))
    for number, cell in enumerate(cells[first + 1 :], start=first + 2):
        if "injected-parameters" in cell.get("metadata", {}).get("tags", []):
            continue
        for name in sorted(_literals(str(cell["source"])) & set(names)):
            raise ConfigError(
                f"{path}: cell {number} sets parameter {name!r} to a fixed value again, so the "
                "value given would not be used; only the cell tagged parameters may"
            )


def _literals(source: str) -> set[str]:
    """Names that a cell sets to a literal at its top level; magics and other text set none."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return set()
    return {
        target.id
        for statement in body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def _absolute(value: object, base: str | Path | None) -> object:
    if isinstance(value, list):
        return [_absolute(item, base) for item in value]
    if not isinstance(value, str) or not value:
        return value
    return str((Path(base or ".") / Path(value).expanduser()).resolve())
