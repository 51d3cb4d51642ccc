"""The remote service's Debian programs, as a repository that is fetched when they are used."""

load(
    "//tools/python:repositories.bzl",
    "BOOTSTRAP_SOURCES",
    "CACHE_VARIABLES",
    "host_python",
    "run_step",
)

_BUILD = """\
package(default_visibility = ["//visibility:public"])

exports_files(["prefix/state"])

filegroup(
    name = "programs",
    srcs = [
        "prefix/state",
        "prefix/usr",
    ],
)
"""


def _remote_programs_impl(rctx):
    rctx.path(rctx.attr.lock)
    for source in rctx.attr._sources:
        rctx.path(source)
    run_step(
        rctx,
        [host_python(rctx), rctx.path(rctx.attr._assemble), rctx.path("prefix")],
        what = "setting up the remote service's programs",
    )
    rctx.file("BUILD.bazel", _BUILD)


remote_programs = repository_rule(
    implementation = _remote_programs_impl,
    attrs = {
        "lock": attr.label(
            doc = "Name, version and SHA-256 of each Debian package.",
            allow_single_file = True,
            mandatory = True,
        ),
        "_assemble": attr.label(default = "//tools/remote:programs.py"),
        "_sources": attr.label_list(default = BOOTSTRAP_SOURCES),
    },
    doc = "Unpacks buildbox, PostgreSQL and what they need into a folder of their own.",
    environ = CACHE_VARIABLES,
)
