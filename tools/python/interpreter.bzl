"""The hermetic CPython 3.13, as a repository and a registered toolchain."""

load(":repositories.bzl", "BOOTSTRAP_SOURCES", "CACHE_VARIABLES", "host_python", "run_step")

# First lines of every binary's start-up script, which is Python and, up to `exec`, sh too. The
# interpreter is found among the runfiles: an absolute path would hold on this machine only, and
# the script also runs on remote executors. Before 8.3 (bazelbuild/bazel#26023) Bazel sends a
# directory among the runfiles to an executor, but leaves it below external/ of the action's
# folder: then links take its place.
_SHEBANG = """\
#!/bin/sh
''':'
self=$0
case $self in /*) ;; *) self=$PWD/$self ;; esac
for runfiles in "$self.runfiles" "${self%.runfiles/*}.runfiles" "$(readlink -f "$self").runfiles" "$RUNFILES_DIR"; do
  [ -x "$runfiles/python313/prefix/python3" ] || continue
  external=${runfiles%%/bazel-out/*}/external
  if [ ! -e "$runfiles/python313/prefix/usr" ]; then
    ln -s "$external/python313/prefix/usr" "$runfiles/python313/prefix/usr"
  fi
  for stamp in "$runfiles"/*/stamp.json; do
    stack=${stamp%/stamp.json}
    if [ -e "$stamp" ] && [ ! -e "$stack/site-packages" ]; then
      ln -s "$external/${stack##*/}/site-packages" "$stack/site-packages"
    fi
  done
  exec "$runfiles/python313/prefix/python3" "$0" "$@"
done
echo "$0: no runfiles/python313 beside this program" >&2
exit 127
'''
"""

_BUILD = """\
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

exports_files(["prefix/python3", "prefix/state"])

py_runtime(
    name = "runtime",
    files = [
        "prefix/state",
        "prefix/usr",
    ],
    interpreter = "prefix/python3",
    python_version = "PY3",
    # The start-up script of a binary runs on this interpreter too, not on the host's.
    stub_shebang = {shebang},
)

py_runtime_pair(
    name = "runtime_pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":runtime_pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""


def _hermetic_python_impl(rctx):
    rctx.path(rctx.attr.lock)
    for source in rctx.attr._sources:
        rctx.path(source)
    prefix = rctx.path("prefix")
    run_step(
        rctx,
        [host_python(rctx), rctx.path(rctx.attr._assemble), prefix],
        what = "setting up the Python interpreter",
    )
    rctx.file("BUILD.bazel", _BUILD.format(shebang = repr(_SHEBANG.strip())))


hermetic_python = repository_rule(
    implementation = _hermetic_python_impl,
    attrs = {
        "lock": attr.label(
            doc = "Name, version and SHA-256 of each Debian package.",
            allow_single_file = True,
            mandatory = True,
        ),
        "_assemble": attr.label(default = "//tools/bootstrap:interpreter.py"),
        "_sources": attr.label_list(default = BOOTSTRAP_SOURCES),
    },
    doc = "Assembles CPython 3.13 and its own libc from pinned Debian packages.",
    environ = CACHE_VARIABLES,
)
