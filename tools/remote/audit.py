"""Where the tests of builds ran: `tools/bazel run //tools/remote:audit -- EVENTS.json...`.

Holds what Bazel says (--build_event_json_file) against the service's own table of jobs: a test that
ran on a worker is a finished job there, of that build and that target. The service must be running.
With --executions (--execution_log_json_file) also what the tests' actions needed as inputs.
"""

import argparse
import sys
from collections.abc import Iterable

import psycopg

from tools.bootstrap.cache import cache_root
from tools.remote.build_logs import (
    REMOTE,
    Workers,
    places,
    read_inputs,
    read_runs,
    sizes,
    unproven,
)
from tools.remote.console import main, say, user_file
from tools.remote.errors import ServiceError
from tools.remote.postgres import running_url

# Google's long-running operations: the job is done.
_COMPLETED = 4


def test_workers(database: str, builds: Iterable[str]) -> Workers:
    """Who finished the tests of these builds, by the scheduler's database and Bazel's ids.

    Raises ServiceError where the service is gone.
    """
    query = (
        "select invocation_id, target_id, worker_name from jobs "
        "join operations on operations.job_name = jobs.name "
        "join request_metadata on request_metadata.id = operations.request_metadata_id "
        "where action_mnemonic = 'TestRunner' and stage = %s and invocation_id = any(%s)"
    )
    try:
        with psycopg.connect(database) as connection:
            rows = connection.execute(query, (_COMPLETED, list(builds)))
            return {(build, target): worker for build, target, worker in rows}
    except psycopg.Error as error:
        reason = str(error).partition("\n")[0]
        raise ServiceError(f"the service's database does not answer: {reason}") from error


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("events", type=user_file, nargs="+", help="event logs, of one build each")
    parser.add_argument("--executions", type=user_file, help="execution log of one of them")
    parser.add_argument(
        "--state",
        type=user_file,
        default=cache_root() / "remote-service",
        help="the service's folder",
    )
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    runs = [one for events in options.events for one in read_runs(events)]
    workers = test_workers(running_url(options.state), {one.invocation for one in runs})
    print("\n".join(places(runs, workers)))
    if options.executions:
        print("\n".join(sizes(read_inputs(options.executions))))
    if lacking := unproven(runs, workers):
        raise ServiceError(
            f"{len(lacking)} tests are no finished job of the service, such as {lacking[0].label}"
        )
    remote = sum(one.where == REMOTE for one in runs)
    say(f"each of the {remote} tests that ran on a worker is a finished job of the service")


if __name__ == "__main__":
    sys.exit(main(lambda: run(_options())))
