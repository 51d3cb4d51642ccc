"""Remote execution on this machine: `tools/bazel run //tools/remote:service`, for work and CI.

Starts a store (buildbox-casd), a scheduler (BuildGrid on a private PostgreSQL) and workers, prints
the flags for Bazel, and runs until Ctrl-C. All of it listens on loopback alone.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.bootstrap.cache import cache_root
from tools.remote.buildgrid import BuildGrid
from tools.remote.console import main, say, user_file
from tools.remote.errors import ServiceError
from tools.remote.gateway import Security, gateway
from tools.remote.gpus import detect, gpu_counts, share_out
from tools.remote.ports import answers, free_ports
from tools.remote.postgres import Postgres
from tools.remote.processes import Processes, wait_until
from tools.remote.registry import REPOSITORY, registry
from tools.remote.state import DiskWatch, find_programs, only_one
from tools.remote.workers import (
    Pool,
    Store,
    can_mount_fuse,
    own_pools,
    slot_count,
    worker,
)

_START_S = 180.0
_WATCH_S = 0.5


class Service:
    """Everything behind one endpoint; its state lies in one folder."""

    def __init__(self, programs: Path, state: Path, pools: Sequence[Pool]) -> None:
        self._programs = programs
        self._state = state
        self._pools = {pool.name: pool for pool in pools}
        self._processes = Processes(state / "logs")
        self.registry: str | None = None

    def start(self, port: int, quota_gb: int, security: Security) -> str:
        """Starts all parts, each when those it needs are ready. Raises ServiceError."""
        database_port, store_port, scheduler_port, free_port = free_ports(4)
        port = port or free_port
        self._store = Store(self._programs, self._state / "store", quota_gb)
        self._processes.start(self._store.command(store_port))
        database = Postgres(self._programs, self._state, database_port)
        database.initialise()
        self._processes.start(database.command())
        self._wait(database.ready, "PostgreSQL")
        self._wait(self._store.ready, "the store")
        self._scheduler = BuildGrid(
            self._state, scheduler_port, database.url, f"http://127.0.0.1:{store_port}"
        )
        self._scheduler.migrate()
        self._processes.start(self._scheduler.command())
        self._wait(self._scheduler.ready, "BuildGrid")
        self._processes.start(
            gateway(
                self._programs,
                self._state / "gateway",
                security,
                port=port,
                store=f"127.0.0.1:{store_port}",
                scheduler=self._scheduler.address,
            )
        )
        self._wait(lambda: answers(port), "the gateway")
        self._images = Store(self._programs, self._state / "images", quota_gb)
        if any(pool.in_image for pool in self._pools.values()):
            self._start_registry()
        for pool in self._pools.values():
            self._start_worker(pool)
        workers = sum(pool.slots for pool in self._pools.values())
        self._wait(lambda: sum(self.slots().values()) == workers, "a worker of each pool")
        return f"127.0.0.1:{port}"

    def slots(self) -> dict[str, int]:
        """Pool -> number of actions that its connected workers take at a time."""
        return self._scheduler.slots()

    def watch(self) -> None:
        """Runs until interrupted; a worker that ends is replaced, another part ends it all."""
        disk = DiskWatch(self._state)
        while True:
            time.sleep(_WATCH_S)
            self._processes.trim_logs()
            if news := disk.look():
                say(f"WARNING: {news}")
            for command, code in self._processes.take_ended():
                if command.name not in self._pools:
                    raise ServiceError(
                        f"{command.name} ended with {code}: see {self._processes.log(command.name)}"
                    )
                say(f"worker {command.name} ended with {code}; a new one takes its place")
                self._start_worker(self._pools[command.name])

    def stop(self) -> None:
        self._processes.stop()

    def _start_registry(self) -> None:
        (port,) = free_ports(1)
        self.registry = f"127.0.0.1:{port}"
        self._processes.start(registry(self._programs, self._state / "registry", port))
        self._wait(lambda: answers(port), "the registry")
        self._processes.start(self._images.command())
        self._wait(self._images.ready, "the store of images")

    def _start_worker(self, pool: Pool) -> None:
        self._processes.start(
            worker(
                self._programs,
                self._state,
                pool,
                server=f"http://{self._scheduler.address}",
                store=self._store.url,
                images=self._images.url,
            )
        )

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        wait_until(ready, self._processes, what=what, seconds=_START_S)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--state",
        type=user_file,
        default=cache_root() / "remote-service",
        help="folder of store, database and logs; may be deleted when no service runs there",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="of the endpoint; a free one if not given"
    )
    parser.add_argument(
        "--slots",
        type=slot_count,
        default=os.cpu_count() or 1,
        help="actions at a time in the CPU pool; 0 for none of this machine's",
    )
    parser.add_argument(
        "--gpu-slots",
        type=gpu_counts,
        metavar="1,1,2",
        help="GPUs of each worker of the GPU pool; one worker for every GPU if not given",
    )
    parser.add_argument(
        "--image-slots",
        type=slot_count,
        default=0,
        help="actions at a time inside the pinned image",
    )
    parser.add_argument("--tls-certificate", type=user_file, help="PEM file; clients use grpcs://")
    parser.add_argument("--tls-key", type=user_file, help="PEM file of its key")
    parser.add_argument("--token", type=user_file, help="file with the bearer token to demand")
    parser.add_argument("--store-gb", type=int, default=20, help="the store drops old files above")
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    begin = time.monotonic()
    state = options.state
    security = Security(options.tls_certificate, options.tls_key, options.token)
    security.check()
    gpus = detect()
    slots = share_out(gpus, [1] * len(gpus) if options.gpu_slots is None else options.gpu_slots)
    pools = own_pools(options.slots, options.image_slots, slots)
    with only_one(state):
        service = Service(find_programs(), state, pools)
        scheme = "grpcs" if security.certificate else "grpc"
        try:
            endpoint = service.start(options.port, options.store_gb, security)
            say(f"ready after {time.monotonic() - begin:.1f} s on {scheme}://{endpoint}")
            for pool, slots in service.slots().items():
                say(f"  pool {pool}: {slots} at a time")
            inputs = "mounted" if can_mount_fuse() else "linked one by one (no FUSE here)"
            say(f"  inputs are {inputs}; state and logs: {state}")
            if service.registry:
                images = f"{service.registry}/{REPOSITORY}"
                say(f"  image pool: push the image to {images}, and use")
                say(f"    --config=remote-image --repo_env=EAGLE3_IMAGES={images}")
            say("use it with, for example:")
            say(
                f"  tools/bazel test --config=remote --remote_executor={scheme}://{endpoint} "
                "//tests/unit/..."
            )
            say("Ctrl-C stops it")
            service.watch()
        finally:
            service.stop()


if __name__ == "__main__":
    sys.exit(main(lambda: run(_options()), endless=True))
