"""How an engine starts, fails and ends."""

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from eagle3.engine.engine import Engine, EngineOptions
from eagle3.errors import EngineError, InputError
from tests.integration.engines import generator_of, running_engine, worker_processes
from tests.integration.prompts import random_prompts
from tests.integration.tiny_models import MAX_POSITIONS, VOCAB_SIZE, make_llama

GENERATOR = "speculators.data_generation.vllm_hidden_states_generator"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("models") / "llama")


def _edit_config(model: Path, **fields: object) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | fields))


SCRIPT = """
import sys
from pathlib import Path

from eagle3.engine.engine import Engine, EngineOptions

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


def test_the_longest_prompt_of_the_target_runs_and_no_longer_one(model: Path) -> None:
    [prompt] = random_prompts((MAX_POSITIONS,), VOCAB_SIZE)
    with running_engine(model, (8,), max_model_len=MAX_POSITIONS) as engine:
        [states_TLH] = engine.extract([prompt])
        with pytest.raises(InputError, match="4,097 tokens, more than the 4,096"):
            engine.extract([[*prompt, 5]])
    assert states_TLH.shape == (MAX_POSITIONS, 1, 256)
    assert not states_TLH.isnan().any()
    with pytest.raises(InputError, match="more than the 4,096 positions"):
        Engine(EngineOptions(model, (8,), max_model_len=MAX_POSITIONS + 1))


def test_a_killed_worker_is_one_clear_error_and_leaves_no_process(model: Path) -> None:
    with running_engine(model, (8,)) as engine:
        [worker] = generator_of(engine).executor.workers
        os.kill(worker.proc.pid, signal.SIGKILL)
        with pytest.raises(EngineError, match="a worker process died \\(exit code -9") as failure:
            engine.extract(random_prompts((40,), VOCAB_SIZE))
        assert "\n" not in str(failure.value)
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


def test_a_worker_that_hangs_ends_in_a_time_out(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_engine(model, (8,)) as engine:
        monkeypatch.setattr(f"{GENERATOR}.RPC_TIMEOUT_S", 1.0)
        generator_of(engine).executor.collective_rpc(_hang_in_the_next_step)
        with pytest.raises(EngineError, match="timed out"):
            engine.extract([[5, 6, 7]])
        assert worker_processes() == []


def _hang_in_the_next_step(wrapper: object) -> None:
    import time

    wrapper.worker.execute_model = lambda _output: time.sleep(60)  # type: ignore[attr-defined]


def test_float16_is_refused_by_the_generator(model: Path) -> None:
    from speculators.data_generation import VllmHiddenStatesGenerator

    logging.getLogger("vllm").setLevel(logging.CRITICAL)
    with pytest.raises(ValueError, match="float16"):
        VllmHiddenStatesGenerator(str(model), [7], model_options={"dtype": torch.float16})
    assert worker_processes() == []


def test_a_constructor_that_fails_late_leaves_no_process(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_generator: object) -> None:
        raise RuntimeError("no such decoder")

    monkeypatch.setattr(f"{GENERATOR}.VllmHiddenStatesGenerator._setup_capture", fail)
    with pytest.raises(EngineError, match="did not start: RuntimeError: no such") as failure:
        Engine(EngineOptions(model, (8,)))
    # The exception still holds the generator, so that nothing was left to its __del__.
    assert worker_processes() == []
    assert failure.value.__cause__ is not None


def test_a_prompt_that_the_kv_cache_cannot_hold_is_an_error(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [short, long] = random_prompts((300, 600), VOCAB_SIZE)
    # Blocks for 512 tokens are left.
    monkeypatch.setattr("eagle3.engine.engine._MAX_PROMPTS_PER_STEP", -2)
    with running_engine(model, (8,), max_tokens_per_step=128, max_model_len=600) as engine:
        with pytest.raises(EngineError, match="1 prompts could not be scheduled"):
            engine.extract([long])
        assert engine.extract([short])[0].shape == (300, 1, 256)


def test_pipeline_parallelism_is_refused_by_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    from speculators.data_generation.custom_worker import HiddenStatesWorkerExtension

    monkeypatch.setattr(
        "speculators.data_generation.custom_worker.get_pp_group",
        lambda: SimpleNamespace(world_size=2),
    )
    with pytest.raises(ValueError, match="pipeline parallelism"):
        HiddenStatesWorkerExtension()._setup_hidden_states_capture([1])
