"""The table of GPU code in an image's libraries."""


def _kernels_table_impl(ctx):
    table = ctx.actions.declare_file(ctx.label.name + ".md")
    arguments = ctx.actions.args()
    arguments.add("--cuobjdump", ctx.attr.cuobjdump)
    arguments.add("--site", ctx.file.site.path)
    arguments.add_all("--plan", ctx.files.plans)
    arguments.add("--out", table)
    ctx.actions.run(
        executable = ctx.executable._tool,
        inputs = [ctx.file.site] + ctx.files.plans,
        outputs = [table],
        arguments = [arguments],
        mnemonic = "KernelsTable",
        progress_message = "Reading the GPU code of %{label}",
        execution_requirements = {"no-remote": "1", "no-sandbox": "1"},
    )
    return [DefaultInfo(files = depset([table]), runfiles = ctx.runfiles([table]))]


kernels_table = rule(
    implementation = _kernels_table_impl,
    attrs = {
        "cuobjdump": attr.string(
            doc = "Path of the program in site-packages.",
            mandatory = True,
        ),
        "plans": attr.label(
            doc = "The wheel_plans of the image.",
            mandatory = True,
        ),
        "site": attr.label(
            allow_single_file = True,
            mandatory = True,
        ),
        "_tool": attr.label(
            default = "//tools/oci:kernels",
            cfg = "exec",
            executable = True,
        ),
    },
    doc = "A Markdown table: library x GPU architecture, SASS or PTX.",
)
