"""A worker ends when the process that started it has gone, however that one ended."""

import multiprocessing
import os
import threading
import time

_SECONDS_BETWEEN_LOOKS = 1.0


def end_with_parent() -> None:
    """From now on; does nothing in a process that multiprocessing did not start.

    vLLM 0.16.0 looks for a parent that is gone in its loop over calls only. A command that is
    killed just before, when worker and command wait for each other's queues to be connected
    (`MessageQueue.wait_until_ready`), left the worker behind for ever, with the GPU's memory.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        threading.Thread(
            target=_watch, args=(parent.pid,), name="watch-parent", daemon=True
        ).start()


def _watch(parent: int) -> None:
    # Another parent is there once the first one is gone.
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    os._exit(1)
