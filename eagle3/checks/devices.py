"""Whether there are processors enough, and of a kind that can run the target."""

from collections.abc import Iterator

from eagle3.checks.finding import Finding
from eagle3.checks.situation import Situation
from eagle3.extraction.size import readable_size

# States are bfloat16, which earlier GPUs have no arithmetic for.
_OLDEST_CAPABILITY = (8, 0)


def check_devices(situation: Situation) -> Iterator[Finding]:
    """Tensor-parallel ranks against cores on the CPU stack, against GPUs on the other."""
    machine, ranks = situation.machine, situation.request.tensor_parallel
    memory = f"{readable_size(machine.memory)} of memory"
    if machine.device == "cpu":
        found = f"CPU stack, {machine.cores} cores, {memory}"
        if ranks > machine.cores:
            yield Finding(
                "devices", "warn", f"{found}, {ranks} ranks share them", f"lower --tp {ranks}"
            )
        else:
            yield Finding("devices", "ok", found)
        return
    gpus = machine.gpus
    kinds = dict.fromkeys(
        f"{gpu.name} ({gpu.capability[0]}.{gpu.capability[1]}, {readable_size(gpu.memory)})"
        for gpu in gpus
    )
    found = f"{len(gpus)} GPUs: {', '.join(kinds)}; {memory}"
    if not gpus:
        fix = "let the command see one (CUDA_VISIBLE_DEVICES), or take the CPU stack"
        yield Finding("devices", "fail", "no GPU can be seen", fix)
    elif ranks > len(gpus):
        fix = f"give --tp {len(gpus)}, or more GPUs (CUDA_VISIBLE_DEVICES)"
        yield Finding("devices", "fail", f"{len(gpus)} GPUs for --tp {ranks}", fix)
    elif any(gpu.capability < _OLDEST_CAPABILITY for gpu in gpus[:ranks]):
        fix = "take GPUs of compute capability 8.0 (A100) or newer"
        yield Finding("devices", "fail", f"{found} without bfloat16", fix)
    elif len({gpu.capability for gpu in gpus[:ranks]}) > 1:
        fix = "choose GPUs of one kind with CUDA_VISIBLE_DEVICES"
        yield Finding("devices", "warn", f"{found}: not of one kind", fix)
    else:
        yield Finding("devices", "ok", found)
