"""How an engine starts, fails and ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from eagle3.engine.capture_worker import CaptureSettings, CaptureWorker
from eagle3.engine.engine import Engine
from eagle3.engine.options import EngineOptions
from eagle3.errors import EngineError, InputError
from tests.integration.engines import executor_of, running_engine, worker_processes
from tests.integration.prompts import random_prompts
from tests.integration.tiny_models import MAX_POSITIONS, VOCAB_SIZE, make_llama


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("models") / "llama")


def _edit_config(model: Path, **fields: object) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | fields))


# It tells, too, if it takes a last look for garbage, which costs more than a second.
SCRIPT = """
import atexit
import gc
import sys
from pathlib import Path

atexit.register(lambda: gc.get_freeze_count() or print("a last look for garbage"))

from eagle3.engine.engine import Engine
from eagle3.engine.options import EngineOptions

if __name__ == "__main__":
    with Engine(EngineOptions(Path(sys.argv[1]), (8,))) as engine:
        [states_TLH] = engine.extract([[5, 6, 7]])
        assert states_TLH.shape == (3, 1, 256)
"""


def test_a_script_without_a_home_hears_nothing_of_the_libraries(
    model: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}
    process = subprocess.run(
        [sys.executable, "-s", script, model],
        env=environment | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stdout + process.stderr == ""
    assert process.returncode == 0


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[Engine]:
    """For the next two tests."""
    with running_engine(model, (8,), max_model_len=MAX_POSITIONS) as engine:
        yield engine


def test_the_longest_prompt_of_the_target_runs_and_no_longer_one(
    model: Path, engine: Engine
) -> None:
    [prompt] = random_prompts((MAX_POSITIONS,), VOCAB_SIZE)
    [states_TLH] = engine.extract([prompt])
    with pytest.raises(InputError, match="4,097 tokens, more than the 4,096"):
        engine.extract([[*prompt, 5]])
    assert states_TLH.shape == (MAX_POSITIONS, 1, 256)
    assert not states_TLH.isnan().any()
    with pytest.raises(InputError, match="more than the 4,096 positions"):
        Engine(EngineOptions(model, (8,), max_model_len=MAX_POSITIONS + 1))


def test_a_killed_worker_is_one_clear_error_and_leaves_no_process(engine: Engine) -> None:
    """The last test of this engine."""
    [worker] = executor_of(engine).workers
    os.kill(worker.proc.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="a worker process died \\(exit code -9") as failure:
        engine.extract(random_prompts((40,), VOCAB_SIZE))
    assert "\n" not in str(failure.value)
    engine.close()
    assert worker_processes() == []
    with pytest.raises(EngineError, match="closed"):
        engine.extract([[5]])


def test_a_target_that_cannot_load_is_one_clear_error_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    model = make_llama(tmp_path / "llama")
    _edit_config(model, intermediate_size=768)
    with pytest.raises(EngineError, match=r"did not start: \w+Error: ") as failure:
        Engine(EngineOptions(model, (8,)))
    assert "\n" not in str(failure.value)
    assert worker_processes() == []


def test_a_worker_that_hangs_ends_in_a_time_out(model: Path) -> None:
    with running_engine(model, (8,)) as engine:
        executor_of(engine).collective_rpc(_hang_in_the_next_step)
        # Not from the beginning: on a busy machine a start has longer steps.
        engine.options = replace(engine.options, step_timeout_s=2.0)
        with pytest.raises(EngineError, match=r"in a step of prompt 0 and 1 more: .*timed out"):
            engine.extract([[5, 6, 7], [8]])
        assert worker_processes() == []


def _hang_in_the_next_step(wrapper: object) -> None:
    import time

    wrapper.worker.execute_model = lambda _output: time.sleep(3600)  # type: ignore[attr-defined]


def test_a_start_that_fails_late_leaves_no_process(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eagle3.engine.workers.get_kv_cache_groups", _fail)
    with pytest.raises(EngineError, match="did not start: RuntimeError: no such") as failure:
        Engine(EngineOptions(model, (8,)))
    # The exception still holds the engine, so that nothing was left to the garbage collector.
    assert worker_processes() == []
    assert failure.value.__cause__ is not None


def _fail(*_: object) -> None:
    raise RuntimeError("no such cache")


def test_a_prompt_that_the_kv_cache_cannot_hold_is_an_error(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [short, long] = random_prompts((300, 600), VOCAB_SIZE)
    monkeypatch.setattr("eagle3.engine.configuration.cache_blocks", lambda *_: 512 // 128 + 1)
    with running_engine(model, (8,), max_tokens_per_step=128, max_model_len=600) as engine:
        with pytest.raises(EngineError, match="1 prompts could not be scheduled"):
            engine.extract([long])
        assert engine.extract([short])[0].shape == (300, 1, 256)


def test_pipeline_parallelism_is_refused_by_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "eagle3.engine.capture_worker.get_pp_group", lambda: SimpleNamespace(world_size=2)
    )
    settings = CaptureSettings((1,), 4, 16, 1, 1024, 1)
    with pytest.raises(ValueError, match="pipeline parallelism"):
        CaptureWorker().start_capture(settings)
