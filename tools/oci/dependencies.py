"""What Debian packages depend on and a set of them lacks: no maintainer script would notice it."""

import re
from collections.abc import Collection, Iterable, Iterator

from tools.oci.deb import Deb
from tools.oci.errors import ImageError

_FIELDS = ("Pre-Depends", "Depends")


def require_dependencies(
    debs: Iterable[Deb], present: Iterable[str], without: Collection[str]
) -> None:
    """Holds packages against what they say they need, by name; versions are the lock's business.

    Args:
        debs: packages of one layer.
        present: names of the packages in the layers below.
        without: names of packages that are left out on purpose.

    Raises:
        ImageError: a package is missing, or nothing asks for one that is left out.
    """
    debs = list(debs)
    there = {*present, *(name for deb in debs for name in (deb.name, *_names(deb, "Provides")))}
    unused = set(without)
    for deb in debs:
        for alternatives in _dependencies(deb):
            if there.intersection(alternatives):
                continue
            unused -= set(alternatives)
            if not set(alternatives).intersection(without):
                raise ImageError(
                    f"{deb.name} {deb.version} needs {' or '.join(alternatives)}, which no package "
                    "of the lock or of a lower layer is: add it to the lock, or to what "
                    "docker/layers.bzl goes without"
                )
    if unused:
        raise ImageError(f"no package asks for {', '.join(sorted(unused))}: drop it from `without`")


def _dependencies(deb: Deb) -> Iterator[list[str]]:
    """The names of which one must be there, for each dependency."""
    for field in _FIELDS:
        for clause in filter(None, deb.fields.get(field, "").split(",")):
            yield [_name(word) for word in clause.split("|")]


def _names(deb: Deb, field: str) -> list[str]:
    return [_name(word) for word in deb.fields.get(field, "").split(",")]


def _name(word: str) -> str:
    """libc6 of "libc6 (>= 2.41)", python3 of "python3:any"."""
    return re.split(r"[\s(:]", word.strip(), maxsplit=1)[0]
