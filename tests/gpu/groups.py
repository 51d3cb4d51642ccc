"""What is proven on GPUs, in groups that each have their own time: tests and measurements."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.gpu.targets import Target, read_targets

_MINUTE = 60.0
# What asks for more has no group: it is run by its own command.
_MOST_GPUS = 2


@dataclass(frozen=True)
class Step:
    """A command of Python's, without `python3`; its last line of JSON, if any, is its figures.

    In a word, `{files}` stands for the folder whose files are results, and `{work}` for one that
    stays when the group has ended. `where_there` are further words, each set of them left out where
    the folder that its last word names is not there. A step that has run for `timeout_s` is ended,
    so that it leaves the group's time to those behind it. One `beside` begins together with the
    step before it, and shares the group's GPUs with it.
    """

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    where_there: tuple[tuple[str, ...], ...] = ()
    timeout_s: float = math.inf
    beside: bool = False

    def words(self, files: Path, work: Path) -> list[str]:
        """The command on this machine, as it is now."""

        def placed(word: str) -> str:
            return word.replace("{files}", str(files)).replace("{work}", str(work))

        words = [placed(word) for word in self.command]
        for further in self.where_there:
            added = [placed(word) for word in further]
            if Path(added[-1].rpartition("=")[2]).exists():
                words += added
        return words


@dataclass(frozen=True)
class Group:
    """Steps that run one stage after the other, all of them whatever fails, within `timeout_s`."""

    name: str
    about: str
    gpus: int
    timeout_s: float
    steps: tuple[Step, ...]

    def stages(self) -> list[list[Step]]:
        """The steps, those that run side by side in one list."""
        stages: list[list[Step]] = []
        for step in self.steps:
            if step.beside and stages:
                stages[-1].append(step)
            else:
                stages.append([step])
        return stages


def _tests(*names: str) -> Iterable[Step]:
    targets = read_targets()
    for name in names:
        yield _step(targets[f"//tests/gpu:{name}_gpu"])


def _step(target: Target) -> Step:
    return Step(
        target.label,
        target.command,
        dict(target.environment),
        timeout_s=target.timeout_s,
    )


def _module(
    name: str,
    module: str,
    *arguments: str,
    where_there: tuple[tuple[str, ...], ...] = (),
    timeout_s: float = math.inf,
) -> Step:
    words = ("-m", module, *arguments)
    return Step(name, words, where_there=where_there, timeout_s=timeout_s)


_DATA = ("--data", "smollm2-selfgen", "--max-tokens-per-step", "8192")
_RECIPE = (
    *("--draft-vocab", "16384", "--tokens-per-step", "4096", "--learning-rate", "1e-3"),
    *("--unroll-steps", "7", "--unroll-decay", "0.8", "--validation-share", "0.03"),
    *("--checkpoint-every", "250", "--log-every", "50"),
)
_HELDOUT = ("--data", "heldout", "--prompts", "80", "--json")


def _extract() -> Step:
    return _module(
        "extract",
        *("eagle3.extract", *_DATA, "--out", "{work}/store", "--json"),
        timeout_s=3 * _MINUTE,
    )


def _train(run: str, epochs: int, *more: str) -> Step:
    return _module(
        f"train, {run}",
        *("eagle3.train", "--store", "{work}/store", "--model", "smollm2"),
        *("--epochs", str(epochs), *_RECIPE, "--train-head", *more),
        *("--out", f"{{work}}/{run}", "--json"),
        timeout_s=7 * _MINUTE,
    )


def _train_peer(trainer: str, folder: str, *more: str) -> Step:
    return _module(
        f"train, {trainer}",
        *("eagle3.train_peer", "--run", "{work}/base", *more),
        *("--out", f"{{work}}/{folder}", "--json"),
        timeout_s=6 * _MINUTE,
    )


def _evaluate(name: str, run: str, *options: str, others: tuple[tuple[str, ...], ...] = ()) -> Step:
    return _module(
        name,
        *("eagle3.evaluate", "--draft", f"{{work}}/{run}/draft", *_HELDOUT, *options),
        where_there=others,
        timeout_s=8 * _MINUTE,
    )


def _road() -> Iterable[Step]:
    yield _extract()
    yield _train("run", 4)
    # Acceptance first, without the compiled graphs that speeds want: it is what matters most.
    yield _evaluate("evaluate, acceptance", "run", "--no-speed")
    yield _evaluate("evaluate, speed", "run", "--batches", "1,8,32", "--temperature", "0")


def _comparison() -> Iterable[Step]:
    """Ours train side by side: each leaves most of a GPU idle, and compiles for half its time.

    The other trainer has our learning rate, and then the default of its own script.
    """
    yield _extract()
    yield _train("base", 2)
    yield _beside(_train("shuffled", 2, "--shuffle-states"))
    yield _beside(_train("argmax", 2, "--feed", "argmax"))
    yield _beside(_train("fp8", 2, "--fp8"))
    yield _train_peer("speculators 0.3.0", "peer")
    yield _beside(_train_peer("speculators 0.3.0 at 1e-4", "peer-1e-4", "--learning-rate", "1e-4"))
    yield _evaluate(
        "evaluate",
        "base",
        *("--no-speed", "--temperature", "0"),
        others=(
            ("--beside", "speculators-0.3.0={work}/peer/draft"),
            ("--beside", "speculators-0.3.0-at-1e-4={work}/peer-1e-4/draft"),
            ("--shuffled", "{work}/shuffled/draft"),
            ("--beside", "argmax={work}/argmax/draft"),
            ("--beside", "fp8={work}/fp8/draft"),
        ),
    )


def _beside(step: Step) -> Step:
    return replace(step, beside=True)


_KIMI = ("--config", "kimi-k2.5-8-layers", "--layers", "2,4,6,7")


def groups() -> dict[str, Group]:
    """All groups by name, in the order of what must be right first; `others` is what they lack."""
    named = _named_groups()
    run = {step.name for group in named for step in group.steps}
    left = [
        target
        for target in read_targets().values()
        if target.label not in run and target.gpus <= _MOST_GPUS
    ]
    if left:
        others = Group(
            "others",
            f"targets that no group names, such as {left[0].label}",
            max(target.gpus for target in left),
            10 * _MINUTE * len(left),
            tuple(_step(target) for target in left),
        )
        named = (*named, others)
    return {group.name: group for group in named}


def _named_groups() -> tuple[Group, ...]:
    return (
        Group(
            "imports",
            "the stack can be imported (needs no GPU)",
            0,
            5 * _MINUTE,
            (
                Step(
                    "imports",
                    ("-c", "import torch, vllm, speculators; print(torch.__version__)"),
                ),
                Step(
                    "//tests/unit/store",
                    ("tools/python/pytest_main.py", "tests/unit/store"),
                ),
            ),
        ),
        Group(
            "preflight",
            "preflight of the real machine; wrong driver and too little memory simulated",
            1,
            5 * _MINUTE,
            (*_tests("preflight"), _module("preflight", "eagle3.preflight", "--json")),
        ),
        Group(
            "extraction",
            "1 GPU: SmolLM2 against transformers, scenarios, transfer; Kimi-K2.5 width",
            1,
            15 * _MINUTE,
            (
                *_tests("smollm2", "transfer", "scenarios"),
                _module(
                    "Kimi-K2.5 width, 8 layers: plain, old and our road",
                    "eagle3.bench_extract",
                    *_KIMI,
                    *("--prompts", "64", "--length", "2047", "--max-tokens-per-step", "8192"),
                    *("--repeat", "3", "--out", "/dev/shm/bench", "--json"),
                ),
            ),
        ),
        Group(
            "tensor_parallel",
            "2 GPUs: the rows of one; every rank writes; a rank killed, resume",
            2,
            20 * _MINUTE,
            tuple(_tests("tensor_parallel", "reference")),
        ),
        Group(
            "parity",
            "the states that vLLM hands a served draft are those of extraction; `serve` over HTTP",
            1,
            10 * _MINUTE,
            tuple(_tests("serving", "serve_command")),
        ),
        Group(
            "training",
            "compiled training against plain PyTorch; how fast a draft trains",
            1,
            15 * _MINUTE,
            (
                *_tests("training"),
                # With as long as a baseline may take.
                _module("bench_train", "eagle3.bench_train", "--json", timeout_s=7 * _MINUTE),
                *(
                    _module(
                        f"bench_train, {what}",
                        *("eagle3.bench_train", option, "--no-baseline", "--json"),
                    )
                    for what, option in (("head trained", "--train-head"), ("fp8", "--fp8"))
                ),
            ),
        ),
        Group(
            "road",
            "SmolLM2: 2 M tokens of its own, states, a draft, what vLLM accepts of it, how fast",
            1,
            20 * _MINUTE,
            tuple(_road()),
        ),
        Group(
            "comparison",
            "equal steps: our draft, variants of it, shuffled states, speculators 0.3.0's trainer",
            1,
            25 * _MINUTE,
            tuple(_comparison()),
        ),
        Group(
            "scaling",
            "2 GPUs train what one trains, and how much faster",
            2,
            15 * _MINUTE,
            (
                *(
                    _module(
                        f"bench_train, 2 GPUs, {parallel}",
                        *("eagle3.bench_train", "--no-baseline", "--processes", "2"),
                        *("--parallel", parallel, "--json"),
                    )
                    for parallel in ("ddp", "fsdp")
                ),
                *_tests("processes"),
            ),
        ),
        Group(
            "profiles",
            "where the time of an extraction step and of a training step goes",
            1,
            10 * _MINUTE,
            (
                _module(
                    "extraction step",
                    *("tests.gpu.reference_run", "--gpus", "1", "--layers", "8"),
                    *("--tokens", "65536", "--lengths", "2048", "--out", "/dev/shm/profile"),
                    *("--no-plain", "--no-kill", "--json"),
                ),
                _module(
                    "training step",
                    *("eagle3.bench_train", "--no-baseline", "--json"),
                    *("--profile", "{files}/training_profile.txt"),
                ),
            ),
        ),
    )
