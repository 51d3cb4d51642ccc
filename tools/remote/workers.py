"""buildbox: the store of files and results, and the workers that run actions from it."""

import os
import shutil
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.remote.errors import ServiceError
from tools.remote.gpus import Slot
from tools.remote.processes import Command

_CAP_SYS_ADMIN = 21
# What a Unix socket's address holds, less the byte that ends it.
_SOCKET_PATH_BYTES = 107


@dataclass(frozen=True)
class Pool:
    """A worker: how many actions it takes at a time, what it offers, what they see as variables."""

    name: str
    slots: int
    properties: tuple[tuple[str, str], ...]
    variables: tuple[tuple[str, str], ...] = ()
    in_image: bool = False


def image_pool(slots: int) -> Pool:
    """A worker that runs each action inside the image of its `container-image`."""
    return Pool("image", slots, (("OSFamily", "linux"), ("Pool", "image")), in_image=True)


def cpu_pool(slots: int) -> Pool:
    return Pool("cpu", slots, (("OSFamily", "linux"), ("Pool", "cpu")))


def gpu_pools(slots: Iterable[Slot], host: str) -> list[Pool]:
    """A worker a slot, and one action at a time in it: no two tests share a device."""
    return [
        Pool(
            f"{host}-gpu-{slot.devices.replace(',', '-')}",
            1,
            slot.properties(),
            # nvidia-smi counts devices by their bus, and CUDA the fastest first unless told.
            (("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("CUDA_VISIBLE_DEVICES", slot.devices)),
        )
        for slot in slots
    ]


def own_pools(cpu_slots: int, image_slots: int, gpu_slots: Iterable[Slot]) -> list[Pool]:
    """The pools of a service's own machine.

    One without slots is left out: actions for it are then refused by name, and wait for nobody.
    """
    some = [pool for pool in (cpu_pool(cpu_slots), image_pool(image_slots)) if pool.slots]
    return [*some, *gpu_pools(gpu_slots, "service")]


def slot_count(text: str) -> int:
    """Reads "0", "1", ...; ValueError where it is something else."""
    count = int(text)
    if count < 0:
        raise ValueError(text)
    return count


def can_mount_fuse() -> bool:
    """Whether inputs can be mounted instead of linked one by one, file by file."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return False
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.partition("CapEff:")[2].split()[0], 16)
    return bool(capabilities >> _CAP_SYS_ADMIN & 1) or shutil.which("fusermount3") is not None


class Store:
    """A casd that keeps files by digest, and results by action, below `folder`.

    ServiceError where the folder's path is too long for the socket beside it.
    """

    def __init__(self, programs: Path, folder: Path, quota_gb: int) -> None:
        self._bin = programs / "usr/bin"
        self._folder = folder
        self._quota_gb = quota_gb
        self._socket = folder.with_suffix(".sock")
        if (length := len(os.fsencode(self._socket))) > _SOCKET_PATH_BYTES:
            raise ServiceError(
                f"{self._socket} is a path of {length} bytes, and a socket's may have "
                f"{_SOCKET_PATH_BYTES}: name a shorter --state"
            )
        self.url = f"unix:{self._socket}"

    def command(self, port: int | None = None) -> Command:
        """The store itself, on a loopback port as well if one is given."""
        return self._casd([f"--bind=127.0.0.1:{port}"] if port else [])

    def command_between(self, server: str, secure: Sequence[str]) -> Command:
        """A store that fetches from `server` what it lacks, and sends results there."""
        return self._casd(
            [
                f"--cas-remote={server}",
                *(f"--cas-{option}" for option in secure),
                "--findmissingblobs-cache-ttl=60",
            ]
        )

    def _casd(self, options: Sequence[str]) -> Command:
        self._socket.unlink(missing_ok=True)
        # casd finds buildbox-fuse, or does not, by PATH.
        path = ([str(self._bin)] if can_mount_fuse() else []) + ["/usr/bin", "/bin"]
        return Command(
            self._folder.name,
            [
                self._bin / "buildbox-casd",
                f"--bind={self.url}",
                *options,
                f"--quota-high={self._quota_gb}G",
                "--log-level=info",
                self._folder,
            ],
            environment={"PATH": os.pathsep.join(path)},
        )

    def ready(self) -> bool:
        return self._socket.is_socket()


def worker(
    programs: Path,
    folder: Path,
    pool: Pool,
    *,
    server: str,
    store: str,
    images: str = "",
    secure: Sequence[str] = (),
) -> Command:
    """The worker of a pool, which takes actions from `server`.

    On SIGINT it takes no new ones and ends after those it has begun, but see `take_no_more`.
    `secure` are further options for a server that asks for TLS and a token, `images` the store
    that unpacks images.
    """
    binaries = programs / "usr/bin"
    status = _status(folder, pool.name)
    status.write_text("botStatus: OK\n")
    words: list[str | Path] = [
        binaries / "buildbox-worker",
        f"--bots-remote={server}",
        f"--cas-remote={store}",
        *_runner(binaries, folder, pool, images),
        f"--concurrent-jobs={pool.slots}",
        "--max-wait-time=5",
        f"--config-file={status}",
        "--log-level=info",
        *secure,
    ]
    for key, value in pool.properties:
        words += ["--platform", f"{key}={value}"]
    # SIGTERM would end it at once, with its actions. The runner for images finds its bwrap by PATH.
    return Command(
        pool.name,
        [*words, pool.name],
        environment={"PATH": f"{binaries}:/usr/bin:/bin"},
        stop_signal=signal.SIGINT,
    )


def take_no_more(folder: Path, name: str) -> None:
    """What the worker `name` reads on SIGHUP: the scheduler is to give it no new actions.

    An action whose end falls into one of the reports that a worker sends every five seconds is
    lost where that worker has had its SIGINT before (buildbox 1.4.16): the answer to the report
    overwrites the result. So a worker is sent SIGHUP first, and SIGINT when it is idle.
    """
    _status(folder, name).write_text("botStatus: UNHEALTHY\n")


def _status(folder: Path, name: str) -> Path:
    return folder / f"{name}.status"


def _runner(binaries: Path, folder: Path, pool: Pool, images: str) -> list[str]:
    """The program that runs one action, and what the action sees beyond what Bazel gives it."""
    if pool.in_image:
        return [f"--buildbox-run={binaries}/buildbox-run-bubblewrap", f"--ra-remote={images}"]
    # Nothing of the worker's own environment.
    isolation = "--clearenv"
    if pool.variables:
        variables = folder / f"{pool.name}.env"
        variables.write_text("".join(f"{key}={value}\n" for key, value in pool.variables))
        isolation = f"--env-file={variables}"
    return [f"--buildbox-run={binaries}/buildbox-run-hosttools", f"--runner-arg={isolation}"]
