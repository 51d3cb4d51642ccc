"""Client of the OCI distribution API, version 1.1: what pushing and pulling an image needs."""

import base64
import hashlib
import http.client
import json
import os
import re
import ssl
import sys
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tools.oci.errors import ImageError
from tools.oci.layout import INDEX, MANIFEST, TITLE
from tools.oci.validate import blob_path

_TIMEOUT_S = 300
_LOCAL = re.compile(r"^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$")


class Repository:
    """HOST/NAME on a registry. Loopback is spoken to without TLS.

    Passwords come from docker's or podman's configuration; tokens are fetched as they ask for.
    """

    def __init__(self, reference: str) -> None:
        host, _, self.name = reference.partition("/")
        if not self.name or re.search(r"[:@]", self.name):
            raise ImageError(f"{reference!r} is not HOST/NAME, without a tag")
        self._host = host
        self._authorization = _basic(host)

    def push(self, layout: Path, digest: str, tags: list[str]) -> None:
        """Pushes blobs, then the manifest by digest, then its tags: a tag never leads nowhere."""
        manifest = json.loads(blob_path(layout, digest).read_bytes())
        for descriptor in (manifest["config"], *manifest["layers"]):
            self._push_blob(layout, descriptor)
        data = blob_path(layout, digest).read_bytes()
        for reference in (digest, *tags):
            headers = {"Content-Type": manifest["mediaType"]}
            self._call("PUT", self._path("manifests", reference), data, headers, expect=(201,))

    def push_referrers(self, layout: Path, subject: str) -> None:
        """Pushes every manifest of a layout, and their index as the subject's fallback tag.

        A registry of distribution API 1.1 finds them by their subject, an older one by the tag.
        """
        index = (layout / "index.json").read_bytes()
        for descriptor in json.loads(index)["manifests"]:
            self.push(layout, descriptor["digest"], [])
        path = self._path("manifests", subject.replace(":", "-"))
        self._call("PUT", path, index, {"Content-Type": INDEX}, expect=(201,))

    def pull(self, digest: str, layout: Path) -> None:
        """Fills `layout`, a new folder; every blob is held against its digest."""
        (layout / "blobs/sha256").mkdir(parents=True)
        accept = {"Accept": f"{MANIFEST}, {INDEX}"}
        data = self._call("GET", self._path("manifests", digest), headers=accept)[1]
        _check(data, digest)
        blob_path(layout, digest).write_bytes(data)
        manifest = json.loads(data)
        for descriptor in (manifest["config"], *manifest["layers"]):
            self._pull_blob(descriptor["digest"], blob_path(layout, descriptor["digest"]))
        index = {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [
                {"mediaType": manifest["mediaType"], "digest": digest, "size": len(data)}
            ],
        }
        (layout / "index.json").write_text(json.dumps(index))
        (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')

    def _push_blob(self, layout: Path, descriptor: Mapping[str, Any]) -> None:
        digest = descriptor["digest"]
        if self._call("HEAD", self._path("blobs", digest), expect=(200, 404))[0].status == 200:
            return
        path = self._path("blobs", "uploads/")
        location = self._call("POST", path, b"", expect=(202,))[0].headers["Location"]
        target = urllib.parse.urlsplit(location)
        query = "&".join(filter(None, (target.query, f"digest={urllib.parse.quote(digest)}")))
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(descriptor["size"]),
        }
        name = descriptor.get("annotations", {}).get(TITLE, "a blob")
        print(f"pushing {name}, {descriptor['size'] / 1e6:,.1f} MB", file=sys.stderr, flush=True)
        with blob_path(layout, digest).open("rb") as file:
            self._call("PUT", f"{target.path}?{query}", file, headers, expect=(201,))

    def _pull_blob(self, digest: str, file: Path) -> None:
        connection, response = self._open("GET", self._path("blobs", digest))
        found = hashlib.sha256()
        with file.open("wb") as out:
            while block := response.read(1 << 20):
                found.update(block)
                out.write(block)
        connection.close()
        if response.status != 200 or f"sha256:{found.hexdigest()}" != digest:
            file.unlink()
            raise ImageError(
                f"{self._host} sent other bytes than {digest} (HTTP {response.status})"
            )

    def _path(self, kind: str, reference: str) -> str:
        return f"/v2/{self.name}/{kind}/{reference}"

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | BinaryIO | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        expect: tuple[int, ...] = (200,),
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection, response = self._open(method, path, body, headers)
        if response.status == 401:
            self._authorization = self._token(response.headers.get("WWW-Authenticate", ""))
            connection.close()
            if hasattr(body, "seek"):
                body.seek(0)  # type: ignore[union-attr]
            connection, response = self._open(method, path, body, headers)
        data = response.read()
        connection.close()
        if response.status not in expect:
            words = data.decode(errors="replace").strip()[:200]
            raise ImageError(
                f"{self._host} answered {method} {path} with {response.status} {words}"
            )
        return response, data

    def _open(
        self,
        method: str,
        path: str,
        body: bytes | BinaryIO | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        authorization = {"Authorization": self._authorization} if self._authorization else {}
        return _request(self._host, method, path, body, {**(headers or {}), **authorization})

    def _token(self, challenge: str) -> str:
        """What a 401 asks for: the token server's answer to our password, or to nobody's."""
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        if not challenge.lower().startswith("bearer ") or "realm" not in fields:
            raise ImageError(f"{self._host} refuses us: log in with `podman login {self._host}`")
        realm = urllib.parse.urlsplit(fields["realm"])
        scope = f"repository:{self.name}:pull,push"
        query = urllib.parse.urlencode({"service": fields.get("service", ""), "scope": scope})
        basic = _basic(self._host)
        headers = {"Authorization": basic} if basic else {}
        _, response = _request(realm.netloc, "GET", f"{realm.path}?{query}", None, headers)
        answer = json.loads(response.read()) if response.status == 200 else {}
        token = answer.get("token") or answer.get("access_token")
        if not token:
            raise ImageError(f"{self._host} refuses us: log in with `podman login {self._host}`")
        return f"Bearer {token}"


def _request(
    host: str, method: str, path: str, body: bytes | BinaryIO | None, headers: Mapping[str, str]
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = _connection(host)
    try:
        connection.request(method, path, body, headers)
        return connection, connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise ImageError(f"cannot reach the registry {host}: {error!r}") from error


def _connection(host: str) -> http.client.HTTPConnection:
    if _LOCAL.match(host):
        return http.client.HTTPConnection(host, timeout=_TIMEOUT_S)
    context = ssl.create_default_context()
    return http.client.HTTPSConnection(host, timeout=_TIMEOUT_S, context=context)


def _basic(host: str) -> str:
    """The Authorization header that docker's or podman's login left for host; "" without one."""
    home = Path(os.environ.get("HOME", "/"))
    files = [
        Path(os.environ.get("REGISTRY_AUTH_FILE", "/nonexistent")),
        Path(os.environ.get("XDG_RUNTIME_DIR", "/nonexistent"), "containers/auth.json"),
        Path(os.environ.get("DOCKER_CONFIG", home / ".docker"), "config.json"),
    ]
    for file in files:
        if file.is_file():
            try:
                known = json.loads(file.read_text()).get("auths", {}).get(host, {})
            except (ValueError, AttributeError) as error:
                raise ImageError(f"{file} is damaged ({error}): log in again") from error
            if known.get("auth"):
                return f"Basic {known['auth']}"
            if known.get("username"):
                pair = f"{known['username']}:{known.get('password', '')}"
                return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return ""


def _check(data: bytes, digest: str) -> None:
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise ImageError(f"the registry sent another manifest than {digest}")
