"""Runs commands in an unpacked image: no network, read-only root, no capabilities, user 65532."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.image.tools import TestTools

_USER = "65532"


class Container:
    """The image's root and settings. Needs user namespaces, or root; a refusal fails the test."""

    def __init__(self, tools: TestTools, root: Path, settings: Mapping) -> None:
        self._tools = tools
        self._root = root
        self._settings = settings

    def run(
        self, command: Sequence[str], *, binds: Mapping[Path, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs to the end; `binds` are folders or files of the host and where they appear."""
        words = [*self._tools.command("bwrap"), "--unshare-all", "--die-with-parent"]
        words += ["--uid", _USER, "--gid", _USER, "--cap-drop", "ALL", "--clearenv"]
        words += ["--ro-bind", str(self._root), "/", "--proc", "/proc", "--dev", "/dev"]
        words += ["--tmpfs", "/tmp", "--tmpfs", "/dev/shm", "--chdir", self._settings["WorkingDir"]]
        for source, target in (binds or {}).items():
            kind = "--bind" if source.is_dir() else "--ro-bind"
            words += [kind, str(source), target]
        for line in self._settings["Env"]:
            words += ["--setenv", *line.split("=", 1)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LD_")}
        return subprocess.run(
            [*words, *command], capture_output=True, text=True, check=False, env=environment
        )
