"""What a registry asks for and answers, played by a small server on loopback."""

import base64
import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tools.oci import push
from tools.oci import registry as client
from tools.oci.errors import ImageError, run
from tools.oci.layout import CONFIG, MANIFEST, TITLE, Layout
from tools.oci.registry import Repository

TOKEN, PASSWORD = "a-token", base64.b64encode(b"me:secret").decode()


class Registry(ThreadingHTTPServer):
    """Keeps blobs and manifests in memory; wants a token, and a password for it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"127.0.0.1:{self.server_address[1]}"
        self.kept: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.damaged = False
        self.cut = False
        self.token = json.dumps({"token": TOKEN})


class _Handler(BaseHTTPRequestHandler):
    @property
    def _registry(self) -> Registry:
        assert isinstance(self.server, Registry)
        return self.server

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) + 9 * self._registry.cut))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path, _, query = self.path.partition("?")
        self._registry.calls.append(f"{self.command} {path}")
        if path == "/token":
            known = self.headers.get("Authorization") == f"Basic {PASSWORD}"
            self._answer(200 if known else 401, self._registry.token.encode())
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            realm = f'Bearer realm="http://{self._registry.address}/token",service="here"'
            self._answer(401, WWW_Authenticate=realm)
        elif self.command == "POST":
            self._answer(202, Location=f"{path}1?state=x")
        elif self.command == "PUT":
            key = query.rpartition("digest=")[2].replace("%3A", ":") or path.rpartition("/")[2]
            self._registry.kept[key] = body
            self._answer(201)
        else:
            found = self._registry.kept.get(path.rpartition("/")[2])
            damaged = b"x" if self._registry.damaged else b""
            self._answer(404 if found is None else 200, (found or b"") + damaged)

    # Names that the base class looks for.
    do_GET = do_HEAD = do_POST = do_PUT = _handle

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def image(tmp_path: Path) -> tuple[Path, str]:
    layout = Layout(tmp_path / "layout")
    layer = layout.add_bytes(b"layer", "application/x") | {"annotations": {TITLE: "all"}}
    manifest = {"mediaType": MANIFEST, "config": layout.add_json({}, CONFIG), "layers": [layer]}
    descriptor = layout.add_json(manifest, MANIFEST)
    layout.finish([descriptor])
    return tmp_path / "layout", descriptor["digest"]


@pytest.fixture
def logged_in(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "auth.json"
    file.write_text(json.dumps({"auths": {registry.address: {"auth": PASSWORD}}}))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(file))


@pytest.mark.usefixtures("logged_in")
def test_an_image_goes_and_comes_back(
    registry: Registry, image: tuple[Path, str], tmp_path: Path
) -> None:
    layout, digest = image
    repository = Repository(f"{registry.address}/name")
    repository.push(layout, digest, ["0.1"])
    assert registry.kept["0.1"] == registry.kept[digest]
    repository.pull(digest, tmp_path / "pulled")
    blobs = {file.name: file.read_bytes() for file in (tmp_path / "pulled/blobs/sha256").iterdir()}
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in blobs.items())
    assert blobs.keys() == {file.name for file in (layout / "blobs/sha256").iterdir()}


@pytest.mark.usefixtures("logged_in")
def test_the_tag_goes_last_and_what_is_there_is_not_sent_again(
    registry: Registry, image: tuple[Path, str]
) -> None:
    Repository(f"{registry.address}/name").push(*image, ["0.1"])
    assert registry.calls[-1] == "PUT /v2/name/manifests/0.1"
    registry.calls.clear()
    Repository(f"{registry.address}/name").push(*image, [])
    assert [call for call in registry.calls if call.startswith("POST")] == []


@pytest.mark.usefixtures("logged_in")
def test_what_is_sent_is_told(
    registry: Registry, image: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Repository(f"{registry.address}/name").push(*image, [])
    assert capsys.readouterr().err == "pushing a blob, 0.0 MB\npushing all, 0.0 MB\n"
    Repository(f"{registry.address}/name").push(*image, ["0.1"])
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("logged_in")
def test_other_bytes_are_refused(
    registry: Registry, image: tuple[Path, str], tmp_path: Path
) -> None:
    repository = Repository(f"{registry.address}/name")
    repository.push(*image, [])
    registry.damaged = True
    with pytest.raises(ImageError, match="another manifest"):
        repository.pull(image[1], tmp_path / "pulled")


def test_without_a_password_it_says_how_to_log_in(
    registry: Registry, image: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ImageError, match="podman login 127"):
        Repository(f"{registry.address}/name").push(*image, [])


def test_a_damaged_login_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "auth.json").write_text('{"auths": ')
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    with pytest.raises(ImageError, match=r"auth\.json is damaged .*: log in again"):
        Repository("127.0.0.1:1/name")


@pytest.mark.usefixtures("logged_in")
@pytest.mark.parametrize("token", ["<html>", "[]", "{}"])
def test_nonsense_of_a_token_server_is_a_refusal(
    token: str, registry: Registry, image: tuple[Path, str]
) -> None:
    registry.token = token
    with pytest.raises(ImageError, match="refuses us"):
        Repository(f"{registry.address}/name").push(*image, [])


@pytest.mark.usefixtures("logged_in")
def test_an_answer_that_is_cut_is_told(registry: Registry, image: tuple[Path, str]) -> None:
    registry.cut = True
    with pytest.raises(ImageError, match="ended in mid-answer: IncompleteRead"):
        Repository(f"{registry.address}/name").push(*image, [])


@pytest.mark.usefixtures("logged_in")
def test_a_long_push_says_how_far_it_is(
    registry: Registry,
    image: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(client, "_TELL_S", 0)
    Repository(f"{registry.address}/name").push(*image, [])
    assert "pushing all, 0.0 MB\n  0 of 0 MB\n" in capsys.readouterr().err


def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str) -> None:
    (tmp_path / "digest").write_text("sha256:0\n")
    files = [f"--{name}={tmp_path}/{name}" for name in ("layout", "digest", "referrers")]
    monkeypatch.setattr("sys.argv", ["push", *files, *words])


@pytest.mark.parametrize("tag", ["my tag", "", "é", "-x", "x" * 129])
def test_a_bad_tag_is_refused_before_anything_is_sent(
    tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments(monkeypatch, tmp_path, "--", "127.0.0.1:1/name", "0.1", tag)
    assert run(push.main) == 1
    assert "is no tag" in capsys.readouterr().err


def test_ctrl_c_is_no_stack_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Repository, "push", interrupt)
    arguments(monkeypatch, tmp_path, "127.0.0.1:1/name")
    assert run(push.main) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_what_is_no_registry_is_told(image: tuple[Path, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"SSH-2.0-x\r\n")

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(ImageError, match=r"cannot reach the registry .*BadStatusLine"):
            Repository(f"127.0.0.1:{server.getsockname()[1]}/name").push(*image, [])


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The lines that a proxy was sent, which refuses everything."""
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    lines.extend(connection.recv(1000).decode().splitlines())
                    connection.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")

        threading.Thread(target=refuse, daemon=True).start()
        for name in ("https_proxy", "no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        address = f"me:s%40cret@127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("HTTPS_PROXY", f"http://{address}")
        yield lines


def test_a_registry_beyond_a_proxy_is_reached_through_it(
    proxy: list[str], image: tuple[Path, str]
) -> None:
    with pytest.raises(ImageError, match=r"the registry 127\.0\.0\.2:1: .*403 Forbidden"):
        Repository("127.0.0.2:1/name").push(*image, [])
    assert proxy[0].startswith("CONNECT 127.0.0.2:1 ")
    password = base64.b64encode(b"me:s@cret").decode()
    assert f"Proxy-Authorization: Basic {password}" in proxy


def test_a_registry_that_no_proxy_is_for_is_reached_without(
    proxy: list[str], image: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.2")
    with pytest.raises(ImageError, match="cannot reach the registry"):
        Repository("127.0.0.2:1/name").push(*image, [])
    assert proxy == []


def test_an_unreachable_registry(image: tuple[Path, str]) -> None:
    with pytest.raises(ImageError, match="cannot reach the registry"):
        Repository("127.0.0.1:1/name").push(*image, [])


@pytest.mark.parametrize(
    "reference",
    [
        "/name",
        "ho st/name",
        "host",
        "host/Name",
        "host/name/",
        "host/name:tag",
        "host/name@sha256:0",
        "host/näme",
        "host:x/name",
        "https://host/name",
    ],
)
def test_a_reference_is_host_and_name(reference: str) -> None:
    with pytest.raises(ImageError, match="is not HOST/NAME"):
        Repository(reference)
