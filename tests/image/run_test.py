"""The image goes to a registry and comes back by digest; what came back is run."""

import hashlib
import json
import shutil
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image import image
from tests.image.container import Container
from tests.image.tools import TestTools
from tools.oci.check_layer import check_blob
from tools.oci.errors import ImageError
from tools.oci.layout import INDEX
from tools.oci.registry import Repository
from tools.oci.unpack import unpack
from tools.oci.validate import blob_path, read_blob
from tools.remote.ports import answers, free_ports

_REGISTRY = """\
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: {address}}}
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> TestTools:
    return TestTools(image.debs(), tmp_path_factory.mktemp("tools"))


@pytest.fixture(scope="module")
def registry(tools: TestTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of an empty registry on loopback."""
    folder = tmp_path_factory.mktemp("registry")
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    configuration = folder / "registry.yml"
    configuration.write_text(_REGISTRY.format(folder=folder / "data", address=address))
    log = folder / "log"
    server = tools.start("docker-registry", "serve", configuration, log=log)
    try:
        deadline = time.monotonic() + 200
        while not answers(port):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def pulled(registry: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image's layout after a push and a pull by digest."""
    repository = Repository(f"{registry}/eagle3")
    repository.push(image.layout(), image.digest(), ["latest"])
    layout = tmp_path_factory.mktemp("pulled") / "layout"
    repository.pull(image.digest(), layout)
    yield layout
    shutil.rmtree(layout, ignore_errors=True)


@pytest.fixture(scope="module")
def container(
    tools: TestTools, pulled: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Container]:
    root = tmp_path_factory.mktemp("root") / "root"
    settings = unpack(pulled, root)
    yield Container(tools, root, settings)
    # A home folder that only its user may enter.
    shutil.rmtree(root, ignore_errors=True)


def test_what_comes_back_is_what_was_pushed(pulled: Path) -> None:
    index = json.loads((pulled / "index.json").read_bytes())
    assert [item["digest"] for item in index["manifests"]] == [image.digest()]
    manifest = read_blob(pulled, index["manifests"][0])
    diff_ids = read_blob(pulled, manifest["config"])["rootfs"]["diff_ids"]
    for layer, diff_id in zip(manifest["layers"], diff_ids, strict=True):
        blob = blob_path(pulled, layer["digest"])
        check_blob(blob, layer["digest"], layer["size"], diff_id)


def test_another_client_takes_it_to_a_registry_and_back(
    tools: TestTools, registry: str, tmp_path: Path
) -> None:
    """skopeo holds every blob against its digest, on the way out and on the way in."""

    def skopeo(*arguments: str | Path) -> str:
        return tools.run("skopeo", "--insecure-policy", "--tmpdir", tmp_path, *arguments)

    source, target = f"oci:{image.layout()}", f"docker://{registry}/skopeo"
    seen = json.loads(skopeo("inspect", source))
    assert seen["Digest"] == image.digest()
    assert seen["Layers"] == [layer["digest"] for layer in image.manifest()["layers"]]
    keep = ["copy", "--preserve-digests"]
    skopeo(*keep, "--dest-tls-verify=false", source, f"{target}:latest")
    back = tmp_path / "back"
    skopeo(*keep, "--src-tls-verify=false", f"{target}@{image.digest()}", f"dir:{back}")
    manifest = (back / "manifest.json").read_bytes()
    shutil.rmtree(back)
    assert f"sha256:{hashlib.sha256(manifest).hexdigest()}" == image.digest()


def test_a_digest_that_the_registry_lacks(registry: str, pulled: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="404"):
        Repository(f"{registry}/eagle3").pull(f"sha256:{'0' * 64}", tmp_path / "layout")


def test_documents_are_found_by_the_images_digest(registry: str, pulled: Path) -> None:
    Repository(f"{registry}/eagle3").push_referrers(image.referrers(), image.digest())
    tag = image.digest().replace(":", "-")
    request = urllib.request.Request(
        f"http://{registry}/v2/eagle3/manifests/{tag}", headers={"Accept": INDEX}
    )
    with urllib.request.urlopen(request) as response:
        found = json.load(response)["manifests"]
    types = {item["artifactType"] for item in found}
    assert types == {"application/spdx+json", "application/vnd.in-toto+json"}


def test_extract_and_train(container: Container, tmp_path: Path) -> None:
    command = ["extract", "--limit", "4", "--json", "--out", "/tmp/out/states"]
    done = container.run(command, binds={tmp_path: "/tmp/out"})
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["samples"], report["layers"]) == (4, [1, 14, 26, 29])
    checked = container.run(
        ["inspect", "/tmp/out/states", "--verify"], binds={tmp_path: "/tmp/out"}
    )
    assert checked.returncode == 0, checked.stderr
    command = ["train", "--store", "/tmp/out/states", "--out", "/tmp/out/draft", "--max-steps", "2"]
    trained = container.run([*command, "--json"], binds={tmp_path: "/tmp/out"})
    assert trained.returncode == 0, trained.stderr
    assert (tmp_path / "draft/draft/config.json").exists()


@pytest.mark.parametrize("command", image.commands())
def test_commands_start(command: str, container: Container) -> None:
    done = container.run([command, "--help"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage")


def test_imports(container: Container) -> None:
    script = "import torch, vllm, speculators, eagle3; print(torch.__version__, vllm.__version__)"
    done = container.run(["python3", "-c", script])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1].startswith("0.16.0")


def test_user_root_and_network(container: Container) -> None:
    script = """
import os, socket
print(os.getuid(), os.getgid())
for attempt in (lambda: open("/x", "w"), lambda: socket.create_connection(("192.0.2.1", 80), 1)):
    try:
        attempt()
    except OSError as error:
        print(error.strerror)
"""
    done = container.run(["python3", "-c", script])
    assert done.stdout.splitlines() == [
        "65532 65532",
        "Read-only file system",
        "Network is unreachable",
    ]


def test_layers_that_do_not_belong_together(container: Container, tmp_path: Path) -> None:
    other = tmp_path / "eagle3_stack.py"
    other.write_text('DIGEST = "another"\n')
    target = "/usr/local/lib/python3.13/dist-packages/eagle3_stack.py"
    cache = tmp_path / "cache"
    cache.mkdir()
    binds = {
        other: target,
        cache: "/usr/local/lib/python3.13/dist-packages/__pycache__",
    }
    done = container.run(["extract", "--help"], binds=binds)
    assert done.returncode == 1
    assert done.stderr.startswith("error: this image was built with the stack ")
    assert len(done.stderr.splitlines()) == 1


def test_a_remote_executor_finds_its_shell(container: Container) -> None:
    done = container.run(["bash", "-c", "set -e; date --utc +%Z; TZ=Europe/Berlin date +%Z; ls /"])
    assert done.returncode == 0, done.stderr
    zones = done.stdout.split()[:2]
    assert zones[0] == "UTC"
    assert zones[1] in ("CET", "CEST")
