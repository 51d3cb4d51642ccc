"""A container registry on loopback, for the image that the pool `image` runs."""

from pathlib import Path

from tools.remote.processes import Command

# What images are pushed as; executors take them by digest.
REPOSITORY = "eagle3"

_CONFIG = """\
version: 0.1
storage:
  filesystem:
    rootdirectory: {folder}
http:
  addr: 127.0.0.1:{port}
"""


def registry(programs: Path, folder: Path, port: int) -> Command:
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "registry.yml"
    config.write_text(_CONFIG.format(folder=folder / "blobs", port=port))
    words = [programs / "usr/bin/docker-registry", "serve", config]
    # It would ask another host for traces' sake.
    return Command("registry", words, environment={"OTEL_TRACES_EXPORTER": "none"})
