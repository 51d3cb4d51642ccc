"""The login that docker or podman has left on this machine for a registry."""

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.oci.errors import ImageError


def authorization(host: str, name: str) -> str:
    """The Authorization header for HOST/NAME; "" without a login.

    Raises:
        ImageError: a file of logins is damaged, or the program that keeps them answers nonsense.
    """
    for file in _files():
        if not file.is_file():
            continue
        try:
            known = json.loads(file.read_text(encoding="utf-8"))
            pair = _kept_here(known, host, name) or _kept_by_a_helper(known, host)
        except (ValueError, AttributeError, TypeError) as error:
            raise ImageError(f"{file} is damaged ({error}): log in again") from error
        if pair:
            return f"Basic {pair}"
    return ""


def _files() -> Iterator[Path]:
    """Where podman and docker write logins, podman's first."""
    variables = os.environ
    if given := variables.get("REGISTRY_AUTH_FILE"):
        yield Path(given)
    if session := variables.get("XDG_RUNTIME_DIR"):
        yield Path(session, "containers/auth.json")
    # Where there is no session, as for root on a server.
    yield Path(f"/run/containers/{os.getuid()}/auth.json")
    home = Path(variables.get("HOME") or "/")
    yield Path(variables.get("XDG_CONFIG_HOME") or home / ".config", "containers/auth.json")
    yield Path(variables.get("DOCKER_CONFIG") or home / ".docker", "config.json")


def _kept_here(known: Mapping[str, Any], host: str, name: str) -> str:
    """USER:PASSWORD in base64 of a file's own entry; that of the longest prefix of HOST/NAME."""
    entries = {_bare(key): entry for key, entry in known.get("auths", {}).items()}
    words = f"{host}/{name}".split("/")
    for count in range(len(words), 0, -1):
        entry = entries.get("/".join(words[:count]), {})
        if entry.get("auth"):
            return entry["auth"]
        if entry.get("username"):
            return encoded(entry["username"], entry.get("password", ""))
    return ""


def _bare(key: str) -> str:
    """registry.example of "https://registry.example/v1/", as older dockers write it."""
    return re.sub(r"^https?://|/(v[12]/?)?$", "", key)


def _kept_by_a_helper(known: Mapping[str, Any], host: str) -> str:
    """The same of docker's credential helper; "" without one, or where it has no such login."""
    helper = known.get("credHelpers", {}).get(host) or known.get("credsStore")
    program = shutil.which(f"docker-credential-{helper}") if helper else None
    if program is None:
        return ""
    done = subprocess.run([program, "get"], input=host, capture_output=True, text=True, check=False)
    if done.returncode:
        return ""
    try:
        answer = json.loads(done.stdout)
        return encoded(answer["Username"], answer["Secret"])
    except (ValueError, KeyError, TypeError) as error:
        raise ImageError(f"{program} gave no login of {host}: log in again") from error


def encoded(user: str, password: str) -> str:
    """What follows "Basic" in a header."""
    return base64.b64encode(f"{user}:{password}".encode()).decode()
