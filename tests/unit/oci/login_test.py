"""Which login goes to a registry: as podman and docker leave it."""

import base64
import json
from pathlib import Path

import pytest

from tools.oci.errors import ImageError
from tools.oci.login import authorization

HOST = "registry.example"


def basic(pair: str) -> str:
    return f"Basic {encoded(pair)}"


def encoded(pair: str) -> str:
    return base64.b64encode(pair.encode()).decode()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write(file: Path, known: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(known))


def helper(folder: Path, name: str, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A credential helper on PATH."""
    program = folder / f"bin/docker-credential-{name}"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/bash\nread -r host\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_without_a_login_there_is_none(home: Path) -> None:
    assert authorization(HOST, "eagle3") == ""


def test_podmans_login_comes_before_dockers(home: Path) -> None:
    write(home / ".docker/config.json", {"auths": {HOST: {"auth": encoded("docker:1")}}})
    assert authorization(HOST, "eagle3") == basic("docker:1")
    write(home / ".config/containers/auth.json", {"auths": {HOST: {"auth": encoded("podman:1")}}})
    assert authorization(HOST, "eagle3") == basic("podman:1")


def test_podmans_login_of_a_user_without_a_session(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """podman login as root on a server writes to /run/containers/0/auth.json."""
    monkeypatch.setattr("os.getuid", lambda: 12345)
    seen: list[str] = []
    monkeypatch.setattr(Path, "is_file", lambda self: seen.append(str(self)))
    authorization(HOST, "eagle3")
    assert "/run/containers/12345/auth.json" in seen


def test_a_login_for_the_name_alone_wins(home: Path) -> None:
    auths = {
        f"{HOST}/team": {"auth": encoded("team:1")},
        HOST: {"username": "me", "password": "2"},
    }
    write(home / ".docker/config.json", {"auths": auths})
    assert authorization(HOST, "team/eagle3") == basic("team:1")
    assert authorization(HOST, "teams/eagle3") == basic("me:2")


@pytest.mark.parametrize("key", [f"https://{HOST}", f"https://{HOST}/v1/", f"{HOST}/v2/"])
def test_older_spellings_of_the_host(key: str, home: Path) -> None:
    write(home / ".docker/config.json", {"auths": {key: {"auth": encoded("me:1")}}})
    assert authorization(HOST, "eagle3") == basic("me:1")


@pytest.mark.parametrize("kept", [{"credsStore": "keeper"}, {"credHelpers": {HOST: "keeper"}}])
def test_a_helper_is_asked(kept: dict, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / ".docker/config.json", {"auths": {HOST: {}}, **kept})
    helper(
        home, "keeper", 'echo "{\\"Username\\": \\"$host\\", \\"Secret\\": \\"1\\"}"', monkeypatch
    )
    assert authorization(HOST, "eagle3") == basic(f"{HOST}:1")


def test_a_helper_that_has_no_login(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / ".docker/config.json", {"credsStore": "keeper"})
    assert authorization(HOST, "eagle3") == "", "it is not on PATH"
    helper(home, "keeper", "echo not found; exit 1", monkeypatch)
    assert authorization(HOST, "eagle3") == ""
    helper(home, "keeper", "echo well", monkeypatch)
    with pytest.raises(ImageError, match="docker-credential-keeper gave no login"):
        authorization(HOST, "eagle3")


@pytest.mark.parametrize("known", [[], {"auths": []}, {"auths": {HOST: 1}}])
def test_a_damaged_file_is_named(known: object, home: Path) -> None:
    write(home / ".docker/config.json", known)
    with pytest.raises(ImageError, match=r"config\.json is damaged .*: log in again"):
        authorization(HOST, "eagle3")
