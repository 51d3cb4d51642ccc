"""nginx: the one endpoint that Bazel and distant workers see.

It sends files and results straight to the store and the rest to BuildGrid. Through BuildGrid the
first upload of a stack, 45,000 files, takes minutes and starves the scheduler.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tools.remote.errors import ServiceError
from tools.remote.processes import Command

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")

# What a gateway of either kind is made of: {servers} are its `server` blocks.
_CONFIG = """\
daemon off;
pid {pid};
error_log stderr warn;
worker_processes 1;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {body};
  proxy_temp_path {proxy};
  fastcgi_temp_path {fastcgi};
  uwsgi_temp_path {uwsgi};
  scgi_temp_path {scgi};
  # A file may have any size, a test any length, a connection any number of requests.
  client_max_body_size 0;
  client_body_timeout 1h;
  grpc_read_timeout 24h;
  grpc_send_timeout 1h;
  keepalive_requests 100000000;
  keepalive_timeout 1h;
  keepalive_time 24h;
  # Bazel names build and target in a header whose name has dots; nginx would drop it.
  ignore_invalid_headers off;
  # Bazel opens up to 100 connections, and each stream takes one of the store's threads.
  http2_max_concurrent_streams 8;
  {servers}
}}
"""

_PATHS = ("pid", "body", "proxy", "fastcgi", "uwsgi", "scgi")

_SERVICE = """\
upstream store {{ server {store}; keepalive 64; keepalive_requests 100000000; }}
  upstream scheduler {{ server {scheduler}; keepalive 64; keepalive_requests 100000000; }}
  map $http_authorization $refused {{ {authorized} }}
  server {{
    listen 127.0.0.1:{port}{ssl};
    http2 on;
    {certificate}
    if ($refused) {{ return 401; }}
    location /build.bazel.remote.execution.v2.ActionCache/ {{ grpc_pass grpc://store; }}
    location /build.bazel.remote.execution.v2.ContentAddressableStorage/ {{
      grpc_pass grpc://store;
    }}
    location /google.bytestream.ByteStream/ {{ grpc_pass grpc://store; }}
    location / {{ grpc_pass grpc://scheduler; }}
  }}"""

_CONNECTION = """\
upstream service {{ server {server}; keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port};
    http2 on;
    {header}
    grpc_ssl_protocols TLSv1.2 TLSv1.3;
    grpc_ssl_trusted_certificate {authority};
    grpc_ssl_verify on;
    grpc_ssl_verify_depth 5;
    grpc_ssl_name {name};
    grpc_ssl_server_name on;
    grpc_set_header Host {server};
    location / {{ grpc_pass grpcs://service; }}
  }}"""


@dataclass(frozen=True)
class Security:
    """What the gateway demands. Without a certificate it speaks plain text, on loopback alone."""

    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None

    def check(self) -> None:
        """Raises ServiceError where a file is missing or half of it is given."""
        if (self.certificate is None) != (self.key is None):
            raise ServiceError("--tls-certificate and --tls-key belong together: give both")
        if self.token and not self.certificate:
            raise ServiceError("a token in plain text is no secret: give --tls-certificate too")
        for file in (self.certificate, self.key, self.token):
            if file and not os.access(file, os.R_OK):
                raise ServiceError(f"cannot read {file}")
        if self.token:
            read_token(self.token)


def gateway(
    programs: Path, folder: Path, security: Security, *, port: int, store: str, scheduler: str
) -> Command:
    """The gateway on loopback `port`; `store` and `scheduler` are HOST:PORT."""
    certificate, authorized = "", "default 0;"
    if security.certificate:
        certificate = (
            f"ssl_certificate {_quoted(security.certificate)}; "
            f"ssl_certificate_key {_quoted(security.key)}; "
            "ssl_protocols TLSv1.2 TLSv1.3;"
        )
    if security.token:
        authorized = f'default 1; "Bearer {read_token(security.token)}" 0;'
    service = _SERVICE.format(
        port=port,
        ssl=" ssl" if security.certificate else "",
        certificate=certificate,
        authorized=authorized,
        store=store,
        scheduler=scheduler,
    )
    return _nginx(programs, folder, service)


def connection(
    programs: Path, folder: Path, *, port: int, server: str, authority: Path, token: Path | None
) -> Command:
    """Leads loopback `port` to `server` (HOST:PORT), which `authority` must vouch for."""
    header = f'grpc_set_header Authorization "Bearer {read_token(token)}";' if token else ""
    leading = _CONNECTION.format(
        port=port,
        server=server,
        name=server.rpartition(":")[0],
        authority=_quoted(authority),
        header=header,
    )
    return _nginx(programs, folder, leading)


def read_token(file: Path) -> str:
    """Raises ServiceError where the file does not hold a token that may stand in a header."""
    token = file.read_text(encoding="ascii", errors="replace").strip()
    if not _TOKEN.fullmatch(token):
        raise ServiceError(f"{file} must hold one token of A-Z, a-z, 0-9 and -._~+/=")
    return token


def _quoted(path: Path | None) -> str:
    """A path as one word of nginx's configuration, whatever is in it."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _nginx(programs: Path, folder: Path, servers: str) -> Command:
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "nginx.conf"
    # It may hold a token.
    config.touch(mode=0o600)
    paths = {name: _quoted(folder / name) for name in _PATHS}
    config.write_text(_CONFIG.format(**paths, servers=servers))
    words = [programs / "usr/sbin/nginx", "-p", folder, "-c", config, "-e", "stderr"]
    return Command("gateway", words)
