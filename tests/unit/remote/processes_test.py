"""Children: started, watched, drained, stopped."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.remote.errors import ServiceError
from tools.remote.processes import Command, Processes, wait_until

SLEEP = ("sleep", "600")


def shell(name: str, script: str) -> Command:
    return Command(name, ("bash", "-c", script), environment={"PATH": os.environ["PATH"]})


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(condition) -> None:
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_child_that_ends_is_reported_once(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.start(shell("short", "exit 3"))
    ended: list[tuple[str, int]] = []
    wait_for(lambda: ended.extend((c.name, code) for c, code in processes.take_ended()) or ended)
    assert ended == [("short", 3)]
    assert processes.take_ended() == []


def test_a_child_stands_where_nobody_cleans(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    processes = Processes(logs)
    processes.start(shell("place", "pwd"))
    wait_for(lambda: processes.log("place").read_text() == f"{logs}\n")
    processes.stop()


def test_a_log_that_grows_is_emptied_and_written_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.remote.processes._LOG_BYTES", 8)
    processes = Processes(tmp_path)
    go_on = tmp_path / "go on"
    wait = f"until [ -e '{go_on}' ]; do sleep 0.05; done"
    processes.start(shell("talker", f"echo much to say; {wait}; echo more; exec sleep 600"))
    log = processes.log("talker")
    wait_for(lambda: log.read_text() == "much to say\n")
    processes.trim_logs()
    assert log.read_text() == ""
    assert (tmp_path / "talker.log.old").read_text() == "much to say\n"
    go_on.touch()
    wait_for(lambda: log.read_text() == "more\n")
    processes.trim_logs()
    assert log.read_text() == "more\n"
    processes.stop()


def test_what_a_child_said_last_is_in_the_error(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.start(shell("talker", "echo no such port >&2; exit 1"))
    with pytest.raises(ServiceError, match=r"talker ended with 1.*no such port"):
        wait_until(lambda: False, processes, what="it", seconds=60)


def test_waiting_has_an_end(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="the store did not come up within 0 s"):
        wait_until(lambda: False, Processes(tmp_path), what="the store", seconds=0)


def test_all_children_are_gone_after_stop(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    for name in ("a", "b"):
        processes.start(Command(name, SLEEP, environment={"PATH": os.environ["PATH"]}))
    pids = [processes.pid(name) for name in ("a", "b")]
    processes.stop()
    assert not any(alive(pid) for pid in pids)


def test_a_drained_child_finishes_what_it_does(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    done = tmp_path / "done"
    script = f"trap 'sleep 0.3; touch {done}; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    processes.start(shell("worker", script))
    wait_for(lambda: processes.log("worker").read_text() == "up\n")
    processes.drain(["worker"], seconds=60)
    assert done.exists()


def test_a_child_is_busy_while_a_thread_of_it_runs_a_program(tmp_path: Path) -> None:
    program = (
        "import subprocess, threading\n"
        "work = threading.Thread(target=lambda: subprocess.run(('sh', '-c', 'echo up; read x')))\n"
        "work.start()\n"
        "work.join()\n"
        "print('done', flush=True)\n"
        "input()\n"
    )
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    processes = Processes(tmp_path)
    processes.start(
        shell("worker", f"exec {shlex.quote(sys.executable)} -c {shlex.quote(program)} <> {gate}")
    )
    log = processes.log("worker")
    wait_for(lambda: "up" in log.read_text())
    assert processes.has_children("worker")
    gate.write_text("go on\n")
    wait_for(lambda: "done" in log.read_text())
    assert not processes.has_children("worker")
    processes.stop()
    assert not processes.has_children("worker")


def test_a_signal_reaches_a_child_that_runs(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.start(
        shell("worker", "trap 'echo hung up' HUP; echo up; while :; do sleep 0.05; done")
    )
    log = processes.log("worker")
    wait_for(lambda: log.read_text() == "up\n")
    processes.send_signal("worker", signal.SIGHUP)
    wait_for(lambda: log.read_text() == "up\nhung up\n")
    processes.stop()
    processes.send_signal("worker", signal.SIGHUP)


def test_a_child_that_does_not_drain_is_killed(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.start(shell("worker", "trap '' TERM; echo up; while :; do sleep 0.05; done"))
    wait_for(lambda: processes.log("worker").read_text() == "up\n")
    pid = processes.pid("worker")
    processes.drain(["worker"], seconds=0.2)
    assert not alive(pid)


def test_children_die_with_a_service_that_is_killed_outright(tmp_path: Path) -> None:
    program = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from tools.remote.processes import Command, Processes\n"
        "processes = Processes(Path(sys.argv[1]))\n"
        "processes.start(Command('child', ('sleep', '600'), environment=dict(os.environ)))\n"
        "print(processes.pid('child'), flush=True)\n"
        "time.sleep(600)\n"
    )
    service = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert service.stdout
    child = int(service.stdout.readline())
    assert alive(child)
    service.send_signal(signal.SIGKILL)
    service.wait()
    service.stdout.close()
    wait_for(lambda: not alive(child))


def test_the_end_of_a_huge_log_is_read_alone(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    with processes.log("worker").open("wb") as log:
        # More than fits in memory; it takes no disk.
        log.seek(1 << 36)
        log.write(b"\nfirst\n\nlast\n")
    assert processes.tail("worker").endswith("first | last")
