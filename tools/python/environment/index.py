"""Hands the machine's own pip configuration to uv.

The project names no package index. Where a machine has a mirror, pip knows it, from its
configuration files or from the environment; uv reads neither.
"""

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.bootstrap.errors import BootstrapError


def pip_settings() -> dict[str, str]:
    """Returns pip's effective settings by bare name, such as {"index-url": "..."}.

    Later kinds win, as in pip itself: configuration files, then PIP_* variables, which pip
    lists under ":env:". BootstrapError where pip cannot read one of its files.
    """
    wheels = Path(sys.base_prefix, "share", "python-wheels")
    pip = next(wheels.glob("pip-*.whl")) / "pip"
    done = subprocess.run(
        [sys.executable, str(pip), "config", "list"],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise BootstrapError(
            f"pip cannot read its settings: {' '.join(done.stderr.split())}; mend that file"
        )
    settings: dict[str, str] = {}
    from_environment: dict[str, str] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        target = from_environment if section == ":env:" else settings
        if section in ("global", "install", ":env:"):
            target[name] = str(ast.literal_eval(value))
    return settings | from_environment


def uv_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Translates pip settings to uv's variables; local file indexes are left to pip."""
    # Like pip on Debian, trust what the machine trusts: a mirror may have a certificate of its own.
    environment: dict[str, str] = {"UV_SYSTEM_CERTS": "1"}
    if index := settings.get("index-url"):
        environment["UV_DEFAULT_INDEX"] = index
    extra = [url for url in settings.get("extra-index-url", "").split() if url.startswith("http")]
    if extra:
        environment["UV_INDEX"] = " ".join(extra)
        # Each line of a lock has its hash: which index serves the file does not matter.
        environment["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if timeout := settings.get("timeout", settings.get("default-timeout")):
        environment["UV_HTTP_TIMEOUT"] = timeout
    if proxy := settings.get("proxy"):
        environment["ALL_PROXY"] = proxy if "://" in proxy else f"http://{proxy}"
    if certificates := settings.get("cert"):
        environment["SSL_CERT_FILE"] = certificates
    if hosts := settings.get("trusted-host"):
        environment["UV_INSECURE_HOST"] = " ".join(hosts.split())
    return environment
