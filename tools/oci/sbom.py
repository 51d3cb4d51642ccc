"""Writes the image's bill of materials: SPDX 2.3, JSON.

A package for each .deb, each wheel and each patch, with version, licence and SHA-256. A wheel is
known by its RECORD as it is in the image, which pins every file of it.
"""

import argparse
import ast
import email.message
import email.parser
import hashlib
import json
import re
import sys
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.oci.contents import Entry, read_contents, tree
from tools.oci.deb import Deb
from tools.oci.errors import run
from tools.oci.wheels import SITE

_UNKNOWN = "NOASSERTION"
_OWN_LICENCE = "Apache-2.0"
_IMAGE = "SPDXRef-image"
Package = dict[str, Any]


def deb_package(file: Path) -> Package:
    """A Debian package; its licences are the short names of its copyright file (DEP-5)."""
    deb = Deb(file)
    names = dict.fromkeys(re.findall(r"^License: *(\S[^\n]*)$", deb.copyright(), re.MULTILINE))
    version = urllib.parse.quote(deb.version, safe="")
    purl = f"pkg:deb/debian/{deb.name}@{version}?arch={deb.fields['Architecture']}"
    return _package(
        f"deb-{deb.name}",
        deb.name,
        deb.version,
        hashlib.sha256(file.read_bytes()).hexdigest(),
        purl,
        comments="; ".join(names) or "see the package's copyright file",
    )


def wheel_packages(entries: Mapping[str, Entry], site: Path) -> Iterator[Package]:
    """The distributions whose RECORD is in the image."""
    for path, entry in entries.items():
        if not re.fullmatch(rf"{SITE}/[^/]+\.dist-info/RECORD", path):
            continue
        folder = path.split("/")[-2]
        metadata = email.parser.Parser().parsestr(
            (site / folder / "METADATA").read_text(encoding="utf-8"), headersonly=True
        )
        name, version = str(metadata["Name"]), str(metadata["Version"])
        package = _package(
            f"wheel-{name}",
            name,
            version,
            entry.sha256,
            f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}",
            declared=metadata["License-Expression"] or _UNKNOWN,
            comments=_licence_words(metadata),
        )
        yield package | {"packageFileName": f"/{path}"}


def _licence_words(metadata: email.message.Message) -> str:
    """What a wheel without a licence expression says of its licence: text, else classifiers."""
    text = str(metadata["License"] or "").strip().partition("\n")[0][:200]
    classifiers = [str(line) for line in metadata.get_all("Classifier", [])]
    approved = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License ::")]
    return text or "; ".join(approved)


def patch_packages(site: Path) -> Iterator[tuple[Package, str]]:
    """(patch, name of the package that it changes), from the markers of the environment."""
    for marker in sorted(site.glob("*/applied_patches.py")):
        for statement in ast.parse(marker.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.AnnAssign) and statement.value:
                for name, digest in ast.literal_eval(statement.value).items():
                    patch = _package(f"patch-{name}", name, "1", digest, declared=_OWN_LICENCE)
                    yield patch, marker.parent.name


def document(name: str, digest: str, packages: list[Package], patches: list) -> dict[str, Any]:
    """The SPDX document of an image."""
    image = _package("image", name, digest, digest.removeprefix("sha256:"), "")
    relations = [_relation("SPDXRef-DOCUMENT", "DESCRIBES", _IMAGE)]
    relations += [_relation(_IMAGE, "CONTAINS", package["SPDXID"]) for package in packages]
    by_name = {package["name"]: package["SPDXID"] for package in packages}
    relations += [_relation(p["SPDXID"], "PATCH_FOR", by_name[changed]) for p, changed in patches]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        # A name, not a place: the same image always has the same.
        "documentNamespace": f"urn:spdx:{digest.replace(':', '-')}",
        "creationInfo": {"created": "1970-01-01T00:00:00Z", "creators": ["Tool: tools/oci/sbom"]},
        "packages": [image, *packages, *(patch for patch, _ in patches)],
        "relationships": relations,
    }


def _package(
    key: str,
    name: str,
    version: str,
    sha256: str,
    purl: str = "",
    *,
    declared: str = _UNKNOWN,
    comments: str = "",
) -> Package:
    package: Package = {
        "SPDXID": f"SPDXRef-{re.sub(r'[^A-Za-z0-9.-]', '-', key)}",
        "name": name,
        "versionInfo": version,
        "downloadLocation": _UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": _UNKNOWN,
        "licenseDeclared": declared,
        "copyrightText": _UNKNOWN,
        "checksums": [{"algorithm": "SHA256", "checksumValue": sha256}],
    }
    if comments:
        package["licenseComments"] = comments
    if purl:
        package["externalRefs"] = [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": purl,
            }
        ]
    return package


def _relation(subject: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": subject, "relationshipType": kind, "relatedSpdxElement": other}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--digest", type=Path, required=True)
    parser.add_argument("--site", type=Path, required=True)
    parser.add_argument("--contents", type=Path, nargs="+", required=True)
    parser.add_argument("--deb", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    entries = tree(map(read_contents, options.contents))
    debs = {package["SPDXID"]: package for package in map(deb_package, options.deb)}
    packages = [*debs.values(), *wheel_packages(entries, options.site)]
    value = document(
        options.name,
        options.digest.read_text().strip(),
        sorted(packages, key=lambda package: package["SPDXID"]),
        list(patch_packages(options.site)),
    )
    options.out.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(run(main))
