"""A plain loopback port that leads to a TLS service: `tools/bazel run //tools/remote:connect`.

The Bazel of the Debian archive cannot speak TLS to a service ("JDK provider does not support ALPN
protocol"). This adds TLS and the bearer token, which so stays out of command lines too.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from tools.remote.console import main, say, user_file
from tools.remote.errors import ServiceError
from tools.remote.gateway import connection
from tools.remote.ports import answers, free_ports
from tools.remote.processes import Processes, wait_until
from tools.remote.state import find_programs

_START_S = 60.0
_WATCH_S = 0.5
_SERVER = re.compile(r"(?:grpcs://|https://)?([A-Za-z0-9.-]+:\d+)")
_SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT of the service")
    parser.add_argument(
        "--ca", type=user_file, default=_SYSTEM_CA, help="whom the service must be signed by"
    )
    parser.add_argument("--token", type=user_file, help="file with the bearer token")
    parser.add_argument("--port", type=int, default=0, help="on loopback; a free one if not given")
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    server = _SERVER.fullmatch(options.server)
    if not server:
        raise ServiceError(f"--server must be HOST:PORT, and is {options.server}")
    for file in (options.ca, options.token):
        if file and not os.access(file, os.R_OK):
            raise ServiceError(f"cannot read {file}")
    port = options.port or free_ports(1)[0]
    with tempfile.TemporaryDirectory(prefix="eagle3-connect-") as folder:
        processes = Processes(Path(folder, "logs"))
        processes.start(
            connection(
                find_programs(),
                Path(folder, "gateway"),
                port=port,
                server=server[1],
                authority=options.ca,
                token=options.token,
            )
        )
        try:
            wait_until(lambda: answers(port), processes, what="the gateway", seconds=_START_S)
            say(f"grpc://127.0.0.1:{port} leads to {server[1]}; Ctrl-C ends it")
            while True:
                time.sleep(_WATCH_S)
                processes.require_running()
        finally:
            processes.stop()


if __name__ == "__main__":
    sys.exit(main(lambda: run(_options()), endless=True))
