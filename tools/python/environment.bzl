"""One merged site-packages directory per lock, patched, as a repository.

The wheels of a lock go into a single `site-packages`: torch finds its CUDA libraries
by `$ORIGIN/../../nvidia/...`, and namespace packages and entry points are right, which
one directory a wheel breaks. Bazel sees it as ONE source directory, so that 45,000 files
cost nothing to a first-party edit. A directory's contents are not tracked, therefore
every target also carries `stamp.json` (lock, patches and the code that built it): an
edit of any of them re-runs what depends on the environment.
"""

load(":repositories.bzl", "CACHE_VARIABLES", "run_step")

_BUILD = """\
package(default_visibility = ["//visibility:public"])

exports_files(["site-packages", "stamp.json"])

py_library(
    name = "site",
    data = [
        "site-packages",
        "stamp.json",
    ],
    imports = ["site-packages"],
)

py_library(
    name = "stamp",
    data = ["stamp.json"],
)
"""


def _unlisted_patches(rctx):
    """Returns the *.patch files that lie beside the listed ones but are not listed."""
    listed = {str(rctx.path(patch)): True for patch in rctx.attr.patches}
    folders = {
        str(rctx.path(patch).dirname): rctx.path(patch).dirname for patch in rctx.attr.patches
    }
    return [
        str(entry)
        for folder in folders.values()
        for entry in folder.readdir(watch = "yes")
        if entry.basename.endswith(".patch") and str(entry) not in listed
    ]


def _python_environment_impl(rctx):
    for source in rctx.attr._sources:
        rctx.path(source)
    unlisted = _unlisted_patches(rctx)
    if unlisted:
        fail(
            "Patches that no list names: {}. Name each in the patches.bzl beside it.".format(
                ", ".join(unlisted),
            )
        )

    command = [
        rctx.path(rctx.attr._python),
        "-m",
        "tools.python.environment.build",
        "--name=" + rctx.attr.stack,
        "--lock={}".format(rctx.path(rctx.attr.lock)),
        "--uv={}".format(rctx.path(rctx.attr._uv)),
        "--out={}".format(rctx.path(".")),
    ]
    command += ["--patch={}".format(rctx.path(patch)) for patch in rctx.attr.patches]
    if rctx.attr.cuda_stubs:
        command.append("--cuda-stubs={}".format(rctx.path(rctx.attr.cuda_stubs)))
    run_step(
        rctx,
        command,
        what = "installing the {} environment".format(rctx.attr.stack),
        environment = {"PYTHONPATH": str(rctx.workspace_root)},
    )
    rctx.file("BUILD.bazel", _BUILD)


python_environment = repository_rule(
    implementation = _python_environment_impl,
    attrs = {
        "cuda_stubs": attr.label(
            doc = "Symbol list of CUDA libraries that the lock leaves out and stubs stand in for.",
            allow_single_file = True,
        ),
        "lock": attr.label(
            doc = "Requirements with a hash each.",
            allow_single_file = True,
            mandatory = True,
        ),
        "patches": attr.label_list(
            doc = "Diffs against the installed packages, applied in this order, exactly.",
            allow_files = [".patch"],
        ),
        "stack": attr.string(
            doc = "Name of the environment: cpu, cuda128, lint.",
            mandatory = True,
        ),
        "_python": attr.label(default = "@python313//:prefix/python3"),
        "_sources": attr.label_list(
            default = [
                "//tools/python/environment:base.py",
                "//tools/python/environment:build.py",
                "//tools/python/environment:index.py",
                "//tools/python/environment:install.py",
                "//tools/python/environment:patching.py",
                "//tools/python/environment:record.py",
                "//tools/python/environment:stubs.py",
            ]
        ),
        "_uv": attr.label(default = "@uv//:scripts/uv"),
    },
    doc = "Installs a lock into one site-packages and patches it.",
    environ = CACHE_VARIABLES,
)
