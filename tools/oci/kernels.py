"""Which GPUs the image's libraries hold machine code (SASS) for, and which only PTX.

A GPU runs SASS of its own architecture, or of an older minor version of the same major one. For
anything else the driver compiles PTX at load: it must be as new as the toolkit that wrote it.
Read with cuobjdump, which the triton wheel carries.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.oci.errors import ImageError, run
from tools.oci.wheels import read_plan

ARCHITECTURES = (80, 90, 100, 120)
_MODULE = re.compile(r"\.sm_(\d+)[af]?\.(?:cubin|ptx)$", re.MULTILINE)
_NO_DEVICE_CODE = "does not contain device code"
_ELF = b"\x7fELF"


@dataclass(frozen=True)
class Kernels:
    """Modules of one library, by architecture: 80 is sm_80."""

    library: str
    sass: Counter[int]
    ptx: Counter[int]

    def on(self, architecture: int) -> str:
        """What runs there: "SASS n", "PTX n", both, or "-" where nothing does."""
        sass = sum(
            count
            for built_for, count in self.sass.items()
            if built_for <= architecture and built_for // 10 == architecture // 10
        )
        ptx = sum(count for written_for, count in self.ptx.items() if written_for <= architecture)
        words = [f"SASS {sass}"] * bool(sass) + [f"PTX {ptx}"] * bool(ptx)
        return ", ".join(words) or "-"


def kernels(cuobjdump: Path, library: Path, name: str) -> Kernels | None:
    """The modules of a library; None where it holds no device code."""
    sass = _modules(cuobjdump, "--list-elf", library)
    ptx = _modules(cuobjdump, "--list-ptx", library)
    return Kernels(name, sass, ptx) if sass or ptx else None


def _modules(cuobjdump: Path, option: str, library: Path) -> Counter[int]:
    done = subprocess.run(
        [str(cuobjdump), option, str(library)], capture_output=True, text=True, check=False
    )
    output = done.stdout + done.stderr
    if done.returncode and _NO_DEVICE_CODE not in output and "No PTX" not in output:
        raise ImageError(f"cuobjdump cannot read {library}: {output.strip()[:200]}")
    return Counter(int(number) for number in _MODULE.findall(output))


def libraries(site: Path, plans: Iterable[Path]) -> Iterator[str]:
    """The shared objects that the plans put into the image."""
    for plan in plans:
        for file in read_plan(plan):
            if ".so" in file.path and (site / file.path).open("rb").read(4) == _ELF:
                yield file.path


def table(found: Iterable[Kernels]) -> str:
    """A Markdown table, a row a library."""
    lines = [
        "| library | " + " | ".join(f"sm_{number}" for number in ARCHITECTURES) + " |",
        "|---|" + "---|" * len(ARCHITECTURES),
    ]
    for item in found:
        cells = [item.on(number) for number in ARCHITECTURES]
        lines.append(f"| `{item.library}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuobjdump", required=True, help="path below the site")
    parser.add_argument("--site", type=Path, required=True)
    parser.add_argument("--plan", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    names = sorted(libraries(options.site, options.plan))
    dumper = options.site / options.cuobjdump
    found = (kernels(dumper, options.site / name, name) for name in names)
    options.out.write_text(table(item for item in found if item), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(run(main))
