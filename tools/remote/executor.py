"""Lends this host's GPUs to a BuildGrid service: `tools/bazel run //tools/remote:executor`.

One worker for each group of GPUs, one test at a time in it. SIGTERM drains: no new test is taken,
those that run may finish. `--check` tells whether the executor of a state folder is healthy.
"""

import argparse
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.bootstrap.cache import cache_root
from tools.remote.console import main, say, user_file
from tools.remote.errors import ServiceError
from tools.remote.gpus import detect, gpu_counts, share_out
from tools.remote.processes import Processes, wait_until
from tools.remote.state import DiskWatch, find_programs, only_one
from tools.remote.workers import Pool, Store, gpu_pools, take_no_more, worker

_WATCH_S = 1.0
_HEALTHY_S = 30.0
_RESTART_S = 5.0
# An idle worker has told its last result, and what it was given last has begun.
_IDLE_S = 3.0
_IDLE_POLL_S = 0.1


class Executor:
    """The workers of one host and the store between them and the service."""

    def __init__(
        self, programs: Path, state: Path, server: str, secure: Sequence[str], pools: Sequence[Pool]
    ) -> None:
        self._programs = programs
        self._state = state
        self._server = server
        self._secure = secure
        self._pools = {pool.name: pool for pool in pools}
        self._processes = Processes(state / "logs")
        self._health = state / "health"

    def start(self, quota_gb: int) -> None:
        self._store = Store(self._programs, self._state / "store", quota_gb)
        self._processes.start(self._store.command_between(self._server, self._secure))
        wait_until(self._store.ready, self._processes, what="the store", seconds=60)
        for pool in self._pools.values():
            self._start_worker(pool)

    def watch(self) -> None:
        """Runs until interrupted. A worker that ends is started again: the service may be down."""
        disk = DiskWatch(self._state)
        while True:
            time.sleep(_WATCH_S)
            self._processes.trim_logs()
            if news := disk.look():
                say(f"WARNING: {news}")
            ended = self._processes.take_ended()
            for command, code in ended:
                if command.name not in self._pools:
                    raise ServiceError(
                        f"{command.name} ended with {code}: see {self._processes.log(command.name)}"
                    )
                tail = self._processes.tail(command.name)
                say(f"{command.name} ended with {code} and starts again; its last words: {tail}")
            if ended:
                time.sleep(_RESTART_S)
                for command, _ in ended:
                    self._start_worker(self._pools[command.name])
            else:
                self._health.touch()

    def stop(self, drain_s: float) -> None:
        say(f"draining: tests that run get up to {drain_s:.0f} s")
        self._health.unlink(missing_ok=True)
        deadline = time.monotonic() + drain_s
        self._finish(deadline)
        self._processes.drain(self._pools, max(0.0, deadline - time.monotonic()))
        self._processes.stop()

    def _finish(self, deadline: float) -> None:
        """Returns when the workers take no more tests and have ended theirs, or at `deadline`."""
        try:
            for name in self._pools:
                take_no_more(self._state, name)
                self._processes.send_signal(name, signal.SIGHUP)
        except OSError as error:
            # A full disk. The workers end all the same, and a result is lost at worst.
            say(f"WARNING: cannot tell the workers to take no more tests: {error}")
            return
        idle_since = now = time.monotonic()
        while now < min(deadline, idle_since + _IDLE_S):
            time.sleep(_IDLE_POLL_S)
            now = time.monotonic()
            if any(map(self._processes.has_children, self._pools)):
                idle_since = now

    def _start_worker(self, pool: Pool) -> None:
        self._processes.start(
            worker(
                self._programs,
                self._state,
                pool,
                server=self._server,
                store=self._store.url,
                secure=[f"--bots-{option}" for option in self._secure],
            )
        )


def check(state: Path) -> None:
    """Raises ServiceError where no executor with all its workers has been seen for a while."""
    try:
        age_s = time.time() - (state / "health").stat().st_mtime
    except FileNotFoundError:
        raise ServiceError(f"no executor runs in {state}, or it is draining") from None
    if age_s > _HEALTHY_S:
        raise ServiceError(f"the executor in {state} was last healthy {age_s:.0f} s ago")


def _secure_options(options: argparse.Namespace) -> list[str]:
    """buildbox's options for TLS and a token, without the service that they are for."""
    files = {"server-cert": options.ca, "access-token": options.token}
    for file in files.values():
        if file and not os.access(file, os.R_OK):
            raise ServiceError(f"cannot read {file}")
    return [f"{name}={file}" for name, file in files.items() if file]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", help="the service: http://HOST:PORT or https://HOST:PORT")
    parser.add_argument(
        "--gpu-slots",
        type=gpu_counts,
        metavar="1,1,2",
        help="GPUs of each worker; one worker for every GPU if not given",
    )
    parser.add_argument(
        "--ca", type=user_file, help="certificate of the service, or of who signed it"
    )
    parser.add_argument("--token", type=user_file, help="file with the bearer token")
    parser.add_argument("--drain-s", type=float, default=600, help="what SIGTERM leaves tests")
    parser.add_argument("--store-gb", type=int, default=50, help="disk for inputs and results")
    parser.add_argument("--check", action="store_true", help="exit with 0 where one runs well")
    parser.add_argument(
        "--state",
        type=user_file,
        default=cache_root() / "remote-executor",
        help="folder of store, logs",
    )
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    state = options.state
    if options.check:
        check(state)
        return
    if not options.server:
        raise ServiceError("name the service: --server=https://HOST:PORT")
    gpus = detect()
    if not gpus:
        raise ServiceError("nvidia-smi shows no GPU: install the driver, or pass the devices in")
    slots = share_out(gpus, [1] * len(gpus) if options.gpu_slots is None else options.gpu_slots)
    secure = _secure_options(options)
    with only_one(state):
        # The service knows workers by name: each host has its own.
        pools = gpu_pools(slots, socket.gethostname())
        executor = Executor(find_programs(), state, options.server, secure, pools)
        try:
            executor.start(options.store_gb)
            for slot in slots:
                offers = ", ".join(f"{key}={value}" for key, value in slot.properties())
                say(f"GPU {slot.devices}: {offers}")
            say(f"lending {len(slots)} slot(s) to {options.server}; Ctrl-C or SIGTERM drains")
            executor.watch()
        finally:
            executor.stop(options.drain_s)


if __name__ == "__main__":
    sys.exit(main(lambda: run(_options()), endless=True))
