"""Whether the stack's libraries have code for these GPUs, and the driver can take it.

Machine code runs as it is. PTX is compiled by the driver when a kernel of it is first needed,
which is after minutes of loading, and a driver does not know PTX that is newer than itself. That
is how a Kimi-K2.5 was once loaded from its first to its last file, and then failed.
"""

from collections import Counter
from collections.abc import Iterator

from eagle3.checks.fatbin import GpuCode
from eagle3.checks.finding import Finding
from eagle3.checks.situation import Situation

# Source: PTX ISA, release notes: the CUDA whose driver first knew a version of PTX.
_CUDA_OF_PTX = {
    (8, 0): (12, 0),
    (8, 1): (12, 1),
    (8, 2): (12, 2),
    (8, 3): (12, 3),
    (8, 4): (12, 4),
    (8, 5): (12, 5),
    (8, 6): (12, 7),
    (8, 7): (12, 8),
    (8, 8): (12, 9),
    (9, 0): (13, 0),
}
# Kernels of these are not asked for by every target: they are for quantised or expert layers.
_FOR_SOME_TARGETS = {"vllm/_C.abi3.so", "vllm/_moe_C.abi3.so"}
# Of these one or the other is taken, as it suits GPU and target.
_ATTENTION = {
    "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so",
    "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so",
    "vllm/_flashmla_C.abi3.so",
}


def check_kernels(situation: Situation) -> Iterator[Finding]:
    """One finding a library; nothing on the CPU stack, whose libraries have no such code."""
    machine = situation.machine
    if not machine.gpus:
        return
    capability = machine.gpus[0].capability
    needs_more = bool(situation.quantization) or "n_routed_experts" in situation.config
    needs_more |= any(name in situation.config for name in ("num_experts", "num_local_experts"))
    for name, units in machine.libraries:
        counts = Counter(_way_to_run(unit, capability) for unit in units)
        found = (
            f"{name}: on {_dotted(capability)} {counts['sass']} of {len(units)} parts are machine "
            f"code, {counts['ptx']} PTX"
        )
        newest = _newest_ptx(units, capability)
        if not counts["sass"] and not counts["ptx"]:
            if name in _ATTENTION:
                yield Finding("kernels", "ok", f"{name}: not for {_dotted(capability)}")
            else:
                fix = "take a GPU that the stack was built for (docs/preflight.md)"
                yield Finding("kernels", "fail", f"{name}: nothing runs here", fix)
        elif newest is None or _cuda_of(newest) <= machine.driver_cuda:
            yield Finding("kernels", "ok", found)
        else:
            cuda = _dotted(_cuda_of(newest))
            partly = name in _FOR_SOME_TARGETS and counts["sass"] and not needs_more
            yield Finding(
                "kernels",
                "warn" if partly else "fail",
                f"{found} {_dotted(newest)}, which the driver {machine.driver} (CUDA "
                f"{_dotted(machine.driver_cuda)}) does not know"
                + (", but this target may never need" if partly else ""),
                f"install a driver of CUDA {cuda} or newer, or its forward-compatibility package",
            )


def _way_to_run(unit: frozenset[GpuCode], capability: tuple[int, int]) -> str:
    kinds = {code.kind for code in unit if code.runs_on(capability)}
    return "sass" if "sass" in kinds else "ptx" if kinds else "none"


def _newest_ptx(
    units: tuple[frozenset[GpuCode], ...], capability: tuple[int, int]
) -> tuple[int, int] | None:
    """The newest version of the PTX that runs on `capability` for want of machine code."""
    versions = [
        code.version
        for unit in units
        if _way_to_run(unit, capability) == "ptx"
        for code in unit
        if code.kind == "ptx" and code.runs_on(capability)
    ]
    return max(versions, default=None)


def _cuda_of(ptx: tuple[int, int]) -> tuple[int, int]:
    known = [version for version in _CUDA_OF_PTX if version >= ptx]
    # A version that is not listed is later than all that are.
    return _CUDA_OF_PTX[min(known)] if known else (ptx[0] + 4, ptx[1])


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
