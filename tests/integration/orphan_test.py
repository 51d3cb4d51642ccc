"""A command that is killed while it and its worker connect their queues leaves no worker behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.integration.tiny_models import make_llama

# The command's own wait comes when the worker has said that it is ready, and waits, too.
_COMMAND = """
import os, signal, sys
from pathlib import Path
from vllm.distributed.device_communicators.shm_broadcast import MessageQueue
from eagle3.engine.engine import Engine
from eagle3.engine.options import EngineOptions

def killed(self):
    import psutil
    print(*(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    MessageQueue.wait_until_ready = killed
    Engine(EngineOptions(Path(sys.argv[1]), (8,)))
"""


def test_a_kill_before_the_first_call_leaves_no_worker(tmp_path: Path) -> None:
    model = make_llama(tmp_path / "llama")
    process = subprocess.Popen(
        [sys.executable, "-s", "-c", _COMMAND, str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    children = []
    for pid in process.stdout.readline().split():
        try:
            children.append(psutil.Process(int(pid)))
        except psutil.NoSuchProcess:
            continue
    process.stdin.close()
    assert process.wait() == -signal.SIGKILL
    assert children
    try:
        assert psutil.wait_procs(children, timeout=120)[1] == []
    finally:
        for child in children:
            if child.is_running():
                child.kill()
