"""Tests that need GPUs: routed to executors that have them, and never two on one device."""

load("//tools/python:defs.bzl", "pytest_test")


def gpu_py_test(
    name,
    srcs,
    gpus = 1,
    min_sm = 80,
    kind = "nvidia",
    on_cpu = True,
    deps = [],
    args = [],
    tags = [],
    env = {},
    **kwargs,
):
    """Declares NAME_gpu, for the CUDA stack, and NAME_cpu where the code can run without a GPU.

    NAME_gpu fails, and is never skipped, where the executor does not show what it asks for.

    Args:
      name: of the pair.
      srcs: test files, each `*_test.py`.
      gpus: devices that the test has to itself.
      min_sm: lowest compute capability, 80 for 8.0: one of 80, 89, 90, 100, 120.
      kind: of GPU, `nvidia` for any; see docs/remote.md.
      on_cpu: whether the test passes on the CPU stack too.
      deps: libraries of both.
      args: further pytest arguments of both.
      tags: of both.
      env: environment of both.
      **kwargs: as for py_test.
    """
    if on_cpu:
        pytest_test(
            name = name + "_cpu",
            srcs = srcs,
            args = args,
            env = env,
            tags = tags,
            target_compatible_with = ["//tools/platforms:stack_cpu"],
            deps = deps,
            **kwargs,
        )
    pytest_test(
        name = name + "_gpu",
        srcs = srcs,
        args = ["-p", "tools.remote.gpu_guard"] + args,
        env = env
        | {
            "EAGLE3_TEST_GPUS": str(gpus),
            "EAGLE3_TEST_MIN_SM": str(min_sm),
        },
        # Of the test alone: what else a build does needs no GPU.
        exec_properties = {
            "test.Pool": "gpu",
            "test.gpu": kind,
            "test.gpu-count": str(gpus),
            "test.gpu-sm": str(min_sm),
        },
        # On this machine, Bazel counts devices by the resource; see --local_resources.
        tags = tags + ["gpu", "resources:gpu:{}".format(gpus)],
        target_compatible_with = ["//tools/platforms:stack_cuda128"],
        deps = deps + ["//tools/remote:gpu_guard"],
        **kwargs,
    )
