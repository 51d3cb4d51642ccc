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
# Of these, targets without quantised weights and without experts need what is machine code.
_FOR_SOME_TARGETS = {"vllm/_C.abi3.so", "vllm/_moe_C.abi3.so"}
# Attention comes from one of these, as it suits GPU and target; where the third runs, it is taken
# before the second.
_FLASH_MLA = "vllm/_flashmla_C.abi3.so"
_FLASH_ATTENTION_2 = "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so"
_FLASH_ATTENTION_3 = "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so"
_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")


def check_kernels(situation: Situation) -> Iterator[Finding]:
    """One finding a library; nothing on the CPU stack, whose libraries have no such code."""
    machine = situation.machine
    if not machine.gpus:
        return
    capability = machine.gpus[0].capability
    counts = {
        name: Counter(_way_to_run(unit, capability) for unit in units)
        for name, units in machine.libraries
    }
    native = {name for name, ways in counts.items() if ways["sass"]}
    for name, units in machine.libraries:
        ways = counts[name]
        found = (
            f"{name}: on {_dotted(capability)} {ways['sass']} of {len(units)} parts are machine "
            f"code, {ways['ptx']} PTX"
        )
        newest = _newest_ptx(units, capability)
        if not ways["sass"] and not ways["ptx"]:
            yield _finding_without_code(name, capability)
        elif newest is None or _cuda_of(newest) <= machine.driver_cuda:
            yield Finding("kernels", "ok", found)
        else:
            needed = _is_needed(name, native, situation)
            yield Finding(
                "kernels",
                "fail" if needed else "warn",
                f"{found} {_dotted(newest)}, which the driver {machine.driver} (CUDA "
                f"{_dotted(machine.driver_cuda)}) does not know"
                + ("" if needed else ", but this target may never need"),
                f"install a driver of CUDA {_dotted(_cuda_of(newest))} or newer, or its "
                "forward-compatibility package",
            )


def _finding_without_code(name: str, capability: tuple[int, int]) -> Finding:
    if name in (_FLASH_MLA, _FLASH_ATTENTION_2, _FLASH_ATTENTION_3):
        return Finding("kernels", "ok", f"{name}: not for {_dotted(capability)}")
    fix = "take a GPU that the stack was built for (docs/preflight.md)"
    return Finding("kernels", "fail", f"{name}: nothing runs on {_dotted(capability)}", fix)


def _is_needed(name: str, native: set[str], situation: Situation) -> bool:
    """Whether the target will need what is PTX; `native` libraries have machine code."""
    if name == _FLASH_ATTENTION_2:
        return _FLASH_ATTENTION_3 not in native
    if name in _FOR_SOME_TARGETS and name in native:
        return bool(situation.quantization) or any(key in situation.config for key in _EXPERTS)
    return True


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
