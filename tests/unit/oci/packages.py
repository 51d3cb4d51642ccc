"""Makes tiny packages: a .deb, and a site-packages as the environment builder leaves it."""

import compileall
import io
import tarfile
from pathlib import Path
from py_compile import PycInvalidationMode

from tools.python.environment import record


def write_deb(
    folder: Path, name: str, files: dict[str, bytes], mode: int = 0o644, fields: str = ""
) -> Path:
    """A package of version 1 with these files, as deb(5) describes it; fields go to its control."""
    control = f"Package: {name}\nVersion: 1-1\nArchitecture: amd64\n{fields}".encode()
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": _tar({"control": control, "md5sums": b"0  usr/x\n"}, 0o644),
        "data.tar.xz": _tar(files, mode),
    }
    data = b"!<arch>\n"
    for part, content in parts.items():
        data += f"{part:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        data += content + b"\n" * (len(content) % 2)
    file = folder / f"{name}.deb"
    file.write_bytes(data)
    return file


def write_site(folder: Path, distributions: dict[str, dict[str, str]]) -> Path:
    """A site-packages with these distributions of version 1, compiled, RECORDs included."""
    site = folder / "site-packages"
    for name, files in distributions.items():
        for path, text in files.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text, encoding="utf-8")
        record.add_distribution(site, name, "1", files)
    compileall.compile_dir(
        str(site),
        quiet=2,
        stripdir=str(site),
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )
    return site


def _tar(files: dict[str, bytes], mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for path, content in files.items():
            item = tarfile.TarInfo(f"./{path}")
            item.mode, item.size, item.mtime, item.uid = mode, len(content), 1_700_000_000, 1000
            archive.addfile(item, io.BytesIO(content))
    return buffer.getvalue()
