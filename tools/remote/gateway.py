"""nginx: the one endpoint that Bazel and distant workers see.

It sends files and results straight to the store and the rest to BuildGrid. Through BuildGrid the
first upload of a stack, 45,000 files, takes minutes and starves the scheduler.
"""

from pathlib import Path

from tools.remote.processes import Command

_CONFIG = """\
daemon off;
pid {folder}/pid;
error_log stderr warn;
worker_processes 1;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  # A file may have any size, a test any length; a connection any number of requests.
  client_max_body_size 0;
  client_body_timeout 1h;
  grpc_read_timeout 24h;
  grpc_send_timeout 1h;
  keepalive_requests 100000000;
  keepalive_timeout 1h;
  keepalive_time 24h;
  # Bazel opens up to 100 connections, and each stream takes one of the store's threads.
  http2_max_concurrent_streams 8;
  upstream store {{ server {store}; keepalive 64; keepalive_requests 100000000; }}
  upstream scheduler {{ server {scheduler}; keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port};
    http2 on;
    location /build.bazel.remote.execution.v2.ActionCache/ {{ grpc_pass grpc://store; }}
    location /build.bazel.remote.execution.v2.ContentAddressableStorage/ {{ grpc_pass grpc://store; }}
    location /google.bytestream.ByteStream/ {{ grpc_pass grpc://store; }}
    location / {{ grpc_pass grpc://scheduler; }}
  }}
}}
"""


def gateway(programs: Path, folder: Path, *, port: int, store: str, scheduler: str) -> Command:
    """The gateway on loopback `port`; `store` and `scheduler` are HOST:PORT."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "nginx.conf"
    config.write_text(_CONFIG.format(folder=folder, port=port, store=store, scheduler=scheduler))
    words = [programs / "usr/sbin/nginx", "-p", folder, "-c", config, "-e", "stderr"]
    return Command("gateway", words)
