"""Configuration of the C++ toolchain that compiles nothing."""


def _none_config_impl(ctx):
    return cc_common.create_cc_toolchain_config_info(
        ctx = ctx,
        abi_libc_version = "none",
        abi_version = "none",
        compiler = "none",
        host_system_name = "local",
        target_cpu = "none",
        target_libc = "none",
        target_system_name = "local",
        toolchain_identifier = "none",
    )


none_config = rule(
    implementation = _none_config_impl,
    doc = "Answers Bazel's question for a C++ toolchain; any compile action would fail.",
    provides = [CcToolchainConfigInfo],
)
