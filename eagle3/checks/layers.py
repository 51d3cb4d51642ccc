"""Which layers are captured, in both conventions: mixing them up is silent."""

from collections.abc import Iterator, Sequence

from eagle3.checks.finding import Finding
from eagle3.checks.situation import Situation
from eagle3.engine.capture_points import after_layer_ids, vllm_ids


def check_layers(situation: Situation) -> Iterator[Finding]:
    """Warns where vLLM's default ids were given after-layer, and where the last layer is missing.

    vLLM serves an EAGLE-3 draft with (2, n // 2, n - 3) unless the draft says otherwise. The same
    numbers mean one layer later in the other convention, and a draft trained so accepts little.
    """
    points, num_layers = situation.capture_points, situation.architecture.num_layers
    vllm = vllm_ids(points)
    found = (
        f"after-layer {_join(after_layer_ids(points))} = vllm {_join(vllm)}, of {num_layers} layers"
    )
    last_is_missing = num_layers not in points
    served = [point for point in vllm if point < num_layers]
    defaults = [2, num_layers // 2, num_layers - 3]
    if [point - 1 for point in served] == defaults:
        fix = f"serve the draft with ids {_join(served)}, or capture --layer-convention vllm"
        yield Finding("layers", "warn", f"{found}: vLLM's default ids, one layer later", fix)
    elif last_is_missing:
        fix = f"add the last layer, after-layer {num_layers - 1} = vllm {num_layers}"
        yield Finding("layers", "warn", f"{found}: nothing to train towards", fix)
    else:
        yield Finding("layers", "ok", found)


def _join(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
