"""The markdown files of a folder: which of them are documents, and their text."""

from __future__ import annotations

import os
from pathlib import Path

from kbeval.corpus.fields import Rejected
from kbeval.records import Fault

ENDINGS = (".md", ".markdown")
_DATA_SET = ("dataset.yml", "queries.jsonl")


def markdown_files(root: Path) -> tuple[list[Path], list[Fault]]:
    """All markdown files below `root`, sorted by relative path, and the links that were refused.

    Hidden files and folders are passed over, and so is the README.md at the top of a data set.
    A link that leaves the root is an error. A link to a file that is loaded anyway, or to a
    folder, is a warning and not followed; a link to a hidden file of the folder is read.
    """
    files: list[Path] = []
    links: list[Path] = []
    faults: list[Fault] = []
    for folder, names, file_names in os.walk(root, onerror=lambda e: faults.append(_closed(e))):
        names[:] = sorted(name for name in names if not name.startswith("."))
        here = Path(folder)
        links += [here / name for name in names if (here / name).is_symlink()]
        for name in file_names:
            if name.startswith(".") or not name.lower().endswith(ENDINGS):
                continue
            (links if (here / name).is_symlink() else files).append(here / name)
    followed, refused = _follow(sorted(links), files, root.resolve())
    if any((root / name).is_file() for name in _DATA_SET):
        files = [file for file in files if file.parent != root or file.name.lower() != "readme.md"]
    files = sorted(files + followed, key=lambda file: file.relative_to(root).as_posix())
    return files, faults + refused


def _follow(links: list[Path], files: list[Path], root: Path) -> tuple[list[Path], list[Fault]]:
    """The links to read, and a fault for each other one."""
    if not links:
        return [], []
    taken = {file.resolve(): file for file in files}
    followed: list[Path] = []
    faults: list[Fault] = []
    for link in links:
        try:
            target = link.resolve(strict=True)
        except (OSError, RuntimeError):
            faults.append(Fault(str(link), "the link leads nowhere", "remove or repair it"))
            continue
        if not target.is_relative_to(root):
            problem = "the link leaves the folder of documents and is refused"
            faults.append(Fault(str(link), problem, "put the file itself there"))
        elif target.is_dir():
            problem = "a link to a folder is not followed"
            faults.append(Fault(str(link), problem, "put the files there", severity="warning"))
        elif target in taken:
            problem = f"the link leads to {taken[target]}, which is loaded already"
            faults.append(Fault(str(link), problem, "remove the link", severity="warning"))
        else:
            taken[target] = link
            followed.append(link)
    return followed, faults


def _closed(error: OSError) -> Fault:
    problem = f"the folder cannot be read ({error.strerror})"
    return Fault(str(error.filename), problem, "allow reading it")


def read_text(path: Path) -> str:
    """The text of a file, a byte-order mark included. Raises `Rejected` if it is no UTF-8."""
    if not path.is_file():
        raise Rejected("is no regular file", "put a text file there")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Rejected(f"cannot be read ({error.strerror})", "allow reading it") from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Rejected(
            f"not UTF-8: byte 0x{content[error.start]:02x} at offset {error.start}",
            "save the file as UTF-8",
            content.count(b"\n", 0, error.start) + 1,
        ) from None
