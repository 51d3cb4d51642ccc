"""Pinned Debian packages, as files of a repository."""

load(
    "//tools/python:repositories.bzl",
    "BOOTSTRAP_SOURCES",
    "CACHE_VARIABLES",
    "host_python",
    "run_step",
)

_BUILD = """\
package(default_visibility = ["//visibility:public"])

exports_files(glob(["debs/*.deb"]) + ["debs/state"])

filegroup(
    name = "debs",
    srcs = glob(["debs/*.deb"]),
)
"""


def _debian_packages_impl(rctx):
    for source in rctx.attr._sources:
        rctx.path(source)
    run_step(
        rctx,
        [
            host_python(rctx),
            rctx.path(rctx.attr._fetch),
            rctx.path(rctx.attr.lock),
            rctx.path("debs"),
        ],
        what = "fetching the packages of {}".format(rctx.attr.lock.name),
    )
    rctx.file("BUILD.bazel", _BUILD)


debian_packages = repository_rule(
    implementation = _debian_packages_impl,
    attrs = {
        "lock": attr.label(
            doc = "Name, version and SHA-256 of each package.",
            allow_single_file = True,
            mandatory = True,
        ),
        "_fetch": attr.label(default = "//tools/oci:fetch_debs.py"),
        "_sources": attr.label_list(default = BOOTSTRAP_SOURCES),
    },
    doc = "Fetches Debian packages by hash from the machine's own mirror; installs nothing.",
    environ = CACHE_VARIABLES,
)
