"""One pinned wheel, unpacked, as a repository."""

load(":repositories.bzl", "BOOTSTRAP_SOURCES", "CACHE_VARIABLES", "host_python", "run_step")


def _wheel_repository_impl(rctx):
    rctx.path(rctx.attr._fetch)
    for source in rctx.attr._sources:
        rctx.path(source)
    run_step(
        rctx,
        [
            host_python(rctx),
            rctx.path(rctx.attr._fetch),
            rctx.attr.package,
            rctx.attr.version,
            rctx.attr.sha256,
            str(rctx.attr.size),
            rctx.path("."),
        ],
        what = "fetching {} {}".format(rctx.attr.package, rctx.attr.version),
    )
    rctx.file("BUILD.bazel", rctx.read(rctx.attr.build_file))


wheel_repository = repository_rule(
    implementation = _wheel_repository_impl,
    attrs = {
        "build_file": attr.label(
            doc = "BUILD file of the repository; the wheel lies in `wheel/`, its programs in `scripts/`.",
            allow_single_file = True,
            mandatory = True,
        ),
        "package": attr.string(
            doc = "Name of the distribution, as in the wheel's file name.",
            mandatory = True,
        ),
        "sha256": attr.string(mandatory = True),
        "size": attr.int(
            doc = "Bytes of the wheel, for the progress line.",
            mandatory = True,
        ),
        "version": attr.string(mandatory = True),
        "_fetch": attr.label(default = "//tools/python:wheel.py"),
        "_sources": attr.label_list(default = BOOTSTRAP_SOURCES),
    },
    doc = "Fetches one wheel by hash from the machine's package index and unpacks it.",
    environ = CACHE_VARIABLES,
)
