"""Each check says what would fail, on machines and targets that a test can make up."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from eagle3.checks.decoder import check_decoder
from eagle3.checks.devices import check_devices
from eagle3.checks.disk import check_disk
from eagle3.checks.draft import check_draft
from eagle3.checks.kernels import check_kernels
from eagle3.checks.layers import check_layers
from eagle3.checks.memory import check_memory
from eagle3.checks.options import check_engine_options
from eagle3.checks.parallel import check_parallel
from eagle3.checks.quantization import check_quantization
from eagle3.checks.situation import Situation
from eagle3.checks.supervision import check_supervision
from eagle3.checks.tokenizer import check_tokenizer
from eagle3.errors import InputError
from tests.unit.checks.machines import (
    COMPILED_LATER,
    GB,
    H200,
    KIMI,
    LAPTOP,
    LLAMA,
    NATIVE,
    server,
    situation,
)
from tests.unit.extraction.requests import make_request
from tests.unit.tiny_target import make_target


def say(check: Any, situation: Situation) -> list[str]:
    return [f"{finding.verdict} {finding}" for finding in check(situation)]


def only(check: Any, situation: Situation) -> str:
    [line] = say(check, situation)
    return line


def test_on_the_cpu_stack_cores_are_counted(tmp_path: Path) -> None:
    assert only(check_devices, situation(tmp_path, LAPTOP, LLAMA)).startswith("ok devices: CPU")
    shared = only(check_devices, situation(tmp_path, LAPTOP, LLAMA, tensor_parallel=4))
    assert shared.startswith("warn devices: ")
    assert "4 ranks share them" in shared


@pytest.mark.parametrize(
    ("gpus", "ranks", "beginning", "part"),
    [
        ((H200, H200), 2, "ok", "2 GPUs: H200 (9.0, 150.0 GB); 1.0 TB of memory"),
        ((H200,), 2, "fail", "1 GPUs for --tp 2; give --tp 1"),
        ((), 1, "fail", "no GPU can be seen; let the command see one"),
        ((dataclasses.replace(H200, capability=(7, 5)),), 1, "fail", "without bfloat16"),
        ((H200, dataclasses.replace(H200, capability=(8, 0))), 2, "warn", "not of one kind"),
    ],
)
def test_gpus_are_counted_and_must_be_new_enough(
    tmp_path: Path, gpus: tuple[Any, ...], ranks: int, beginning: str, part: str
) -> None:
    line = only(check_devices, situation(tmp_path, server(*gpus), LLAMA, tensor_parallel=ranks))
    assert line.startswith(beginning)
    assert part in line


def test_a_driver_that_does_not_know_the_ptx_is_told_before_the_load(tmp_path: Path) -> None:
    torch_, experts = say(
        check_kernels, situation(tmp_path, server(H200, driver_cuda=(12, 8)), KIMI)
    )
    assert torch_.startswith("ok kernels: torch/lib/libtorch_cuda.so: on 9.0 3 of 3 parts")
    assert experts == (
        "fail kernels: vllm/_moe_C.abi3.so: on 9.0 1 of 3 parts are machine code, 2 PTX 8.8, which "
        "the driver 570.86 (CUDA 12.8) does not know; install a driver of CUDA 12.9 or newer, or "
        "its forward-compatibility package"
    )
    newer = say(check_kernels, situation(tmp_path, server(H200, driver_cuda=(12, 9)), KIMI))
    assert [line.split()[0] for line in newer] == ["ok", "ok"]


def test_a_target_without_experts_may_do_without_their_kernels(tmp_path: Path) -> None:
    _, experts = say(check_kernels, situation(tmp_path, server(H200, driver_cuda=(12, 8)), LLAMA))
    assert experts.startswith("warn kernels: vllm/_moe_C.abi3.so")
    assert "(CUDA 12.8) does not know, but this target may never need; install" in experts


def test_a_library_that_is_nothing_but_ptx_is_needed_by_all(tmp_path: Path) -> None:
    attention = (("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", (COMPILED_LATER,)),)
    machine = server(H200, driver_cuda=(12, 8), libraries=attention)
    assert only(check_kernels, situation(tmp_path, machine, LLAMA)).startswith("fail kernels")


def test_attention_that_has_a_better_one_beside_it_is_not_needed(tmp_path: Path) -> None:
    attention = (
        ("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", (COMPILED_LATER,)),
        ("vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", (NATIVE,)),
    )
    machine = server(H200, driver_cuda=(12, 8), libraries=attention)
    second, third = say(check_kernels, situation(tmp_path, machine, LLAMA))
    assert second.startswith("warn kernels")
    assert third.startswith("ok kernels")


def test_a_gpu_that_nothing_was_built_for_is_told(tmp_path: Path) -> None:
    old = dataclasses.replace(H200, capability=(7, 0))
    for line in say(check_kernels, situation(tmp_path, server(old), LLAMA)):
        assert line.startswith("fail kernels: ")
        assert "nothing runs on 7.0" in line


def test_kernels_for_another_gpu_are_no_fault(tmp_path: Path) -> None:
    machine = server(
        dataclasses.replace(H200, capability=(7, 0)),
        libraries=(("vllm/_flashmla_C.abi3.so", (COMPILED_LATER,)),),
    )
    line = only(check_kernels, situation(tmp_path, machine, LLAMA))
    assert line == "ok kernels: vllm/_flashmla_C.abi3.so: not for 7.0"


def test_the_cpu_stack_has_no_kernels_to_check(tmp_path: Path) -> None:
    assert say(check_kernels, situation(tmp_path, LAPTOP, LLAMA)) == []


def test_layers_are_told_in_both_conventions(tmp_path: Path) -> None:
    line = only(check_layers, situation(tmp_path, LAPTOP, LLAMA, layers=(1, 7)))
    assert line == "ok layers: after-layer 1,7 = vllm 2,8, of 8 layers"


def test_the_default_ids_of_the_other_convention_are_noticed(tmp_path: Path) -> None:
    reference = situation(tmp_path, LAPTOP, KIMI, layers=(2, 30, 58, 60))
    line = only(check_layers, reference)
    assert line.startswith("warn layers: after-layer 2,30,58,60 = vllm 3,31,59,61, of 61 layers")
    assert "serve the draft with ids 3,31,59" in line
    served = situation(tmp_path, LAPTOP, KIMI, layers=(2, 30, 58, 61), layer_convention="vllm")
    assert only(check_layers, served).startswith("ok")


def test_without_the_last_layer_there_is_nothing_to_train_towards(tmp_path: Path) -> None:
    line = only(check_layers, situation(tmp_path, LAPTOP, LLAMA, layers=(1, 3)))
    assert line.startswith("warn layers")
    assert line.endswith("add the last layer, after-layer 7 = vllm 8")


@pytest.mark.parametrize(
    ("config", "ranks", "line"),
    [
        (LLAMA, 1, "ok parallel: one rank, nothing to divide"),
        (LLAMA, 4, "ok parallel: 4 ranks divide 8 attention heads, 256 units of the MLP"),
        (LLAMA, 3, "fail parallel: 8 attention heads, 256 units of the MLP, 1,024 rows of the voc"),
        (LLAMA | {"num_attention_heads": 12, "num_key_value_heads": 3}, 4, "fail parallel: 3 KV "),
        (LLAMA | {"num_key_value_heads": 2}, 8, "ok parallel: 8 ranks"),
        (KIMI, 8, "ok parallel: 8 ranks divide 64 attention heads, 18,432 units of the MLP, 2,048"),
        (KIMI, 128, "fail parallel: 64 attention heads"),
    ],
)
def test_what_cannot_be_divided_is_told(
    tmp_path: Path, config: dict[str, Any], ranks: int, line: str
) -> None:
    found = only(check_parallel, situation(tmp_path, LAPTOP, config, tensor_parallel=ranks))
    assert found.startswith(line)


def test_the_next_number_of_ranks_that_would_do_is_named(tmp_path: Path) -> None:
    found = only(check_parallel, situation(tmp_path, LAPTOP, LLAMA, tensor_parallel=7))
    assert found.endswith("give another --tp, such as 4")


def test_groups_of_quantised_weights_stay_together(tmp_path: Path) -> None:
    text = KIMI["text_config"] | {"moe_intermediate_size": 512}
    config = KIMI | {"text_config": text}
    found = only(check_parallel, situation(tmp_path, LAPTOP, config, tensor_parallel=32))
    assert "16 units a rank, of which 32 share a scale" in found


@pytest.mark.parametrize(
    ("machine", "config", "beginning"),
    [
        (LAPTOP, LLAMA, "ok quantization: none"),
        (LAPTOP, KIMI, "fail quantization: compressed-tensors, 4 bits, which vLLM's CPU build fai"),
        (server(H200), KIMI, "ok quantization: compressed-tensors, 4 bits"),
        (
            server(dataclasses.replace(H200, capability=(12, 1))),
            KIMI,
            "warn quantization: compressed-tensors, 4 bits: kernels for 12.1 gave nonsense",
        ),
        (
            LAPTOP,
            LLAMA | {"quantization_config": {"quant_method": "fp8"}},
            "warn quantization: fp8, which was never tried",
        ),
        (
            server(dataclasses.replace(H200, capability=(8, 0))),
            LLAMA | {"quantization_config": {"quant_method": "modelopt"}},
            "fail quantization: modelopt, which this GPU is too old for",
        ),
        (
            server(H200),
            LLAMA | {"quantization_config": {"quant_method": "exl3"}},
            "fail quantization: vLLM does not know exl3",
        ),
    ],
)
def test_quantisation_must_be_one_that_runs_here(
    tmp_path: Path, machine: Any, config: dict[str, Any], beginning: str
) -> None:
    assert only(check_quantization, situation(tmp_path, machine, config)).startswith(beginning)


def test_too_little_memory_is_told_with_its_parts(tmp_path: Path) -> None:
    small = dataclasses.replace(LAPTOP, available=GB)
    line = only(check_memory, situation(tmp_path, small, LLAMA))
    assert line.startswith("fail memory: 16 bytes of weights, ")
    assert "1.0 GB can be had; free memory" in line
    enough_to_begin = dataclasses.replace(LAPTOP, available=2 * GB)
    assert only(check_memory, situation(tmp_path, enough_to_begin, LLAMA)).startswith("warn memory")
    assert only(check_memory, situation(tmp_path, LAPTOP, LLAMA)).startswith("ok memory")


def test_the_cache_of_a_step_and_the_longest_prompt_is_counted(tmp_path: Path) -> None:
    asked = {"max_tokens_per_step": 1000, "max_model_len": 500}
    # 12 blocks of 128 tokens for both, one for each of 256 prompts, and one of vLLM's own.
    tokens = (12 + 256 + 1) * 128
    # Keys and values of 4 heads of 8 values of 2 bytes, in 8 layers.
    line = only(check_memory, situation(tmp_path, LAPTOP, LLAMA, **asked))
    assert f"{tokens * 8 * 2 * 4 * 8 * 2 / 1e6:.1f} MB of KV cache" in line
    # On a GPU the latent vector of 512 + 64 values, in 61 layers, on every rank.
    _, gpu = say(check_memory, situation(tmp_path, server(H200), KIMI, **asked))
    assert f"{tokens * 61 * 576 * 2 / 1e9:.1f} GB of KV cache" in gpu


def test_each_rank_has_a_ring_in_host_memory(tmp_path: Path) -> None:
    asked = {"ring_bytes": 2 * GB, "tensor_parallel": 2}
    host, _ = say(check_memory, situation(tmp_path, server(H200, H200), LLAMA, **asked))
    assert host.startswith("ok memory: host: 2 ranks with 2.0 GB of ring each: 6.4 GB in all, 900")
    cpu = only(check_memory, situation(tmp_path, LAPTOP, LLAMA, **asked))
    assert "for a step, 2.0 GB of ring each: 6.4 GB in all" in cpu


def test_what_the_engine_refuses_is_told(tmp_path: Path) -> None:
    line = only(check_engine_options, situation(tmp_path, LAPTOP, LLAMA))
    assert line == "ok options: 16 tokens a step, samples of up to 2,048 tokens"
    with pytest.raises(InputError, match="give --trust-remote-code"):
        only(check_engine_options, situation(tmp_path, LAPTOP, KIMI))


def test_a_gpu_that_is_in_use_is_told(tmp_path: Path) -> None:
    busy = dataclasses.replace(H200, free=30 * GB)
    host, gpu = say(check_memory, situation(tmp_path, server(busy), LLAMA))
    assert host.startswith("ok memory: host: 1.1 GB of ring: ")
    assert gpu.startswith("fail memory: 20% of a GPU is free, and --gpu-memory-utilization 0.8")


def test_weights_that_do_not_fit_on_the_gpus_are_told(tmp_path: Path) -> None:
    target = situation(tmp_path, server(H200), LLAMA)
    target.checkpoint = dataclasses.replace(target.checkpoint, loaded=540 * GB)
    _, gpu = say(check_memory, target)
    assert gpu.startswith("fail memory: each GPU: 540.0 GB of weights, ")
    assert "raise --tp above 1" in gpu
    eight = situation(tmp_path, server(*[H200] * 8), LLAMA, tensor_parallel=8)
    eight.checkpoint = dataclasses.replace(eight.checkpoint, loaded=540 * GB)
    assert say(check_memory, eight)[1].startswith("ok memory: each GPU: 67.5 GB of weights, ")


def test_a_target_that_vllm_lacks_is_told(tmp_path: Path) -> None:
    unknown = LLAMA | {"architectures": ["NewForCausalLM"]}
    line = only(check_decoder, situation(tmp_path, LAPTOP, unknown))
    assert line.startswith("fail decoder: vLLM has no model for NewForCausalLM")


@pytest.mark.parametrize(
    ("layers", "line"),
    [
        ({"model.layers": range(8)}, "ok decoder: LlamaForCausalLM, 8 layers in model.layers"),
        ({"model.layers": range(9)}, "ok decoder: LlamaForCausalLM, 8 layers in model.layers, and"),
        ({"model.layers": range(7)}, "fail decoder: no row of 8 layers in the weights; the longe"),
        (
            {"vision.blocks": range(7), "language_model.model.layers": range(8)},
            "ok decoder: LlamaForCausalLM, 8 layers in language_model.model.layers",
        ),
        ({}, "ok decoder: LlamaForCausalLM, 8 layers by its config.json"),
    ],
)
def test_the_row_of_decoder_layers_is_found(
    tmp_path: Path, layers: dict[str, range], line: str
) -> None:
    target = situation(tmp_path, LAPTOP, LLAMA)
    found = {place: frozenset(numbers) for place, numbers in layers.items()}
    target.checkpoint = dataclasses.replace(target.checkpoint, layers=found)
    assert only(check_decoder, target).startswith(line)


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (LLAMA, "ok draft: vLLM serves EAGLE-3 drafts for a llama"),
        (KIMI, "ok draft: vLLM serves EAGLE-3 drafts for a kimi_k25"),
        (LLAMA | {"model_type": "mistral"}, "warn draft: vLLM serves EAGLE-3 drafts for llama, q"),
        (
            LLAMA | {"model_type": "llava", "text_config": LLAMA | {"model_type": "qwen2"}},
            "ok draft: vLLM serves EAGLE-3 drafts for a qwen2",
        ),
    ],
)
def test_a_family_whose_draft_could_not_be_served_is_told(
    tmp_path: Path, config: dict[str, Any], line: str
) -> None:
    assert only(check_draft, situation(tmp_path, LAPTOP, config)).startswith(line)


@pytest.fixture
def small(tmp_path: Path) -> Situation:
    """A whole target, with data."""
    data = tmp_path / "data.jsonl"
    data.write_text('{"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1]}\n')
    request = make_request(make_target(tmp_path / "target"), data, tmp_path / "out")
    return Situation(request, LAPTOP)


def test_text_comes_back_as_it_was(small: Situation) -> None:
    assert only(check_tokenizer, small).startswith("ok tokenizer: ")


def change_tokenizer(small: Situation, **changes: Any) -> None:
    path = small.request.model / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_text_that_does_not_come_back_is_told(small: Situation) -> None:
    change_tokenizer(small, normalizer={"type": "Lowercase"})
    line = only(check_tokenizer, small)
    assert line.startswith("warn tokenizer: 'Größe 3 ' comes back as 'größe 3 '")


def test_ids_beyond_the_vocabulary_are_told(small: Situation) -> None:
    config = small.request.model / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"vocab_size": 50}))
    assert "is not in the target's vocabulary of 50" in only(check_tokenizer, small)


def test_a_target_without_tokenizer_is_told(small: Situation) -> None:
    for path in small.request.model.glob("tokenizer*"):
        path.unlink()
    assert only(check_tokenizer, small).startswith("warn tokenizer: cannot be used (")


@pytest.mark.parametrize(
    ("mask", "line"),
    [
        ([0, 1, 1], "ok supervision: 1 samples, 3 tokens, 66.7% of them supervised"),
        ([1, 1, 1], "warn supervision: 1 samples, 3 tokens, 100.0% of them supervised"),
    ],
)
def test_a_mask_that_tells_nothing_is_noticed(small: Situation, mask: list[int], line: str) -> None:
    text = json.dumps({"input_ids": [1, 2, 3], "loss_mask": mask})
    small.request.data.write_text(text + "\n")
    assert only(check_supervision, small).startswith(line)


def test_the_disk_is_tried_and_left_as_it_was(small: Situation) -> None:
    before = sorted(small.request.model.parent.rglob("*"))
    line = only(check_disk, small)
    assert line.startswith("ok disk: ")
    assert line.endswith("/s, as the disk takes it")
    assert sorted(small.request.model.parent.rglob("*")) == before
    plan = small.plan
    scarce = dataclasses.replace(plan.disk, free=plan.disk.needed + 1, bytes_per_s=1000.0)
    small = Situation(small.request, LAPTOP, dataclasses.replace(plan, disk=scarce))
    line = only(check_disk, small)
    assert line.startswith("warn disk: ")
    assert "1.0 kB/s, as the shards before: little is left" in line
