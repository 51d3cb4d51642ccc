"""Client of the OCI distribution API, version 1.1: what pushing and pulling an image needs."""

import hashlib
import http.client
import json
import re
import ssl
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tools.oci.errors import ImageError
from tools.oci.layout import INDEX, MANIFEST, TITLE
from tools.oci.login import authorization, encoded
from tools.oci.validate import blob_path

_TIMEOUT_S = 300
_TELL_S = 10
_BLOCK = 1 << 20
# As the distribution specification has them.
_WORD = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<host>([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:\d{{1,5}})?)/(?P<name>{_WORD}(/{_WORD})*)"
)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_LOCAL = re.compile(r"^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$")


class _Told:
    """A file to send; says now and then how much of it has gone."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._told_s = time.monotonic()

    def read(self, size: int = -1, /) -> bytes:
        now_s = time.monotonic()
        if now_s - self._told_s >= _TELL_S:
            self._told_s = now_s
            sent = f"{self._file.tell() / 1e6:,.0f} of {self._size / 1e6:,.0f} MB"
            print(f"  {sent}", file=sys.stderr, flush=True)
        return self._file.read(size)

    def rewind(self) -> None:
        self._file.seek(0)


class Repository:
    """HOST/NAME on a registry. Loopback is spoken to without TLS, others through HTTPS_PROXY.

    Passwords come from docker's or podman's configuration; tokens are fetched as they ask for.
    """

    def __init__(self, reference: str) -> None:
        words = _REFERENCE.fullmatch(reference)
        if not words:
            raise ImageError(
                f"{reference!r} is not HOST/NAME, the name in lower case, without a tag"
            )
        self._host, self.name = words["host"], words["name"]
        self._login = authorization(self._host, self.name)
        self._authorization = self._login

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
            body = _Told(file, descriptor["size"])
            self._call("PUT", f"{target.path}?{query}", body, headers, expect=(201,))

    def _pull_blob(self, digest: str, file: Path) -> None:
        connection, response = self._open("GET", self._path("blobs", digest))
        found = hashlib.sha256()
        with file.open("wb") as out:
            while block := response.read(_BLOCK):
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
        body: bytes | _Told | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        expect: tuple[int, ...] = (200,),
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection, response = self._open(method, path, body, headers)
        if response.status == 401:
            self._authorization = self._token(response.headers.get("WWW-Authenticate", ""))
            connection.close()
            if isinstance(body, _Told):
                body.rewind()
            connection, response = self._open(method, path, body, headers)
        data = _read(self._host, response)
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
        body: bytes | _Told | None = None,
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
        headers = {"Authorization": self._login} if self._login else {}
        _, response = _request(realm.netloc, "GET", f"{realm.path}?{query}", None, headers)
        token = _token_of(_read(realm.netloc, response)) if response.status == 200 else None
        if not token:
            raise ImageError(f"{self._host} refuses us: log in with `podman login {self._host}`")
        return f"Bearer {token}"


def check_tags(tags: Iterable[str]) -> None:
    """ImageError where one is no tag: to be known before gigabytes have been sent."""
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise ImageError(f"{tag!r} is no tag: letters, digits, `_`, `.` and `-`, at most 128")


def _request(
    host: str, method: str, path: str, body: bytes | _Told | None, headers: Mapping[str, str]
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    try:
        connection = _connection(host)
        connection.request(method, path, body, headers)
        return connection, connection.getresponse()
    except (OSError, OverflowError, http.client.HTTPException) as error:
        raise ImageError(f"cannot reach the registry {host}: {error!r}") from error


def _read(host: str, response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read()
    except (OSError, http.client.HTTPException) as error:
        raise ImageError(f"the registry {host} ended in mid-answer: {error!r}") from error


def _token_of(answer: bytes) -> str | None:
    try:
        fields = json.loads(answer)
        return fields.get("token") or fields.get("access_token")
    except (ValueError, AttributeError):
        return None


def _connection(host: str) -> http.client.HTTPConnection:
    if _LOCAL.match(host):
        return http.client.HTTPConnection(host, timeout=_TIMEOUT_S, blocksize=_BLOCK)
    proxy = _proxy(host)
    connection = http.client.HTTPSConnection(
        proxy.netloc.rpartition("@")[2] if proxy else host,
        timeout=_TIMEOUT_S,
        blocksize=_BLOCK,
        context=ssl.create_default_context(),
    )
    if proxy:
        words = map(urllib.parse.unquote, (proxy.username or "", proxy.password or ""))
        login = {"Proxy-Authorization": f"Basic {encoded(*words)}"} if proxy.username else {}
        connection.set_tunnel(host, headers=login)
    return connection


def _proxy(host: str) -> urllib.parse.SplitResult | None:
    """The proxy that HTTPS_PROXY names, unless NO_PROXY names the host."""
    address = urllib.request.getproxies().get("https")
    if not address or urllib.request.proxy_bypass(host):
        return None
    return urllib.parse.urlsplit(address if "://" in address else f"http://{address}")


def _check(data: bytes, digest: str) -> None:
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise ImageError(f"the registry sent another manifest than {digest}")
