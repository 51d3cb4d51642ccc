"""Stands in for dpkg-deb on a fake machine, whose packages are tar files: -x FILE FOLDER."""

from __future__ import annotations

import sys
import tarfile

_, option, file, folder = sys.argv
assert option == "-x"
with tarfile.open(file) as archive:
    archive.extractall(folder, filter="fully_trusted")
