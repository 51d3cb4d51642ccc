"""The rule that puts layers together as an OCI layout, validated."""

load(":layers.bzl", "LayerInfo")

ImageInfo = provider(
    doc = "A finished image.",
    fields = {
        "contents": "List of Files: what each layer holds, in order.",
        "digest": "File: the manifest's digest.",
        "layout": "File: the folder of the OCI layout.",
    },
)


def _oci_image_impl(ctx):
    layers = [layer[LayerInfo] for layer in ctx.attr.layers]
    contents = [layer.contents for layer in layers]
    layout = ctx.actions.declare_directory(ctx.label.name)
    digest = ctx.actions.declare_file(ctx.label.name + ".manifest_digest")
    config = {
        "Cmd": ctx.attr.cmd,
        "Env": ["{}={}".format(name, value) for name, value in ctx.attr.env.items()],
        "User": ctx.attr.user,
        "WorkingDir": ctx.attr.working_dir,
    }
    arguments = ctx.actions.args()
    arguments.add("--config", json.encode(config))
    arguments.add("--labels", json.encode(ctx.attr.labels))
    status = [ctx.info_file] if ctx.attr.stamp else []
    arguments.add_all(status, before_each = "--status")
    for layer in layers:
        arguments.add("--layer")
        arguments.add(layer.blob)
        arguments.add(layer.contents)
    arguments.add("--layout", layout.path)
    arguments.add("--digest", digest)
    ctx.actions.run(
        executable = ctx.executable._assemble,
        inputs = [layer.blob for layer in layers] + contents + status,
        outputs = [layout, digest],
        arguments = [arguments],
        mnemonic = "ImageLayout",
        progress_message = "Putting together %{label}",
        # Blobs are linked, not copied; a sandbox is another file system.
        execution_requirements = {"no-remote": "1", "no-sandbox": "1"},
    )
    return [
        DefaultInfo(
            files = depset([layout, digest]),
            runfiles = ctx.runfiles([layout, digest] + contents),
        ),
        ImageInfo(contents = contents, digest = digest, layout = layout),
        OutputGroupInfo(
            contents = depset(contents),
            digest = depset([digest]),
            layout = depset([layout]),
            _validation = depset([_validated(ctx, layout, contents)]),
        ),
    ]


def _validated(ctx, layout, contents):
    """Declares the check that Bazel runs with every build of the image."""
    report = ctx.actions.declare_file(ctx.label.name + ".validated")
    arguments = ctx.actions.args()
    arguments.add("--layout", layout.path)
    arguments.add_all(contents, before_each = "--contents")
    arguments.add("--report", report)
    ctx.actions.run(
        executable = ctx.executable._validate,
        inputs = [layout] + contents,
        outputs = [report],
        arguments = [arguments],
        mnemonic = "ImageValidation",
        progress_message = "Validating %{label}",
        execution_requirements = {"no-remote": "1", "no-sandbox": "1"},
    )
    return report


oci_image = rule(
    implementation = _oci_image_impl,
    attrs = {
        "cmd": attr.string_list(mandatory = True),
        "env": attr.string_dict(),
        "labels": attr.string_dict(),
        "layers": attr.label_list(
            doc = "The lowest first.",
            mandatory = True,
            providers = [LayerInfo],
        ),
        "stamp": attr.bool(doc = "Take labels from the workspace status: a release."),
        "user": attr.string(default = "65532:65532"),
        "working_dir": attr.string(default = "/home/nonroot"),
        "_assemble": attr.label(
            default = "//tools/oci:layout",
            cfg = "exec",
            executable = True,
        ),
        "_validate": attr.label(
            default = "//tools/oci:validate",
            cfg = "exec",
            executable = True,
        ),
    },
    doc = "An OCI image layout. The build fails where validation refuses the image.",
)
