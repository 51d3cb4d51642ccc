"""The evaluation of a draft, from a request to a report."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from eagle3.checks.run import check_target
from eagle3.draft.config import DraftConfig
from eagle3.draft.export import export_draft, load_draft
from eagle3.draft.provenance import Provenance, has_not_learnt
from eagle3.draft.served_config import read_config, target_of
from eagle3.draft.target_weights import read_target_weights
from eagle3.engine.architecture import read_architecture
from eagle3.engine.environment import runs_on_cpu
from eagle3.errors import EngineError, InputError
from eagle3.evaluation.backend import Backend, Run
from eagle3.evaluation.floor import untrained
from eagle3.evaluation.own import OwnBackend
from eagle3.evaluation.prompts import PromptSet, read_prompts
from eagle3.evaluation.report import Divergence, EvaluationReport
from eagle3.evaluation.request import EvaluationRequest
from eagle3.evaluation.served import ServedBackend
from eagle3.evaluation.speculation import Decoding
from eagle3.progress import Progress

ALONE = "the target alone"
UNTRAINED = "untrained"
SHUFFLED = "shuffled states"


def evaluate(request: EvaluationRequest, progress: Progress) -> EvaluationReport:
    """Runs the target alone, with the draft, and with each floor. Raises InputError, EngineError.

    Everything that can be checked is checked before the target is loaded. Once the draft is
    measured, what fails of the others is in the report and ends nothing.
    """
    model, config = _check(request)
    longest = config.max_position_embeddings - request.max_new_tokens
    longest -= request.speculative_tokens + 1
    prompts = read_prompts(
        request.data,
        model,
        request.limit,
        longest,
        seed=request.seed,
        thinking=request.reasoning == "keep",
        trust_remote_code=request.trust_remote_code,
    )
    progress.say(f"{len(prompts.prompts):,} prompts: {prompts.origin}{_learnt(request, prompts)}")
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="eagle3-floor-") as folder:
        floors = {UNTRAINED: _export_untrained(request.draft, model, Path(folder, UNTRAINED))}
        if request.shuffled is not None:
            floors[SHUFFLED] = request.shuffled
        backend = _backend(request, model, prompts, progress)
        [alone] = backend.run(ALONE, None, (0.0,), timed=request.timed)
        progress.say(f"{ALONE}: answered{_speeds(alone)}")
        greedy, *sampled = _run_draft(request, backend, failed, progress)
        others = _run_others({**floors, **request.beside}, backend, failed, progress)
    results = {name: run.result for name, run in others.items()}
    # The others are never timed.
    alike = [] if request.timed and backend.timed_rounds_otherwise else others.values()
    return EvaluationReport(
        backend=backend.name,
        device=backend.device,
        prompts=len(prompts.prompts),
        reasoning=None if request.data.is_dir() else request.reasoning or "drop",
        speculative_tokens=request.speculative_tokens,
        greedy=greedy.result,
        sampled=sampled[0].result if sampled else None,
        temperature=request.temperature,
        floors={name: results[name] for name in floors if name in results},
        alone_tokens_per_s=alone.result.tokens_per_s,
        beside={name: results[name] for name in request.beside if name in results},
        failed=failed,
        identical=greedy.identical(alone) if request.timed else {},
        identical_alone=alone.identical(alone) if request.timed else {},
        divergences=_divergences(backend, prompts, alone, [greedy, *alike]),
        tie=backend.tie,
    )


def _learnt(request: EvaluationRequest, prompts: PromptSet) -> str:
    """Whether the drafts have learnt from samples that a preparation holds out."""
    held_out = prompts.held_out_sha256
    if held_out is None:
        return ""
    drafts = {"the draft": request.draft, **request.beside}
    unknown = [name for name, folder in drafts.items() if not has_not_learnt(folder, held_out)]
    if unknown:
        return f"; whether {' and '.join(unknown)} learnt from them is not known"
    return f", from which {' and '.join(drafts)} did not learn"


def _run_draft(
    request: EvaluationRequest, backend: Backend, failed: dict[str, str], progress: Progress
) -> list[Run]:
    """The greedy pass, and the one at a temperature unless it is not asked for or `failed`."""
    temperatures = (0.0, request.temperature) if request.temperature else (0.0,)
    runs: list[Run] = []
    try:
        name = request.draft.name
        for run in backend.run(name, request.draft, temperatures, timed=request.timed):
            name = f"temperature {temperatures[len(runs)]:g}" if runs else name
            progress.say(f"{name}: {_acceptance(run)}{_speeds(run)}")
            runs.append(run)
    except EngineError as error:
        if not runs:
            raise
        failed[f"temperature {request.temperature:g}"] = str(error)
    return runs


def _run_others(
    drafts: Mapping[str, Path], backend: Backend, failed: dict[str, str], progress: Progress
) -> dict[str, Run]:
    """A greedy pass of each of the drafts that has not `failed`."""
    runs: dict[str, Run] = {}
    for name, draft in drafts.items():
        try:
            [runs[name]] = backend.run(name, draft, (0.0,), timed=False)
            progress.say(f"{name}: {_acceptance(runs[name])}")
        except (InputError, EngineError) as error:
            failed[name] = str(error)
            progress.say(f"{name}: not measured: {error}")
    return runs


# What is known already is worth saying: the rest of an evaluation can take long, or be stopped.
def _acceptance(run: Run) -> str:
    total = run.result.total
    joint = " ".join(f"{share:.1%}" for share in total.joint)
    return f"acceptance length {total.length:.3f} +- {total.length_error:.3f}, joint {joint}"


def _speeds(run: Run) -> str:
    speeds = run.result.tokens_per_s.items()
    return "".join(f", {speed:,.0f} tokens/s at batch {batch}" for batch, speed in speeds)


def _check(request: EvaluationRequest) -> tuple[Path, DraftConfig]:
    """The target's folder and the draft's configuration, once they fit each other."""
    if request.reasoning is not None and request.data.is_dir():
        raise InputError(
            f"the questions of {request.data} are asked as they were prepared: leave --reasoning "
            "out, or prepare others"
        )
    config = read_config(request.draft)
    model = request.model or target_of(request.draft)
    target = read_architecture(model)
    if (target.vocab_size, target.hidden_size) != (config.vocab_size, config.hidden_size):
        raise InputError(f"{request.draft} is no draft of {model}: their sizes differ")
    if request.shuffled is not None and read_config(request.shuffled) != config:
        raise InputError(f"{request.shuffled} is a draft of another shape: no fair floor")
    for name, folder in request.beside.items():
        other = read_config(folder)
        if name in (UNTRAINED, SHUFFLED):
            raise InputError(f"{name} is the name of a floor; give {folder} another")
        if (other.vocab_size, other.capture_points) != (config.vocab_size, config.capture_points):
            raise InputError(f"{folder} is of another target or reads other capture points")
    return model, config


def _backend(
    request: EvaluationRequest, model: Path, prompts: PromptSet, progress: Progress
) -> Backend:
    decoding = Decoding(request.speculative_tokens, request.max_new_tokens, seed=request.seed)
    if request.backend == "own" or (request.backend == "auto" and runs_on_cpu()):
        with progress.waiting("loading the target"):
            return OwnBackend(model, request.draft, prompts, decoding, progress)
    if runs_on_cpu():
        raise InputError(
            "vLLM does not speculate on a CPU: run with --config=cuda128 on a GPU, or take "
            "--backend own"
        )
    if request.preflight:
        check_target(
            model,
            progress,
            tensor_parallel=request.tensor_parallel,
            gpu_memory_utilization=request.gpu_memory_utilization,
        )
    return ServedBackend(request, model, prompts, progress)


def _export_untrained(draft: Path, model: Path, folder: Path) -> Path:
    weights = read_target_weights(model)
    export_draft(untrained(load_draft(draft), weights), folder, Provenance(model))
    return folder


def _divergences(
    backend: Backend, prompts: PromptSet, alone: Run, runs: Sequence[Run]
) -> tuple[Divergence, ...]:
    """Where a greedy output with a draft left the target's own for the first time."""
    found = []
    for run in runs:
        for prompt, own, other in zip(prompts.prompts, alone.outputs, run.outputs, strict=True):
            if own == other:
                continue
            both = zip(own, other, strict=False)
            position = next((i for i, (a, b) in enumerate(both) if a != b), None)
            if position is None:
                found.append(Divergence(prompt.place, min(len(own), len(other)), float("inf")))
                continue
            gap = backend.gap(prompt, own, position, other[position])
            found.append(Divergence(prompt.place, position, gap))
    return tuple(found)
