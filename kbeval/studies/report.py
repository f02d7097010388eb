"""A run's page: the three answers, the pictures of each notebook, how it ran, every file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from kbeval.studies.answers import answers


def page(folder: Path, manifest: Mapping[str, Any]) -> str:
    """The whole page in Markdown."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))
    lines = [f"# {manifest['study']}: {manifest['status']}", ""]
    for question, sentences in answers(folder).items():
        lines += [f"## {question}", "", *(line for said in sentences for line in (said, ""))]
    notebooks = [entry["file"] for entry in manifest["notebooks"]]
    lines += [*_pictures(files, notebooks), *_how_it_ran(manifest)]
    lines += ["", "## Files", ""]
    lines += [f"- [{name}](<{name}>)" for name in files if name != "index.md"]
    return "\n".join(lines) + "\n"


def ending(folder: Path) -> Iterator[str]:
    """What a run says last: its answers, then where everything is."""
    for question, sentences in answers(folder).items():
        yield "\n".join(("", question, *sentences))
    yield ""
    for picture in sorted(folder.rglob("*.png")):
        yield f"picture: {picture}"
    yield f"report: {folder / 'index.md'}"


def _pictures(files: Sequence[str], notebooks: Sequence[str]) -> Iterator[str]:
    """Under the notebook that drew them, in the order in which the notebooks ran."""
    pictures = [name for name in files if name.endswith(".png")]
    for notebook in notebooks:
        stem = PurePosixPath(notebook).stem
        home = f"{stem}/" if len(notebooks) > 1 else ""
        own = [name for name in pictures if name.startswith(home)]
        if own:
            yield from (f"## Pictures of [{stem}](<{notebook}>)", "")
        for name in own:
            yield from (f"![{PurePosixPath(name).stem}](<{name}>)", "")


def _how_it_ran(manifest: Mapping[str, Any]) -> Iterator[str]:
    yield "## How it ran"
    yield ""
    yield (
        f"Started {manifest['started']}, ended {manifest['ended']}, kbeval {manifest['kbeval']}, "
        f"Python {manifest['python']}."
    )
    yield ""
    yield "| notebook | status | seconds | error |"
    yield "|---|---|---|---|"
    for entry in manifest["notebooks"]:
        error = (entry["error"] or "").replace("|", "\\|")
        yield f"| {entry['file']} | {entry['status']} | {entry['seconds']} | {error} |"
