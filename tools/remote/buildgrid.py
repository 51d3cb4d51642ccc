"""BuildGrid: the endpoint that Bazel talks to, the scheduler, and what it knows of its pools."""

import os
import subprocess
import sys
from pathlib import Path

import grpc
import psycopg

from tools.remote import vocabulary
from tools.remote.errors import ServiceError
from tools.remote.processes import Command

_BGD = [sys.executable, "-c", "from buildgrid.server.app import cli; cli()"]

_CONFIG = """\
description: remote execution on loopback
server:
  - !channel
    address: 127.0.0.1:{port}
    insecure-mode: true
authorization:
  method: none
monitoring:
  enabled: false
connections:
  - !sql-connection &sql
    connection-string: {database}
    pool-size: 5
    pool-timeout: 30
    max-overflow: 20
# One casd keeps files and results, and the workers beside it stage straight from there.
storages:
  - !remote-storage &cas
    url: {casd}
    instance-name: ''
caches:
  - !remote-action-cache &results
    url: {casd}
    instance-name: ''
schedulers:
  - !sql-scheduler &scheduler
    sql: *sql
    storage: *cas
    action-cache: *results
    property-set: !dynamic-property-set
      unique-property-keys: {unique}
      match-property-keys: {matched}
      wildcard-property-keys: {passed_on}
      label-key: Pool
    poll-interval: 0.2
    # A worker that was killed holds its action this long; then another one gets it.
    bot-session-keepalive-timeout: 15
    session-expiry-timer-interval: 2
    max-execution-timeout: 7200
    # Actions that no worker can take; those that wait for a busy one are left alone.
    queue-timeout-configs:
      - !queue-timeout-thread
        name: missing-pool
        job-max-age: {{seconds: 10}}
        handling-period: {{seconds: 2}}
    # A worker that finishes takes its next action in the same call.
    proactive-fetch-to-capacity: true
    proactive-fetch-full-queue: true
    # What that leaves to find a worker for: up to 1 s more would pass by chance.
    assigners:
      - !priority-age-assigner
        count: 1
        interval: 0.25
        jitter-factor: 0
        failure-backoff: 1
        priority-assignment-percentage: 90
instances:
  - name: ''
    services:
      - !action-cache
        cache: *results
      - !execution
        scheduler: *scheduler
        operation-stream-keepalive-timeout: 60
      - !cas
        storage: *cas
        tree-cache-size: 1024
      - !bytestream
        storage: *cas
thread-pool-size: 200
maximum-concurrent-rpcs: 20000
grpc-server-options:
  # Without these, 20,000 small input files at once are answered with CANCELLED.
  grpc.server_max_unrequested_time_in_server: 600
  grpc.server.max_pending_requests: 100000
  grpc.server.max_pending_requests_hard_limit: 100000
"""


class BuildGrid:
    """The server on a loopback port, with its jobs in `database` and its files in `casd`."""

    def __init__(self, folder: Path, port: int, database: str, casd: str) -> None:
        self._config = folder / "buildgrid.yml"
        self._database = database
        self.address = f"127.0.0.1:{port}"
        self._config.write_text(
            _CONFIG.format(
                port=port,
                database=database,
                casd=casd,
                unique=list(vocabulary.UNIQUE),
                matched=list(vocabulary.MATCHED),
                passed_on=list(vocabulary.PASSED_ON),
            )
        )

    def migrate(self) -> None:
        """Makes or updates the tables. Raises ServiceError."""
        done = subprocess.run(
            [*_BGD, "migrate", "apply", self._database],
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise ServiceError(f"cannot prepare the scheduler's database: {reason}")

    def command(self) -> Command:
        words = [*_BGD, "server", "start", self._config]
        return Command("buildgrid", words, environment=os.environ)

    def ready(self) -> bool:
        with grpc.insecure_channel(self.address) as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=1)
            except grpc.FutureTimeoutError:
                return False
        return True

    def slots(self) -> dict[str, int]:
        """Pool -> number of actions that its connected workers take at a time."""
        query = (
            "select property_label, sum(max_capacity) from bots join property_labels "
            "on property_labels.bot_name = bots.name group by 1 order by 1"
        )
        with psycopg.connect(self._database) as connection:
            return {pool: int(slots) for pool, slots in connection.execute(query)}
