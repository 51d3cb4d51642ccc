"""A model shipped as GGUF, made into a checkpoint that vLLM and transformers read."""


def _gguf_checkpoint_impl(ctx):
    if ctx.attr.image_path:
        link = ctx.actions.declare_symlink(ctx.label.name)
        ctx.actions.symlink(output = link, target_path = ctx.attr.image_path)
        return [DefaultInfo(files = depset([link]), runfiles = ctx.runfiles([link]))]
    checkpoint = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run(
        executable = ctx.executable._convert,
        inputs = [ctx.file.gguf],
        outputs = [checkpoint],
        arguments = [ctx.file.gguf.path, checkpoint.path],
        mnemonic = "GgufCheckpoint",
        progress_message = "Dequantising %{input} to %{output}",
    )
    return [
        DefaultInfo(
            files = depset([checkpoint]),
            runfiles = ctx.runfiles([checkpoint]),
        )
    ]


gguf_checkpoint = rule(
    implementation = _gguf_checkpoint_impl,
    attrs = {
        "gguf": attr.label(
            doc = "The GGUF file.",
            allow_single_file = [".gguf"],
            mandatory = True,
        ),
        "image_path": attr.string(
            doc = "Where actions run in an image that holds the folder: its path there, to link to.",
        ),
        "_convert": attr.label(
            default = "//third_party/models:convert",
            cfg = "exec",
            executable = True,
        ),
    },
    doc = "A folder with config.json, bf16 safetensors and the tokenizer, chat template included.",
)
