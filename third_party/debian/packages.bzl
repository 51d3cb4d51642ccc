"""The sets of Debian packages, as repositories."""

load("//tools/oci:debian.bzl", "debian_packages")


def debian():
    """Declares every set; one that no target needs is never fetched."""
    for name in ["base", "compiler", "test_tools"]:
        debian_packages(
            name = "debian_" + name,
            lock = "//third_party/debian:{}.lock.json".format(name),
        )

    # What the toolchain is made of, once more: for its metadata.
    debian_packages(
        name = "debian_python",
        lock = "//tools/bootstrap:interpreter.lock.json",
    )
