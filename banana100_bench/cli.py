"""The command line: it reads the options, calls one function of the package, and says what came out.

Nothing heavy is imported at the top: `banana100 --help` must answer at once.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from banana100_bench import __version__
from banana100_bench.errors import BananaError, UsageError

if TYPE_CHECKING:
    from banana100_bench.harness import Machine, ModelChoice
    from banana100_bench.results import Result

app = typer.Typer(
    name="banana100",
    help="Is your no-reference image quality metric blind to iterative degradation?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
board_app = typer.Typer(help="The leaderboard.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(board_app, name="leaderboard")
models_app = typer.Typer(help="The models that can be judged.", rich_markup_mode=None)
app.add_typer(models_app, name="models")


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _global(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def _pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    pairs = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise UsageError(f"{option} {text!r}: expected NAME=VALUE")
        if key in pairs:
            raise UsageError(f"{option} {key}: given twice")
        pairs[key] = value
    return pairs


Data = Annotated[
    str, typer.Option("--data", help="Dataset folder, as `banana100 build` writes it, or ORG/NAME on the Hub.")
]
Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...",
        help="pyiqa:NAME, package.module:function, file.py:function, vlm:MODEL, command:PROGRAM, scores:FILE (csv, "
        "jsonl, parquet), baseline:NAME, suite:NAME; `banana100 models` lists them.",
        show_default=False,
    ),
]
Weights = Annotated[
    list[str] | None,
    typer.Option(help="Weight file of a pyiqa model: NAME=FILE (as niqe=niqe.mat), or FILE if there is one model."),
]
Direction = Annotated[
    bool | None,
    typer.Option(
        "--higher-is-better/--lower-is-better", help="Direction of the scores, where the model does not declare it."
    ),
]
Store = Annotated[Path, typer.Option(help="Folder that keeps the scores; a rerun computes only what it lacks.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", help="Option of the model, as seed=1, where there is one model. Repeatable."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16 or float16; another is another model in the store.")]
Workers = Annotated[
    str,
    typer.Option(help="Processes: auto, or a number; 0 for this process alone. Memory decides how many run at once."),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Of each worker. [default: what the cores allow]")]
Batch = Annotated[int, typer.Option(min=1, help="Pictures of one size at a time, for models that take several.")]
Repeats = Annotated[
    int, typer.Option(min=1, help="Ask a model that draws random numbers so often: mean, and the spread.")
]
MaxPixels = Annotated[
    int | None, typer.Option(min=1, help="Make larger pictures smaller. [default: every picture as it is]")
]
Timeout = Annotated[float | None, typer.Option(min=0.001, help="Seconds that a picture may take. [default: no limit]")]
Engine = Annotated[str, typer.Option(help="local, or ray: on a cluster, or several GPUs (docs/scaling.md).")]
Settings = Annotated[list[str] | None, typer.Option("--setting", help="Only this setting of the dataset. Repeatable.")]
Results = Annotated[list[Path], typer.Argument(help="Result JSON files, or folders of them.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON in place of the table.")]
Baseline = Annotated[int, typer.Option(min=0, help="Round that the later ones are compared with.")]
Later = Annotated[str, typer.Option(help="The later rounds.")]


def _choices(
    models: list[str], weights: list[str] | None, higher_is_better: bool | None, options: list[str] | None
) -> list[ModelChoice]:
    """The models of a call, suites taken apart, each with its weight file, direction and options.

    The direction is for those that declare none; only where a model stands alone is it held against what it declares.
    """
    from banana100_bench.harness import ModelChoice
    from banana100_bench.models import DECLARING
    from banana100_bench.models.suites import expand

    named, models = set(models), expand(models)
    if options and len(models) != 1:
        raise UsageError(f"--option {options[0]}: with several models it is not clear whose; name one model")
    if weights and len(weights) == 1 and "=" not in weights[0]:
        if len(models) != 1:
            raise UsageError(f"--weights {weights[0]}: with several models, say whose: NAME=FILE")
        files = {models[0]: weights[0]}
    else:
        files = _pairs(weights, "--weights")
    choices = []
    for spec in models:
        kind, _, name = spec.partition(":")
        file = files.pop(spec, None) or files.pop(name, None)
        own = Path(file) if file else None
        direction = None if kind in DECLARING and len(models) > 1 else higher_is_better
        choices.append(ModelChoice(spec, own, direction, _pairs(options, "--option"), spec not in named))
    if files:
        raise UsageError(f"--weights {next(iter(files))}: no such model in this call; choices: {', '.join(models)}")
    return choices


def _machine(
    device: str,
    dtype: str,
    workers: str,
    threads: int | None,
    batch: int,
    repeats: int,
    max_pixels: int | None,
    timeout: float | None,
    engine: str,
) -> Machine:
    from banana100_bench.harness import Machine

    if workers != "auto" and not workers.isdecimal():
        raise UsageError(f"--workers {workers}: expected auto or a number from 0")
    if engine not in ("local", "ray"):
        raise UsageError(f"--engine {engine}: choices: local, ray")
    count = None if workers == "auto" else int(workers)
    return Machine(device, dtype, count, threads, batch, repeats, max_pixels, timeout, engine)


def _tell_problems(problems: Sequence[str]) -> None:
    """Say which models came to nothing, and fail: they were asked for."""
    if len(problems) == 1:
        raise BananaError(problems[0])
    for line in problems:
        print(f"no result: {line}", file=sys.stderr)
    if problems:
        raise BananaError(f"{len(problems)} models came to nothing, as said above; the others are done")


@app.command()
def generate(
    out: Annotated[Path, typer.Argument(help="Folder for the raw runs; a rerun continues there.")],
    editor: Annotated[
        str,
        typer.Option(
            help="simulated, gemini[:MODEL], vertex[:MODEL], flux2, flux-kontext, qwen-image-edit, instruct-pix2pix, "
            "autoencoder:FOLDER, path.py:function."
        ),
    ] = "simulated",
    option: Annotated[
        list[str] | None, typer.Option(help="Of the editor: NAME=VALUE, as tier=flex. Repeatable.")
    ] = None,
    initial: Annotated[
        list[str] | None,
        typer.Option(help="Initial images: a folder, a file, or photos[:NAME,NAME] that libraries ship. Repeatable."),
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=16, help="Resize initial images so that the longer side has so many pixels.")
    ] = None,
    min_side: Annotated[
        int | None,
        typer.Option(
            min=0, help="Refuse smaller initial images. [default: 2048 for an editor that costs money, else 0]"
        ),
    ] = None,
    style: Annotated[str, typer.Option(help="Of the initial images: photo, anime or unknown.")] = "unknown",
    campaign: Annotated[
        str | None, typer.Option(help="A set of settings: banana100, replication, cross-model, more-models.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option(help="Settings, the protocol's or of --settings-file. Repeatable.")
    ] = None,
    settings_file: Annotated[Path | None, typer.Option(help="YAML with settings of your own.")] = None,
    repetitions: Annotated[int | None, typer.Option(min=1, help="[default: the campaign's, 5]")] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help='Of each run; the paper says "steps". [default: the campaign\'s, 100]')
    ] = None,
    seed: Annotated[str, typer.Option(help="Seed of repetition 0; repetition r has seed + r; none sends none.")] = "0",
    temperature: Annotated[float | None, typer.Option(help="Sent to the editor.")] = None,
    resolution: Annotated[str | None, typer.Option(help="Sent to the editor, as 2K.")] = None,
    max_concurrency: Annotated[int, typer.Option(min=1, help="Runs at once.")] = 2,
    budget_usd: Annotated[
        float | None, typer.Option(min=0, help="Never spend more in this folder, calls in flight counted.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Begin no call after: 2026-05-01T08:00, 90m, 8h, 2d.")] = None,
    retry_blocked: Annotated[bool, typer.Option("--retry-blocked", help="Try blocked runs again.")] = False,
    redo: Annotated[
        bool,
        typer.Option(
            "--redo",
            help="Where a file of a run is missing or changed, make that round and all after it anew, over what is "
            "there. [default: the run fails, untouched]",
        ),
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Print runs, calls, cost and time; do nothing.")] = False,
) -> None:
    """Make runs: feed an editor its own output, round after round."""
    from banana100_bench import protocol
    from banana100_bench.generate.campaign import run_plan
    from banana100_bench.generate.control import parse_until
    from banana100_bench.generate.editors import open_editor
    from banana100_bench.generate.initial import PAPER_SIDE, open_initial
    from banana100_bench.generate.plan import make_plan
    from banana100_bench.generate.settings_file import choose_settings, read_settings

    if campaign and setting:
        raise UsageError("--campaign and --setting: give one of them")
    if seed != "none" and not seed.isdecimal():
        raise UsageError(f"--seed {seed}: expected a number from 0, or none")
    chosen = protocol.campaign(campaign) if campaign else None
    chosen_editor = open_editor(editor, _pairs(option, "--option"))
    if min_side is None:
        min_side = PAPER_SIDE if chosen_editor.estimate(resolution).usd_at_most else 0
    ends = parse_until(until) if until else None
    planned = make_plan(
        chosen_editor,
        open_initial(initial or ["photos"], size, style=style, min_side=min_side),
        out,
        settings=choose_settings(
            list(chosen.images) if chosen else setting or [], read_settings(settings_file) if settings_file else []
        ),
        images=chosen.images if chosen else None,
        repetitions=repetitions or (chosen.repetitions if chosen else protocol.REPETITIONS),
        rounds=rounds or (chosen.rounds if chosen else protocol.ROUNDS),
        seed=None if seed == "none" else int(seed),
        temperature=temperature,
        resolution=resolution,
        max_concurrency=max_concurrency,
        redo=redo,
        check_files=plan,
    )
    if plan:
        print(planned.text())
    else:
        print(run_plan(planned, out, budget_usd=budget_usd, until=ends, retry_blocked=retry_blocked).summary())


@app.command()
def build(
    raw: Annotated[
        str,
        typer.Argument(
            help="Folder of raw runs or any tree of images; a CSV, JSON-lines or Parquet table that lists files; or a "
            "dataset on the Hub, as hf://datasets/ORG/NAME[@REVISION]."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Dataset folder to write.")] = Path("banana100"),
    pattern: Annotated[
        str | None,
        typer.Option(
            help="Where the facts stand in the paths of a tree: "
            '"{setting}/{initial_image}/rep{repetition}/step_{step}.{ext}". Without it one is guessed and shown.'
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A fact that all rows share: editor=flux.1-kontext-dev. Repeatable."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the dataset, by default that of the folder.")] = None,
    licence: Annotated[
        str, typer.Option(help="Licence of the images, an id of the Hub's list, as cc-by-4.0.")
    ] = "unknown",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a dataset folder built before.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how the files are understood and what is wrong; write nothing.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse where an image is missing, unreadable or there twice.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads that read ahead. [default: up to 4]")] = None,
) -> None:
    """Package raw runs as a Parquet dataset that load_dataset opens. A rerun continues a build that was cut short."""
    from banana100_bench.package import build as building
    from banana100_bench.package.incoming import fetch, locate
    from banana100_bench.package.licences import check_licence

    workers = workers or building.WORKERS
    name = building.dataset_name(name, out)  # before a dataset on the Hub is downloaded
    check_licence(licence)
    found = locate(raw, pattern, _pairs(set_, "--set"))
    print(found.describe())
    if dry_run:
        lines = found.leftovers() if found.hub else [building.preview(found, workers=workers).summary()]
        print("\n".join(lines))
        return
    report = building.build(
        fetch(found), out, name=name, licence=licence, overwrite=overwrite, strict=strict, workers=workers
    )
    print(report.summary())


@app.command()
def verify(
    data: Annotated[str, typer.Argument(help="Dataset folder, or ORG/NAME[@REVISION] on the Hub.")] = "banana100",
    quick: Annotated[bool, typer.Option("--quick", help="Read no image: manifest, sizes, rows, schema only.")] = False,
) -> None:
    """Check a dataset: every file, row, chain and image; one line a fault."""
    from banana100_bench.verify import verify as check

    checked = check(data, quick=quick)
    for fault in checked.faults:
        print(fault)
    if checked.faults:
        raise BananaError(checked.summary())
    print(checked.summary())


@app.command()
def push(
    folder: Annotated[Path, typer.Argument(help="Dataset folder, as `banana100 build` writes it.")],
    repo: Annotated[str, typer.Argument(help="ORG/NAME of the dataset on the Hub; created where it is not there.")],
    private: Annotated[bool, typer.Option("--private", help="Create it private.")] = False,
    create_pr: Annotated[bool, typer.Option("--create-pr", help="Propose the change as a pull request.")] = False,
    tag: Annotated[str | None, typer.Option(help="Name the new state, as v1.0.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sent; do nothing.")] = False,
) -> None:
    """Publish a dataset on the Hub: only what changed is sent; a rerun continues."""
    from banana100_bench.publish import push as publish

    print(publish(folder, repo, private=private, create_pr=create_pr, tag=tag, dry_run=dry_run))


@app.command()
def info(
    data: Annotated[str, typer.Argument(help="Dataset folder, or ORG/NAME[@REVISION] on the Hub.")] = "banana100",
    rounds: Annotated[str, typer.Option(help="Rounds to select: key (1,5,10,20), all, or as 1,5,10-20.")] = "all",
    setting: Settings = None,
    initial_image: Annotated[list[str] | None, typer.Option(help="Only runs from this image. Repeatable.")] = None,
    repetition: Annotated[list[int] | None, typer.Option(help="Only this repetition. Repeatable.")] = None,
) -> None:
    """Say what a dataset holds, and how much of it a selection would read."""
    from banana100_bench.data import open_data
    from banana100_bench.protocol import parse_rounds

    selection = open_data(
        data,
        rounds=parse_rounds(rounds),
        settings=setting,
        initial_images=initial_image,
        repetitions=repetition,
    )
    print(selection.describe())


@app.command()
def score(
    models: Models,
    data: Data = "banana100",
    store: Store = Path("scores"),
    rounds: Annotated[str, typer.Option(help="Which rounds: key (1,5,10,20), all, or as 1,5,10-20.")] = "key",
    setting: Settings = None,
    weights: Weights = None,
    higher_is_better: Direction = None,
    option: Options = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    workers: Workers = "auto",
    threads: Threads = None,
    batch: Batch = 1,
    repeats: Repeats = 1,
    max_pixels: MaxPixels = None,
    timeout: Timeout = None,
    engine: Engine = "local",
) -> None:
    """Score images with one or more models; no verdict."""
    from banana100_bench import harness
    from banana100_bench.data import open_data
    from banana100_bench.protocol import parse_rounds

    choices = _choices(models, weights, higher_is_better, option)
    machine = _machine(device, dtype, workers, threads, batch, repeats, max_pixels, timeout, engine)
    selection = open_data(data, rounds=parse_rounds(rounds), settings=setting)
    reports, skipped = harness.score_all(choices, selection, store, machine)
    for report in reports:
        print(report.summary())
    _tell_problems(skipped)
    for report in reports:
        report.check()


@models_app.callback(invoke_without_command=True)
def models_list(
    context: typer.Context,
    only: Annotated[str, typer.Option(help='A pattern, as "pyiqa:musiq*", or a suite, as suite:paper.')] = "*",
    check: Annotated[bool, typer.Option("--check", help="Open each, without a network.")] = False,
) -> None:
    """List models: direction, range, licence; with --check also parameters and whether the weights are present."""
    if context.invoked_subcommand is None:
        from banana100_bench.models.listing import show

        show(only, check)


@models_app.command("fetch")
def models_fetch(
    models: Annotated[list[str], typer.Argument(help="pyiqa:NAME or suite:NAME.")],
    to: Annotated[Path, typer.Option(help="Folder for the weights.")] = Path("weights"),
) -> None:
    """Download weights into a folder, for machines without a network."""
    from banana100_bench.models.listing import fetch, variables
    from banana100_bench.models.suites import expand

    lacking = 0
    for spec, facts in fetch(expand(models), to):
        print(f"{spec}: {facts.missing or 'there'}", flush=True)
        lacking += bool(facts.missing)
    print("there, use them by: export " + " ".join(f"{name}={value}" for name, value in variables(to).items()))
    if lacking:
        raise BananaError(f"{lacking} models could not be fetched")


@app.command()
def evaluate(
    models: Models,
    data: Data = "banana100",
    store: Store = Path("scores"),
    out: Annotated[Path, typer.Option(help="Folder for the result JSON and the figure of each model.")] = Path(
        "results"
    ),
    baseline: Baseline = 1,
    later: Later = "5,10,20",
    more_rounds: Annotated[
        str | None,
        typer.Option(
            help="Further rounds to score for curves and correlations, as 2-4,15 or all; no verdict reads them."
        ),
    ] = None,
    controls: Annotated[
        bool, typer.Option(help="Also score harmless edits of the initial images, for false-alarm rates.")
    ] = True,
    setting: Settings = None,
    weights: Weights = None,
    higher_is_better: Direction = None,
    option: Options = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    workers: Workers = "auto",
    threads: Threads = None,
    batch: Batch = 1,
    repeats: Repeats = 1,
    max_pixels: MaxPixels = None,
    timeout: Timeout = None,
    engine: Engine = "local",
    as_json: AsJson = False,
) -> None:
    """Score models and judge them: does the score fall as the images degrade?"""
    from banana100_bench import harness
    from banana100_bench.data import open_data
    from banana100_bench.protocol import Rounds, parse_rounds
    from banana100_bench.report.table import show
    from banana100_bench.user_code import prints_aside

    choices = _choices(models, weights, higher_is_better, option)
    compared = Rounds(baseline, parse_rounds(later) or ())
    more = parse_rounds(more_rounds) if more_rounds else ()
    selection = open_data(data, rounds=None if more is None else {*compared.all, *more}, settings=setting)
    machine = _machine(device, dtype, workers, threads, batch, repeats, max_pixels, timeout, engine)
    with prints_aside() if as_json else contextlib.nullcontext():
        judged = harness.evaluate_all(
            choices, selection, rounds=compared, store=store, controls=controls, machine=machine, out=out
        )
    if as_json:
        _print_json(list(judged.results))
    elif judged.results:
        show(judged.results)
        print("\nFiles:")
        for path in judged.files:
            print(f"  {path}")
    _tell_problems(judged.problems)


def _print_json(results: list[Result]) -> None:
    from banana100_bench.report.exports import FORMATS

    print(FORMATS["json"](results), end="")


@app.command()
def compare(
    results: Results,
    as_json: AsJson = False,
    form: Annotated[
        str, typer.Option("--format", help="text, csv (tidy: a line for each model and criterion), markdown, latex.")
    ] = "text",
    out: Annotated[Path | None, typer.Option(help="Also write that to this file.")] = None,
    every_eval_ever: Annotated[
        Path | None, typer.Option(help="Folder for a record of each model in the format of Every Eval Ever.")
    ] = None,
) -> None:
    """Rank results, and say which models can be told apart."""
    import time

    from banana100_bench import files
    from banana100_bench.errors import unknown_name
    from banana100_bench.report import exports, table
    from banana100_bench.results import load_results

    loaded = load_results(results)
    wanted = "json" if as_json else form
    if wanted == "text":
        from rich.console import Console

        console = Console(record=True)
        console.print(table.comparison_table(loaded))
        for _, result in exports.ordered(loaded):
            console.print(table.sentence(result), markup=False, highlight=False, soft_wrap=True)
        text = console.export_text()
    elif wanted in exports.FORMATS:
        text = exports.FORMATS[wanted](loaded)
        print(text, end="")
    else:
        raise unknown_name("format", form, ["text", *exports.FORMATS])
    if out:
        files.write_text(out, text)
    if every_eval_ever:
        for result in loaded:
            record = exports.every_eval_ever(result, str(int(time.time())))
            files.write_text(every_eval_ever / f"{result.file_stem}.json", files.dump_json(record))


@app.command()
def report(
    results: Results,
    data: Data = "banana100",
    out: Annotated[Path, typer.Option(help="The page to write; its figures go beside it.")] = Path("report.html"),
    figures: Annotated[bool, typer.Option(help="Also write each figure as PNG and SVG.")] = True,
) -> None:
    """Make one page of results that works offline: verdicts, curves, filters, the worst inversions."""
    from banana100_bench.report.page import write_page
    from banana100_bench.results import load_results

    for path in write_page(load_results(results), data, out, save_figures=figures):
        print(path)


@app.command()
def submit(
    result: Annotated[Path, typer.Argument(help="Result JSON of `banana100 evaluate`.")],
    name: Annotated[str, typer.Option(help="Name of the row, as NIQE or My metric (v2).")],
    url: Annotated[str, typer.Option(help="Paper, page or code of the model: https://...")],
    licence: Annotated[str, typer.Option(help="Licence of its weights, an id of the Hub's list, as mit, or unknown.")],
    parameters: Annotated[int | None, typer.Option(min=0, help="How many parameters it has.")] = None,
    hub_repo: Annotated[str | None, typer.Option(help="The model's own repository on the Hub: ORG/NAME.")] = None,
    data: Data = "banana100",
    to: Annotated[
        str | None,
        typer.Option(help="Where to send it: a board's folder, or its dataset repository on the Hub, ORG/NAME."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the submission here. [default: NAME.json]")] = None,
    check: Annotated[bool, typer.Option("--check", help="Explain every fault; write and send nothing.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of your older row of this name.")] = False,
    hub_dataset: Annotated[
        str | None,
        typer.Option(help="Also propose .eval_results to --hub-repo, for this dataset on the Hub: ORG/NAME."),
    ] = None,
) -> None:
    """Make a submission of a result, check it, and send it to a leaderboard."""
    from banana100_bench.leaderboard import post
    from banana100_bench.leaderboard.folder import open_ground
    from banana100_bench.leaderboard.submission import make_card, make_submission
    from banana100_bench.leaderboard.verify import verify
    from banana100_bench.result_schema import load_result

    if sum((to is not None, out is not None, check)) > 1:
        raise UsageError("--to, --out and --check: give one of them")
    card = make_card(name=name, url=url, licence=licence, parameters=parameters, hub_repo=hub_repo)
    made = load_result(result)
    ground = open_ground(data, rounds=made.rounds.rounds())
    submission = make_submission(made, ground.data, card)
    found = verify(submission, ground)
    print(found.text(card.name))
    if found.faults:
        raise BananaError(f"{result}: it would be rejected; nothing was sent")
    if hub_dataset and to:
        post.eval_results(submission, hub_dataset)  # refuses before anything is sent
    if check:
        return
    if to is None:
        path = out or Path(f"{card.slug}.json")
        submission.save(path)
        print(f"wrote {path}")
    elif Path(to).is_dir():
        path, new = post.to_folder(submission, Path(to), replace=replace)
        print(f"{'wrote' if new else 'it stands already:'} {path}")
    else:
        print(post.to_hub(submission, to, replace=replace))
    if hub_dataset and to:
        print(post.to_model_repo(submission, hub_dataset))


Board = Annotated[Path, typer.Option("--board", help="The board's folder: submissions/, dataset/, ...")]


@board_app.command("build")
def leaderboard_build(
    paths: Annotated[
        list[Path],
        typer.Argument(help="A board's folder; or submission and result JSON files, and folders of them."),
    ],
    data: Annotated[
        str | None,
        typer.Option(help="Dataset folder, or Hub id. [default: dataset in the board's folder, else banana100]"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to. [default: the board's folder, else leaderboard]")
    ] = None,
    setting: Settings = None,
    baseline: Baseline = 1,
    later: Later = "5,10,20",
    day: Annotated[str | None, typer.Option(help="Day that new rows are first seen. [default: today]")] = None,
) -> None:
    """Recompute every number from the raw scores, rank, and write leaderboard.json, leaderboard.csv and the pages."""
    from banana100_bench.leaderboard import folder
    from banana100_bench.protocol import Rounds, parse_rounds

    home = paths[0] if len(paths) == 1 and (paths[0] / folder.FOLDER).is_dir() else None
    compared = Rounds(baseline, parse_rounds(later) or ())
    ground = folder.open_ground(data or (home / folder.DATASET if home else "banana100"), setting, compared)
    out = out or home or Path("leaderboard")
    if out.suffix in (".json", ".csv", ".html"):
        raise UsageError(f"--out {out}: expected a folder; leaderboard.json, leaderboard.csv and index.html go into it")
    print(folder.summary(folder.build(paths, ground, out, day), out))


@board_app.command("verify")
def leaderboard_verify(
    submissions: Annotated[list[Path] | None, typer.Argument(help="Submission files.")] = None,
    board: Board = Path("leaderboard"),
    hub: Annotated[
        str | None, typer.Option(help="Instead: the open pull requests on this dataset repository, ORG/NAME[#NUMBER].")
    ] = None,
    comment: Annotated[bool, typer.Option("--comment", help="Answer each pull request with its verdict.")] = False,
    rescore: Annotated[int, typer.Option(min=0, help="Score so many images anew, drawn at random.")] = 0,
    data: Annotated[str | None, typer.Option(help="Dataset with its images, for --rescore.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model to score with, where a submission's own code is none.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Its weight file.")] = None,
    higher_is_better: Direction = None,
    option: Options = None,
    seed: Annotated[int | None, typer.Option(help="Of the draw, to repeat one. [default: unforeseeable]")] = None,
    record: Annotated[bool, typer.Option("--record", help="Note what was scored anew in verified.json.")] = False,
    setting: Settings = None,
    baseline: Baseline = 1,
    later: Later = "5,10,20",
) -> None:
    """Judge submissions against a board: verified, consistent, or rejected with every reason. Exit code 1 if any is."""
    from banana100_bench.leaderboard import maintain
    from banana100_bench.protocol import Rounds, parse_rounds

    if bool(submissions) == bool(hub):
        raise UsageError("give submission files, or --hub ORG/NAME")
    if comment and not hub:
        raise UsageError("--comment: answers pull requests, so it needs --hub")
    if record and not rescore:
        raise UsageError("--record: notes what was scored anew, so it needs --rescore N")
    options = _pairs(option, "--option")
    again = maintain.Again(rescore, data, model, weights, higher_is_better, seed, options) if rescore else None
    ground = maintain.ground(board, setting, Rounds(baseline, parse_rounds(later) or ()))
    rejected = 0
    for source, verdict in maintain.verdicts(board, ground, submissions or [], hub, again, comment, record):
        print(verdict.text(source))
        rejected += verdict.word == "rejected"
    if rejected:
        raise BananaError(f"{rejected} rejected")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for all that the demo makes; a rerun continues there.")] = Path(
        "demo"
    ),
    weights: Annotated[
        list[str] | None,
        typer.Option(help="Adds a pyiqa model with its weight file: niqe=FILE, brisque=FILE. Repeatable."),
    ] = None,
) -> None:
    """The whole line on three photographs and the simulated editor: no key, no network."""
    from banana100_bench.demo import run

    run(out, {name: Path(file) for name, file in _pairs(weights, "--weights").items()})


def main() -> NoReturn:
    """Entry point of `banana100`: one clear line and exit code 1 or 2 for an error, a traceback only with --debug."""
    atexit.register(gc.freeze)  # else Python looks through all that PyTorch has made once more: 0.8 s
    debug = "--debug" in sys.argv
    sys.argv[1:] = [word for word in sys.argv[1:] if word != "--debug"]  # accepted anywhere in the call
    try:
        app()
    except BananaError as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except SystemExit as stop:
        if stop.code == 130:  # how typer passes on Ctrl-C
            print("interrupted; the same call continues where it stopped", file=sys.stderr)
        raise
    except BrokenPipeError:
        sys.exit(1)
    except Exception as error:
        if debug:
            raise
        print(f"error (a bug of ours; --debug shows where): {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)
