"""Reads a layer's blob back: it must have its digest and size, and unpack to its diff_id."""

import argparse
import hashlib
import sys
import zlib
from pathlib import Path

from tools.oci.contents import read_contents
from tools.oci.errors import ImageError, run


def check_blob(blob: Path, digest: str, size: int, diff_id: str) -> None:
    """ImageError where the blob is not what its layer says."""
    try:
        found = _read(blob)
    except zlib.error as error:
        found = (str(error),)
    if found != (digest, size, diff_id):
        raise ImageError(f"the blob of layer {digest} is damaged: build it again")


def _read(blob: Path) -> tuple[str, int, str]:
    """Digest and size of a blob as it lies there, and the digest of what is in it."""
    packed, plain, size = hashlib.sha256(), hashlib.sha256(), 0
    unpacker = zlib.decompressobj(wbits=31)
    with blob.open("rb") as file:
        while block := file.read(1 << 20):
            packed.update(block)
            size += len(block)
            plain.update(unpacker.decompress(block))
    plain.update(unpacker.flush())
    return f"sha256:{packed.hexdigest()}", size, f"sha256:{plain.hexdigest()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blob", type=Path, required=True)
    parser.add_argument("--contents", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    options = parser.parse_args()
    layer = read_contents(options.contents).layer
    check_blob(options.blob, layer.digest, layer.size, layer.diff_id)
    options.report.write_text(f"{layer.name} {layer.digest}\n")


if __name__ == "__main__":
    sys.exit(run(main))
