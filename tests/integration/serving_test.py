"""vLLM as the evaluation runs it; on a CPU that is the target alone."""

from pathlib import Path

import pytest
import torch

from eagle3.engine.serving import Server, ServingOptions
from eagle3.errors import EngineError, InputError
from tests.integration.prompts import random_prompts
from tests.integration.reference import load_reference
from tests.integration.tiny_models import VOCAB_SIZE, make_llama

NEW_TOKENS = 12


def test_the_target_alone_says_what_transformers_says(tmp_path: Path) -> None:
    model = make_llama(tmp_path / "model")
    prompts = random_prompts((5, 40, 9), VOCAB_SIZE)
    reference = load_reference(model, torch.bfloat16)
    with Server(ServingOptions(model, max_model_len=128)) as server:
        server.warm_up(prompts[0], batch=2)
        served = server.generate(prompts, max_new_tokens=NEW_TOKENS, batch=2, scores=5)
        again = server.generate(prompts, max_new_tokens=NEW_TOKENS, batch=1)
        one, other, same = server.generate(
            [prompts[0]] * 3, max_new_tokens=NEW_TOKENS, temperature=1.0, seeds=(3, 4, 3), batch=3
        ).outputs
    assert one == same != other
    assert served.outputs == again.outputs
    assert (served.drafts, served.accepted) == (0, ())
    assert served.seconds > 0
    for prompt, output, scores in zip(prompts, served.outputs, served.scores, strict=True):
        for position, (token, best) in enumerate(zip(output, scores, strict=True)):
            with torch.no_grad():
                read = torch.tensor([[*prompt, *output[:position]]])
                logprobs_V = reference(read).logits[0, -1].float().log_softmax(dim=-1)
            # The token need not be the reference's first where two are as good.
            assert logprobs_V[token] > logprobs_V.max() - 0.1
            assert best[token] == max(best.values())
            assert best[token] == pytest.approx(float(logprobs_V[token]), abs=0.1)


def test_why_a_target_did_not_start_is_told_and_no_log_is_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = make_llama(tmp_path / "model")
    for weights in model.glob("*.safetensors"):
        weights.unlink()
    with pytest.raises(EngineError, match=r"did not start .*: .*Cannot find any model weights"):
        Server(ServingOptions(model, max_model_len=128))
    told = capfd.readouterr()
    assert "Traceback" not in told.out + told.err


def test_what_vllm_refuses_is_one_line(tmp_path: Path) -> None:
    model = make_llama(tmp_path / "model")
    with pytest.raises(InputError, match=r"vLLM refuses to serve model: .*max_model_len"):
        Server(ServingOptions(model, max_model_len=100_000))
