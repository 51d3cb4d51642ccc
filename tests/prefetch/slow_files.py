"""A file system that answers each read late, and all reads together at a limited rate.

It stands in for a folder on a network, and shows the files of a folder on this machine. It speaks
the protocol of the Linux kernel's FUSE directly (include/uapi/linux/fuse.h, version 7.31), so that
it needs no library, but the right to mount and /dev/fuse.
"""

import ctypes
import errno
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

_REQUEST = struct.Struct("<IIQQIIII")  # size, opcode, unique, inode, uid, gid, pid, padding
_REPLY = struct.Struct("<IiQ")  # size, error, unique
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_READ = struct.Struct("<QQI")  # handle, offset, size
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ_FILE, _INIT, _BATCH_FORGET = 1, 2, 3, 14, 15, 26, 42
_RELEASE, _FLUSH, _INTERRUPT, _OPENDIR, _READDIR, _RELEASEDIR = 18, 25, 36, 27, 28, 29
_ASYNC_READ, _MAX_PAGES, _KEEP_CACHE = 1 << 0, 1 << 22, 1 << 1
_MAX_READ = 2**20
_BACKGROUND = 512
_SERVERS = 64
_ROOT = 1
_FOREVER = 10**6
_DETACH = 2  # MNT_DETACH of umount2(2)


@contextmanager
def slow_files(
    source: Path, folder: Path, *, latency: float, bytes_per_s: float
) -> Generator[None]:
    """Shows the files in `source` in `folder`, read-only. A read takes `latency` or longer."""
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    target = os.fsencode(folder)
    if libc.mount(b"slow_files", target, b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "cannot mount", str(folder))
    server = _Server(device, source, latency, bytes_per_s)
    for _ in range(_SERVERS):
        threading.Thread(target=server.serve, daemon=True).start()
    try:
        yield
    finally:
        libc.umount2(target, _DETACH)
        os.close(device)


class _Server:
    """Inode 1 is the folder, and those after it are its files in the order of their names."""

    def __init__(self, device: int, source: Path, latency: float, bytes_per_s: float) -> None:
        self._device = device
        self._files = [path for path in sorted(source.iterdir()) if path.is_file()]
        self._sizes = [path.stat().st_size for path in self._files]
        self._open = [os.open(path, os.O_RDONLY) for path in self._files]
        self._latency = latency
        self._bytes_per_s = bytes_per_s
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._answers: dict[int, Callable[[int, bytes], bytes]] = {
            _INIT: self._init,
            _LOOKUP: self._lookup,
            _GETATTR: lambda inode, _: struct.pack("<QII", _FOREVER, 0, 0) + self._status(inode),
            _OPEN: lambda *_: struct.pack("<QII", 0, _KEEP_CACHE, 0),
            _OPENDIR: lambda *_: bytes(16),
            _READDIR: self._list,
            _READ_FILE: self._read,
            _RELEASE: lambda *_: b"",
            _RELEASEDIR: lambda *_: b"",
            _FLUSH: lambda *_: b"",
        }

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, _MAX_READ + 4096)
            except OSError:
                return  # unmounted
            _, opcode, unique, inode, *_ = _REQUEST.unpack_from(request)
            if opcode in (_FORGET, _BATCH_FORGET, _INTERRUPT):
                continue
            try:
                answer, error = self._answers[opcode](inode, request[_REQUEST.size :]), 0
            except KeyError:
                known = opcode in self._answers
                answer, error = b"", -(errno.ENOENT if known else errno.ENOSYS)
            reply = _REPLY.pack(_REPLY.size + len(answer), error, unique)
            os.writev(self._device, [reply, answer])

    def _init(self, inode: int, body: bytes) -> bytes:
        flags = _ASYNC_READ | _MAX_PAGES
        limits = struct.pack("<HHIIHH", _BACKGROUND, _BACKGROUND, 4096, 1, _MAX_READ // 4096, 0)
        return struct.pack("<IIII", 7, 31, 2**30, flags) + limits + bytes(32)

    def _lookup(self, inode: int, body: bytes) -> bytes:
        names = [os.fsencode(path.name) for path in self._files]
        name = body.rstrip(b"\0")
        if name not in names:
            raise KeyError(name)
        found = names.index(name) + _ROOT + 1
        return struct.pack("<QQQQII", found, 0, _FOREVER, _FOREVER, 0, 0) + self._status(found)

    def _status(self, inode: int) -> bytes:
        is_folder = inode == _ROOT
        size = 0 if is_folder else self._sizes[inode - _ROOT - 1]
        mode = stat.S_IFDIR | 0o755 if is_folder else stat.S_IFREG | 0o444
        return _ATTRIBUTES.pack(
            inode, size, -(-size // 512), 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0
        )

    def _list(self, inode: int, body: bytes) -> bytes:
        _, first, room = _READ.unpack_from(body)
        listed = b""
        for number, path in enumerate(self._files[first:], start=first + 1):
            name = os.fsencode(path.name)
            entry = struct.pack("<QQII", number + _ROOT, number, len(name), 8) + name
            entry += bytes(-len(entry) % 8)
            if len(listed) + len(entry) > room:
                break
            listed += entry
        return listed

    def _read(self, inode: int, body: bytes) -> bytes:
        _, offset, size = _READ.unpack_from(body)
        content = os.pread(self._open[inode - _ROOT - 1], size, offset)
        with self._lock:
            # One line for all: what was asked for later comes later.
            begin = max(time.monotonic(), self._free_at)
            self._free_at = begin + len(content) / self._bytes_per_s
            ready = self._free_at
        time.sleep(max(self._latency, ready - time.monotonic()))
        return content
