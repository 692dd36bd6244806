"""``autotune init``: asks what only a person knows, and writes a study file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from autotune.drafting import gather, make, survey, write_new
from autotune.errors import InputError
from autotune.intake.draft import Draft, Gathered, Question, Seen, Setting, Wish, answered, default_name, questions


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(init)


def init(
    study: Annotated[
        Path | None, typer.Argument(metavar="[STUDY]", help="The file to write; left out: named after the model.")
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", help="A launch script, results of a load generator, or a sweep's files; may be given again."
        ),
    ] = None,
    engine: Annotated[str | None, typer.Option(help="sglang or vllm; left out: the one that is installed.")] = None,
    model: Annotated[str | None, typer.Option(help="The model's folder, or its name.")] = None,
    tensor_parallel: Annotated[int | None, typer.Option(min=1, help="GPUs for one server.")] = None,
    kind: Annotated[str | None, typer.Option(help="Kind of the workload, as workload.kind.")] = None,
    dataset: Annotated[str | None, typer.Option(help="The file of a sharegpt, jsonl or trace workload.")] = None,
    input_tokens: Annotated[int | None, typer.Option(help="Length of a prompt.")] = None,
    output_tokens: Annotated[int | None, typer.Option(help="Length of a reply.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests in flight.")] = None,
    request_rate: Annotated[float | None, typer.Option(help="Requests per second, instead.")] = None,
    metric: Annotated[str | None, typer.Option(help="What is optimised, as objective.metric.")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Settled trials of a night.")] = None,
    wall_clock: Annotated[str | None, typer.Option(help="How long a night may take, such as 8h.")] = None,
) -> None:
    """Write a study file from a launch script, from benchmark results, or from a few questions."""
    if study is not None and study.exists():
        raise InputError(f"{study}: exists already and is not overwritten; give another name, or move it away")
    told: dict[str, Setting | None] = {
        "kind": kind,
        "dataset": dataset,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "concurrency": concurrency,
        "request_rate": request_rate,
    }
    wish = Wish(
        name=study.stem if study else None,
        engine=engine,
        model=model,
        tensor_parallel=tensor_parallel,
        workload={key: value for key, value in told.items() if value is not None},
        metric=metric,
        trials=trials,
        wall_clock=wall_clock,
    )
    _write(study, wish, gather(source or [], kind=engine or ""))


def _write(study: Path | None, wish: Wish, gathered: Gathered) -> None:
    seen = survey() if gathered.launch is None else Seen()
    if gathered.launch is None:
        typer.echo(_seen_text(seen), err=True)
    wish = _complete(wish, questions(wish, gathered, seen))
    made, text = make(wish, gathered, seen)
    path = study or Path(f"{default_name(wish, gathered)}.toml")
    write_new(path, text)
    typer.echo(_written_text(made, path))


def _complete(wish: Wish, open_questions: Sequence[Question]) -> Wish:
    """Ask on a terminal; elsewhere take the defaults, and name at once all that has none. Raises InputError."""
    on_terminal = sys.stdin is not None and sys.stdin.isatty()
    if not on_terminal and (missing := [q for q in open_questions if q.needed]):
        names = ", ".join(f"{q.option} ({q.text.lower()})" for q in missing)
        raise InputError(f"init: {names}: nothing tells, and there is no terminal to ask on; give the option")
    for question in open_questions:
        answer = _ask(question) if on_terminal else question.default
        if answer is not None:
            wish = answered(wish, question, answer)
    return wish


def _ask(question: Question) -> Setting:
    answer: Setting = typer.prompt(question.text, default=question.default, type=question.kind, err=True)
    return answer


def _seen_text(seen: Seen) -> str:
    engines = ", ".join(seen.engines) or "no engine found"
    models = ", ".join(seen.models) or "none in the usual places"
    return f"engines: {engines}; GPUs: {seen.gpus or 'none seen'}; models: {models}"


def _written_text(made: Draft, path: Path) -> str:
    """What was written, what was not taken over, and what comes next."""
    lines = [f"note: {remark}" for remark in made.remarks]
    next_ = [f"autotune {verb} {path}" for verb in ("plan", "doctor", "tune")]
    return "\n".join([*lines, f"written: {path}", f"next: {', '.join(next_)}"])
