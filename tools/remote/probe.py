"""Asks a remote execution service to run one command: `tools/bazel run //tools/remote:probe`.

    probe --server=HOST:PORT --property=Pool=gpu --property=gpu-count=1 -- nvidia-smi -L

The shortest way to see whether a pool answers, without Bazel's inputs or caches in between.
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence

import grpc
from buildgrid._protos.build.bazel.remote.execution.v2 import (
    remote_execution_pb2 as reapi,
)
from buildgrid._protos.build.bazel.remote.execution.v2 import (
    remote_execution_pb2_grpc as reapi_grpc,
)

from tools.remote.console import main, say, user_file
from tools.remote.errors import ServiceError
from tools.remote.gateway import read_token

# A worker hands nothing of its own environment on.
_PATH = "/usr/local/bin:/usr/bin:/bin"


class Client:
    """One connection to a REAPI v2 service."""

    def __init__(self, channel: grpc.Channel, token: str | None = None) -> None:
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._cas = reapi_grpc.ContentAddressableStorageStub(channel)
        self._execution = reapi_grpc.ExecutionStub(channel)

    def run(
        self, words: Sequence[str], properties: Sequence[tuple[str, str]], timeout_s: float
    ) -> reapi.ExecuteResponse:
        """Runs a command in an empty folder, uncached. Raises grpc.RpcError."""
        platform = reapi.Platform(
            properties=[
                reapi.Platform.Property(name=name, value=value)
                for name, value in sorted(properties)
            ]
        )
        root = reapi.Directory().SerializeToString()
        path = reapi.Command.EnvironmentVariable(name="PATH", value=_PATH)
        command = reapi.Command(
            arguments=words, environment_variables=[path], platform=platform
        ).SerializeToString()
        action = reapi.Action(
            command_digest=digest(command),
            input_root_digest=digest(root),
            do_not_cache=True,
            platform=platform,
        ).SerializeToString()
        self._upload([root, command, action])
        request = reapi.ExecuteRequest(action_digest=digest(action), skip_cache_lookup=True)
        response = reapi.ExecuteResponse()
        for operation in self._execution.Execute(
            request, metadata=self._metadata, timeout=timeout_s
        ):
            if operation.done:
                operation.response.Unpack(response)
        return response

    def read(self, inline: bytes, stored: reapi.Digest) -> str:
        """The text of an output, which small ones carry and others are stored."""
        if not inline and stored.size_bytes:
            request = reapi.BatchReadBlobsRequest(digests=[stored])
            answer = self._cas.BatchReadBlobs(request, metadata=self._metadata)
            inline = answer.responses[0].data
        return inline.decode(errors="replace")

    def _upload(self, blobs: Sequence[bytes]) -> None:
        requests = [
            reapi.BatchUpdateBlobsRequest.Request(digest=digest(blob), data=blob) for blob in blobs
        ]
        self._cas.BatchUpdateBlobs(
            reapi.BatchUpdateBlobsRequest(requests=requests), metadata=self._metadata
        )


def digest(blob: bytes) -> reapi.Digest:
    return reapi.Digest(hash=hashlib.sha256(blob).hexdigest(), size_bytes=len(blob))


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(text)
    return name, value


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT, with or without grpc[s]://")
    parser.add_argument(
        "--property", type=_property, action="append", default=[], help="NAME=VALUE, repeatable"
    )
    parser.add_argument("--ca", type=user_file, help="certificate of the service; means TLS")
    parser.add_argument("--token", type=user_file, help="file with the bearer token")
    parser.add_argument("--timeout-s", type=float, default=60)
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    scheme, _, address = options.server.rpartition("://")
    if options.ca or scheme == "grpcs":
        roots = options.ca.read_bytes() if options.ca else None
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(roots))
    else:
        channel = grpc.insecure_channel(address)
    token = read_token(options.token) if options.token else None
    properties = dict([("OSFamily", "linux"), ("Pool", "cpu"), *options.property])
    with channel:
        client = Client(channel, token)
        try:
            response = client.run(options.command, list(properties.items()), options.timeout_s)
            if response.status.code:
                raise ServiceError(response.status.message)
            result = response.result
            sys.stdout.write(client.read(result.stdout_raw, result.stdout_digest))
            sys.stderr.write(client.read(result.stderr_raw, result.stderr_digest))
        except grpc.RpcError as error:
            raise ServiceError(
                f"{options.server}: {error.code().name}: {error.details()}"
            ) from None
    if result.exit_code:
        raise ServiceError(f"the command ended with {result.exit_code}")
    say(f"ran on worker {result.execution_metadata.worker or '(it gave no name)'}")


if __name__ == "__main__":
    sys.exit(main(lambda: run(_options())))
