"""The whole of a generation, from what the user asks to the report."""

import contextlib
from collections.abc import Callable, Iterator
from copy import replace
from dataclasses import asdict
from itertools import batched
from typing import Any

from eagle3.chat.chat_template import load_chat_template
from eagle3.chat.serving import Served
from eagle3.chat.token_sequence import TokenSequence
from eagle3.checks.run import check_target
from eagle3.engine.generation import GenerationEngine, GenerationOptions
from eagle3.errors import Eagle3Error
from eagle3.extraction.stack import running_stack
from eagle3.generation.dialogue import DialogueRules, Finished
from eagle3.generation.hold import Generator, Row, hold
from eagle3.generation.journal import Journal
from eagle3.generation.length_warning import LengthWarning
from eagle3.generation.regenerate import AskedRows
from eagle3.generation.request import GenerationRequest
from eagle3.generation.sampling import read_sampling
from eagle3.generation.self_instruct import InventedRows
from eagle3.preparation.bar import reading_bar
from eagle3.preparation.collecting import Collector, PreparationReport
from eagle3.preparation.dataset import DatasetWriter
from eagle3.preparation.prepare import announce_code
from eagle3.preparation.request import HistoryPolicy
from eagle3.preparation.samples import Samples
from eagle3.preparation.target import Target, read_target
from eagle3.preparation.tokenizing import Outcome, TokenizedChunk
from eagle3.progress import Progress
from eagle3.target import identify_target

# Enough that one long conversation at the head does not let the engine run empty.
_WINDOW_PER_SEQUENCE = 4
_ROWS_PER_CHUNK = 64

StartEngine = Callable[[GenerationOptions], contextlib.AbstractContextManager[Generator]]


def generate(
    request: GenerationRequest, progress: Progress, start: StartEngine = GenerationEngine
) -> PreparationReport:
    """Lets the target write, and writes what can be used to a new folder.

    What is finished lies in a journal beside it until then, so that the same request goes on after
    a kill. Raises InputError, EngineError or StoreError.
    """
    preparation = request.preparation
    target = read_target(preparation.model, preparation.max_model_len)
    announce_code(preparation, progress)
    template = load_chat_template(
        preparation.model,
        trust_remote_code=preparation.trust_remote_code,
        date=preparation.date,
    )
    sampling = read_sampling(preparation.model, request.sampling, template)
    rules = DialogueRules(
        served=Served(template, thinking=preparation.reasoning == "keep"),
        sampling=sampling,
        max_tokens=request.max_tokens,
        max_model_len=target.max_model_len,
        on_degenerate=request.on_degenerate,
        seed=preparation.seed,
    )
    said = ", ".join(f"{key} {value}" for key, value in asdict(sampling).items())
    progress.say(f"sampling: {said}, at most {request.max_tokens:,} tokens an answer")
    identity = _identity(request, target, asdict(sampling), dated="strftime_now" in template.source)
    source = _source(request, rules)
    warning = LengthWarning(rules, progress)
    # Before there is a journal, which would hold on to the options that are to be mended.
    if request.preflight:
        check_target(
            preparation.model,
            progress,
            tensor_parallel=request.tensor_parallel,
            gpu_memory_utilization=request.gpu_memory_utilization,
        )
    with DatasetWriter(preparation.out) as writer, contextlib.ExitStack() as opened:
        path = preparation.out.with_name(f".{preparation.out.name}.generated.jsonl")
        is_there = path.exists()
        with progress.waiting("reading the journal") if is_there else contextlib.nullcontext():
            journal = opened.enter_context(Journal(path, identity))
        collector = Collector(preparation, target, writer)
        if len(journal):
            progress.say(f"journal: {len(journal):,} conversations are finished already")
        options = GenerationOptions(
            model=preparation.model,
            max_model_len=target.max_model_len,
            tensor_parallel=request.tensor_parallel,
            gpu_memory_utilization=request.gpu_memory_utilization,
            trust_remote_code=preparation.trust_remote_code,
            verbose=request.verbose,
        )
        try:
            with progress.waiting("starting the target"):
                engine = start(options)
            with engine as running:
                _collect(source, running, journal, collector, preparation.history, warning)
        except (Eagle3Error, KeyboardInterrupt):
            progress.say(
                f"journal: {len(journal):,} conversations are safe in {path}; the same command "
                "goes on from there"
            )
            raise
        warning.say(collector.statistics, "")
        report = collector.commit(source.name, identity)
        journal.remove()
    return report


def _source(request: GenerationRequest, rules: DialogueRules) -> AskedRows | InventedRows:
    if request.conversations is not None:
        return InventedRows(request.conversations, request.tokens, request.turns, rules)
    preparation = request.preparation
    assert preparation.data is not None
    return AskedRows(preparation.data, preparation.form, preparation.limit, rules)


def _collect(
    source: AskedRows | InventedRows,
    engine: Generator,
    journal: Journal,
    collector: Collector,
    history: HistoryPolicy,
    warning: LengthWarning,
) -> None:
    """Holds the dialogues of `source` and gives what comes of them to `collector`."""
    tokens = 0
    with reading_bar(source.size, source.what, source.limit) as bar:

        def count(generated: int) -> None:
            nonlocal tokens
            tokens += generated
            bar.update(bytes_read=source.done, rows=source.taken, tokens=tokens)

        most = _WINDOW_PER_SEQUENCE * engine.sequences_at_once
        held = hold(source.rows(), engine, journal, lambda: source.ahead(most), count)
        for batch in batched(_until_complete(held, source), _ROWS_PER_CHUNK, strict=False):
            samples, outcomes = Samples(), []
            for pair in batch:
                outcome, sequences = _outcome(*pair, history)
                outcomes.append(outcome)
                samples.add_row(sequences)
            collector.take(TokenizedChunk(outcomes, samples.table(), source.done))
            warning.look(collector.statistics)
    collector.statistics.rows_read = source.rows_read


def _until_complete(
    held: Iterator[tuple[Row, Finished | None]], source: AskedRows | InventedRows
) -> Iterator[tuple[Row, Finished | None]]:
    for row, finished in held:
        yield row, source.take(finished)
        if source.is_complete:
            return


def _outcome(
    row: Row, finished: Finished | None, history: HistoryPolicy
) -> tuple[Outcome, tuple[TokenSequence, ...]]:
    """What became of `row`, in the words of a preparation, and its samples."""
    if finished is None:
        kind = row.refusal or "error"
        return Outcome(row.place, kind, row.form, reason=row.reason, content=row.content), ()
    told = Outcome(
        row.place,
        "success",
        row.form,
        len(finished.samples),
        answers=finished.answers,
        faults=finished.faults,
    )
    content = row.content or finished.question
    if not finished.samples:
        return replace(told, kind="skipped", reason=finished.reason, content=content), ()
    if len(finished.samples) == 1 or history == "split":
        return told, finished.samples
    if history == "last":
        return replace(told, samples=1), finished.samples[-1:]
    reason = "earlier turns change when later turns follow, and --history refuse was given"
    return replace(told, kind="error", samples=0, reason=reason, content=content), ()


def _identity(
    request: GenerationRequest, target: Target, sampling: dict[str, Any], *, dated: bool
) -> dict[str, Any]:
    """Everything that bears on what the target writes: a journal goes on only where it is equal.

    `dated`: the template asks for the day.
    """
    preparation = request.preparation
    identity = identify_target(preparation.model)
    stack = running_stack()
    return {
        "kind": "regenerate" if request.conversations is None else "self-instruct",
        "config_sha256": identity.config_sha256,
        "weights_sha256": identity.weights_sha256,
        "tokenizer_sha256": target.tokenizer_sha256,
        "stack": stack.name,
        "stack_sha256": stack.digest,
        **{**sampling, "stop_ids": list(sampling["stop_ids"])},
        "max_tokens": request.max_tokens,
        "max_model_len": target.max_model_len,
        "turns": request.turns,
        "reasoning": preparation.reasoning,
        "on_degenerate": request.on_degenerate,
        "seed": preparation.seed,
        "date": str(preparation.date) if dated else None,
        "tensor_parallel": request.tensor_parallel,
    }
