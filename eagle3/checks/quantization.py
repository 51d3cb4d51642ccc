"""Whether the target's quantisation can run on this device."""

from collections.abc import Iterator

from eagle3.checks.finding import Finding
from eagle3.checks.situation import Situation
from eagle3.engine.installed import quantization_methods

# get_min_capability of vllm/model_executor/layers/quantization (0.16.0), where it is more than
# the 8.0 that bfloat16 asks for.
_OLDEST_CAPABILITY = {"modelopt": (8, 9), "petit_nvfp4": (9, 0), "fp_quant": (10, 0)}
# A public report of another engine tells of repeated tokens from the same Marlin kernels there.
_DOUBTFUL_FOR_4_BITS = (12, 1)


def check_quantization(situation: Situation) -> Iterator[Finding]:
    """Method and bits against the device."""
    quantization, machine = situation.quantization, situation.machine
    if not quantization:
        yield Finding("quantization", "ok", "none")
        return
    method, bits = str(quantization.get("quant_method")), _bits(quantization)
    found = f"{method}, {bits} bits" if bits else method
    if method not in quantization_methods():
        fix = "take a checkpoint in bfloat16, or one of a method that vLLM has"
        yield Finding("quantization", "fail", f"vLLM does not know {found}", fix)
    elif machine.device == "cpu":
        if method == "compressed-tensors" and bits == 4:
            fix = "run on a GPU (--config=cuda128), or take a checkpoint in bfloat16"
            yield Finding("quantization", "fail", f"{found}, which vLLM's CPU build fails on", fix)
        else:
            fix = "look at the states with //eagle3:inspect before you use them"
            yield Finding("quantization", "warn", f"{found}, which was never tried on a CPU", fix)
    elif machine.gpus and machine.gpus[0].capability < _OLDEST_CAPABILITY.get(method, (0, 0)):
        oldest = ".".join(map(str, _OLDEST_CAPABILITY[method]))
        fix = f"take a GPU of compute capability {oldest} or newer"
        yield Finding("quantization", "fail", f"{found}, which this GPU is too old for", fix)
    elif bits == 4 and machine.gpus and machine.gpus[0].capability == _DOUBTFUL_FOR_4_BITS:
        fix = "let the target answer a few prompts, and read them, before you use its states"
        yield Finding("quantization", "warn", f"{found}: kernels for 12.1 gave nonsense", fix)
    else:
        yield Finding("quantization", "ok", found)


def _bits(quantization: dict) -> int | None:
    """Of a weight, None where the configuration does not say."""
    groups = quantization.get("config_groups") or {}
    found = [(group.get("weights") or {}).get("num_bits") for group in groups.values()]
    return min((bits for bits in found if bits), default=quantization.get("bits"))
