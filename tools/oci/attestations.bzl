"""Documents about an image: what is in it (SPDX) and where it comes from (SLSA), and as referrers."""

load(":image.bzl", "ImageInfo")

_TYPES = {
    "provenance": "application/vnd.in-toto+json",
    "spdx": "application/spdx+json",
}


def _tool(name):
    return attr.label(
        default = "//tools/oci:" + name,
        cfg = "exec",
        executable = True,
    )


def _image_attestations_impl(ctx):
    image = ctx.attr.image[ImageInfo]
    name = ctx.attr.image.label.name
    documents = {kind: ctx.actions.declare_file("{}.{}.json".format(name, kind)) for kind in _TYPES}
    _run(
        ctx,
        ctx.executable._sbom,
        documents["spdx"],
        inputs = [image.digest, ctx.file.site, ctx.file.stamp] + image.contents + ctx.files.debs,
        words = ["--name", name, "--digest", image.digest, "--site", ctx.file.site.path],
        lists = {"--contents": image.contents, "--deb": ctx.files.debs},
    )
    status = [ctx.info_file] if ctx.attr.stamped else []
    _run(
        ctx,
        ctx.executable._provenance,
        documents["provenance"],
        inputs = [image.digest, ctx.file._bazel] + ctx.files.locks + status,
        words = [
            "--name",
            name,
            "--digest",
            image.digest,
            "--target",
            str(ctx.attr.image.label),
            "--bazel",
            ctx.file._bazel,
        ],
        lists = {"--lock": ctx.files.locks, "--status": status},
    )
    referrers = ctx.actions.declare_directory(name + ".referrers")
    arguments = ctx.actions.args()
    arguments.add("--layout", image.layout.path)
    arguments.add("--out", referrers.path)
    for kind, media_type in _TYPES.items():
        arguments.add(documents[kind], format = "--document={}=%s".format(media_type))
    ctx.actions.run(
        executable = ctx.executable._attest,
        inputs = [image.layout] + documents.values(),
        outputs = [referrers],
        arguments = [arguments],
        mnemonic = "ImageReferrers",
        execution_requirements = {"no-remote": "1", "no-sandbox": "1"},
    )
    files = documents.values() + [referrers]
    return [
        DefaultInfo(files = depset(files), runfiles = ctx.runfiles(files)),
        OutputGroupInfo(referrers = depset([referrers])),
    ]


def _run(ctx, tool, output, inputs, words, lists):
    arguments = ctx.actions.args()
    arguments.add_all(words)
    for option, files in lists.items():
        arguments.add_all(option, files)
    arguments.add("--out", output)
    ctx.actions.run(
        executable = tool,
        inputs = inputs,
        outputs = [output],
        arguments = [arguments],
        mnemonic = "ImageDocument",
        execution_requirements = {"no-remote": "1", "no-sandbox": "1"},
    )


image_attestations = rule(
    implementation = _image_attestations_impl,
    attrs = {
        "debs": attr.label_list(
            doc = "The packages of the image's layers.",
            allow_files = [".deb"],
        ),
        "image": attr.label(
            mandatory = True,
            providers = [ImageInfo],
        ),
        "locks": attr.label_list(
            doc = "The lock files that decide what is in the image.",
            allow_files = True,
        ),
        "site": attr.label(
            allow_single_file = True,
            mandatory = True,
        ),
        "stamp": attr.label(
            doc = "stamp.json of the environment: changes when the site does.",
            allow_single_file = True,
            mandatory = True,
        ),
        "stamped": attr.bool(doc = "Name the commit of the workspace status: a release."),
        "_attest": _tool("attest"),
        "_bazel": attr.label(
            default = "//:.bazelversion",
            allow_single_file = True,
        ),
        "_provenance": _tool("provenance"),
        "_sbom": _tool("sbom"),
    },
    doc = "NAME.spdx.json, NAME.provenance.json, and both as OCI referrers of the image.",
)
