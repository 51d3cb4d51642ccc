"""Pinned Debian packages as a repository: as files, or unpacked to programs that run from there."""

load(
    "//tools/python:repositories.bzl",
    "BOOTSTRAP_SOURCES",
    "CACHE_VARIABLES",
    "host_python",
    "run_step",
)


def _debian_packages_impl(rctx):
    # Before the step: a repository begins anew when it learns of a file that it must watch.
    for source in rctx.attr._sources:
        rctx.path(source)
    build_file = rctx.read(rctx.attr.build_file)
    run_step(
        rctx,
        [
            host_python(rctx),
            rctx.path(rctx.attr.fetch),
            rctx.path(rctx.attr.lock),
            rctx.path("packages"),
        ],
        what = "fetching the packages of {}".format(rctx.attr.lock.name),
    )
    rctx.file("BUILD.bazel", build_file)


debian_packages = repository_rule(
    implementation = _debian_packages_impl,
    attrs = {
        "build_file": attr.label(
            doc = "What the repository offers of its folder `packages`.",
            allow_single_file = True,
            default = "//tools/oci:debs.BUILD",
        ),
        "fetch": attr.label(
            doc = "Program that is given the lock and the folder to fill.",
            allow_single_file = True,
            default = "//tools/oci:fetch_debs.py",
        ),
        "lock": attr.label(
            doc = "Name, version and SHA-256 of each package.",
            allow_single_file = True,
            mandatory = True,
        ),
        "_sources": attr.label_list(default = BOOTSTRAP_SOURCES),
    },
    doc = "Fetches Debian packages by hash from the machine's own mirror; installs nothing.",
    environ = CACHE_VARIABLES,
)
