"""The bill of materials, the provenance, and both as referrers of an image."""

import json
import sys
from pathlib import Path

import pytest

from tests.unit.oci.packages import write_deb, write_site
from tools.oci import attest, provenance, sbom
from tools.oci.contents import Entry
from tools.oci.layout import MANIFEST, Layout
from tools.oci.wheels import SITE

DIGEST = f"sha256:{'0' * 64}"


def test_a_debian_package_has_version_licence_and_hash(tmp_path: Path) -> None:
    text = b"Files: *\nLicense: GPL-3+\n\nLicense: MIT\n The words.\n"
    deb = write_deb(tmp_path, "tool", {"usr/share/doc/tool/copyright": text})
    package = sbom.deb_package(deb)
    assert (package["versionInfo"], package["licenseComments"]) == ("1-1", "GPL-3+; MIT")
    assert package["externalRefs"][0]["referenceLocator"] == "pkg:deb/debian/tool@1-1?arch=amd64"
    assert len(package["checksums"][0]["checksumValue"]) == 64


def test_wheels_in_the_image_are_listed_and_others_are_not(tmp_path: Path) -> None:
    site = write_site(tmp_path, {"alpha": {"alpha.py": ""}, "beta": {"beta.py": ""}})
    path = f"{SITE}/alpha-1.dist-info/RECORD"
    entries = {path: Entry(path, "file", 0o644, sha256="1" * 64)}
    packages = list(sbom.wheel_packages(entries, site))
    assert [package["name"] for package in packages] == ["alpha"]
    assert packages[0]["checksums"][0]["checksumValue"] == "1" * 64


def test_a_patch_points_to_what_it_changes(tmp_path: Path) -> None:
    marker = f'PATCHES: dict[str, str] = {{"01-x.patch": "{"2" * 64}"}}\n'
    site = write_site(tmp_path, {"alpha": {"alpha/applied_patches.py": marker}})
    path = f"{SITE}/alpha-1.dist-info/RECORD"
    packages = list(sbom.wheel_packages({path: Entry(path, "file", 0o644, sha256="1")}, site))
    document = sbom.document("image", DIGEST, packages, list(sbom.patch_packages(site)))
    assert {
        "spdxElementId": "SPDXRef-patch-01-x.patch",
        "relationshipType": "PATCH_FOR",
        "relatedSpdxElement": "SPDXRef-wheel-alpha",
    } in document["relationships"]


def test_provenance_names_locks_and_the_commit_of_a_release() -> None:
    def materials(commit: str) -> list[str]:
        value = provenance.statement("image", DIGEST, "//x", "7.7.1", commit, {"b": b"", "a": b""})
        definition = value["predicate"]["buildDefinition"]
        return [item["name"] for item in definition["resolvedDependencies"]]

    assert materials("") == ["a", "b"]
    assert materials("abc") == ["source", "a", "b"]


def test_a_referrer_names_its_subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = Layout(tmp_path / "image")
    image.finish([image.add_json({}, MANIFEST)])
    (tmp_path / "x.json").write_text("{}")
    words = ["--layout", "image", "--out", "out", "--document", "text/x=x.json"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["attest", *words])
    attest.main()
    index = json.loads((tmp_path / "out/index.json").read_bytes())
    blob = tmp_path / "out/blobs" / index["manifests"][0]["digest"].replace(":", "/")
    subject = json.loads(blob.read_bytes())["subject"]
    assert subject == json.loads((tmp_path / "image/index.json").read_bytes())["manifests"][0]
