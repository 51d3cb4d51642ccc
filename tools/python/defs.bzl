"""Test macro of the project."""

_RUNNER = "//tools/python:pytest_main.py"


def pytest_test(name, srcs, deps = [], args = [], **kwargs):
    """A test target that runs pytest on its sources.

    Args:
      name: the target.
      srcs: test files, each `*_test.py`.
      deps: libraries; pytest itself comes with `//third_party:stack`.
      args: further pytest arguments.
      **kwargs: as for py_test.
    """
    native.py_test(
        name = name,
        srcs = srcs + [_RUNNER],
        main = _RUNNER,
        args = ["$(rootpath {})".format(src) for src in srcs] + args,
        deps = deps + ["//third_party:stack"],
        **kwargs,
    )
