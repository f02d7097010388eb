"""A study: a yml that names a set, an encoder, settings and the notebooks to run."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbeval.config import Settings, load_settings
from kbeval.errors import ConfigError
from kbeval.studies.parameters import notebook_parameters
from kbeval.studies.spelled import plain, read_spelled_yml, spelling

KEYS = ("name", "set", "encoder", "split", "centre-from", "settings", "notebooks")
PARAMETER_OF = {  # key of a study -> parameter of a notebook
    "set": "set_folder",
    "encoder": "encoder",
    "split": "split",
    "centre-from": "centre_from",
    "settings": "settings",
}


@dataclass(frozen=True, slots=True)
class StudyNotebook:
    """One notebook of a study and the parameters written beside it."""

    path: Path
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Study:
    """A study as written; `common` holds what it gives to every notebook that declares it."""

    path: Path
    name: str
    notebooks: tuple[StudyNotebook, ...]
    common: Mapping[str, object] = field(default_factory=dict)  # by parameter name
    fingerprint: str = ""  # of the yml and its notebooks

    @property
    def results(self) -> Path:
        """Where its runs go: `results` beside the folder `studies`, else beside the yml."""
        folder = self.path.resolve().parent
        return (folder.parent if folder.name == "studies" else folder) / "results" / self.name

    @property
    def settings(self) -> Settings:
        """The tool's settings; the specs' defaults where the study gives none."""
        given = self.common.get("settings")
        return load_settings(given if isinstance(given, Mapping) else None)

    @property
    def centre_from(self) -> Path | None:
        """Where the real queries for a centre come from, if the study says so."""
        value = self.text("centre_from")
        return None if value is None else self.path.parent / value

    def text(self, name: str) -> str | None:
        """What the study gives for a parameter that is text; None if nothing."""
        value = self.common.get(name)
        return str(value) if value else None


def load_study(path: str | Path) -> Study:
    """Read a study; its paths are relative to the yml.

    Raises `ConfigError` for an unknown key, a missing or wrong value, settings that
    `config.load_settings` refuses, or a key that none of the notebooks takes.
    """
    path = Path(path)
    content = read_spelled_yml(path)
    _refuse_unknown(content, KEYS, str(path))
    name = _text(content, "name", path) or path.stem
    if not name or name.startswith(".") or set(name) & set('/\\:*?"<>|'):
        raise ConfigError(f"{path}: name {name!r} cannot name a folder; letters and - are safe")
    entries = content.get("notebooks")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{path}: notebooks: got {plain(entries)!r}; a list of them is expected")
    notebooks = tuple(_notebook(entry, path, i) for i, entry in enumerate(entries, start=1))
    study = Study(path, name, notebooks, _common(content, path), _fingerprint(path, notebooks))
    _refuse_untaken(study)
    return study


def _notebook(entry: object, path: Path, number: int) -> StudyNotebook:
    where = f"{path}: notebooks[{number}]"
    if isinstance(entry, str):
        entry = {"notebook": entry}
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: got {plain(entry)!r}; a mapping with a notebook is expected")
    _refuse_unknown(entry, ("notebook", "parameters"), where)
    notebook, parameters = spelling(entry.get("notebook")), entry.get("parameters") or {}
    if not isinstance(notebook, str):
        raise ConfigError(
            f"{where}: notebook: got {notebook!r}; the path of a notebook is expected"
        )
    if not isinstance(parameters, dict):
        raise ConfigError(f"{where}: parameters: got {plain(parameters)!r}; a mapping is expected")
    return StudyNotebook(path.parent / notebook, parameters)


def _common(content: Mapping[str, object], path: Path) -> dict[str, object]:
    """What the study gives to its notebooks, by parameter name."""
    common: dict[str, object] = {}
    for key in ("set", "encoder", "split", "centre-from"):
        value = _text(content, key, path)
        if value is not None:
            common[PARAMETER_OF[key]] = value
    if "set_folder" in common:
        folder = path.parent / str(common["set_folder"])
        if not folder.exists():
            raise ConfigError(
                f"{path}: set: nothing is at {str(folder)!r}; a set is expected there"
            )
        common["set_folder"] = str(folder.resolve())
    if content.get("settings") is not None:
        settings = plain(content["settings"])
        if not isinstance(settings, dict):
            raise ConfigError(f"{path}: settings: got {settings!r}; a mapping is expected")
        try:
            load_settings(settings)
        except ConfigError as error:
            raise ConfigError(f"{path}: settings: {error}") from None
        common["settings"] = settings
    return common


def _text(content: Mapping[str, object], key: str, path: Path) -> str | None:
    value = spelling(content.get(key))
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{path}: {key}: got {plain(value)!r}; text is expected")
    return value


def _refuse_unknown(content: Mapping[str, object], known: Sequence[str], where: str) -> None:
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError(
                f"{where}: unknown key {key!r}; {hint}known keys are {', '.join(known)}"
            )


def _refuse_untaken(study: Study) -> None:
    """A key that no notebook declares would change nothing: say so before anything runs."""
    declared = {name for entry in study.notebooks for name in notebook_parameters(entry.path)}
    for key, name in PARAMETER_OF.items():
        if name in study.common and name not in declared:
            raise ConfigError(
                f"{study.path}: {key} is set, but none of the notebooks declares a parameter "
                f"{name!r}; they declare {', '.join(sorted(declared)) or 'none'}"
            )


def _fingerprint(path: Path, notebooks: Sequence[StudyNotebook]) -> str:
    """SHA-256 over the bytes of the yml and of its notebooks, in order."""
    digest = hashlib.sha256()
    for file in (path, *(entry.path for entry in notebooks)):
        if not file.is_file():
            raise ConfigError(f"{path}: no notebook is at {str(file)!r}")
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
