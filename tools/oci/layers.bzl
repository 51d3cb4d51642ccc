"""Rules that make one layer each: a gzipped tar, and a list of what is in it."""

LayerInfo = provider(
    doc = "A finished layer.",
    fields = {
        "blob": "File: the gzipped tar.",
        "contents": "File: its digests and entries, see tools/oci/contents.py.",
    },
)

# What layers with a fixed set of bytes have in common. They read a source directory of 45,000
# files, which a sandbox would have to link one by one.
_IN_PLACE = {"no-remote": "1", "no-sandbox": "1"}


def _tool(name):
    return attr.label(
        default = "//tools/oci:" + name,
        cfg = "exec",
        executable = True,
    )


_LOWER = attr.label_list(
    doc = "Layers below this one; what they hold already is left out here.",
    providers = [LayerInfo],
)


def _layer(ctx, tool, arguments, inputs, lower = []):
    """Runs a layer tool; returns the providers of its layer."""
    blob = ctx.actions.declare_file(ctx.label.name + ".tar.gz")
    contents = ctx.actions.declare_file(ctx.label.name + ".contents")
    below = [layer[LayerInfo].contents for layer in lower]
    arguments.add("--blob", blob)
    arguments.add("--contents", contents)
    arguments.add_all(below, before_each = "--lower")
    ctx.actions.run(
        executable = tool,
        inputs = inputs + below,
        outputs = [blob, contents],
        arguments = [arguments],
        mnemonic = "ImageLayer",
        progress_message = "Making layer %{label}",
        execution_requirements = _IN_PLACE,
        # The order of a set of strings must not reach the result.
        env = {"PYTHONHASHSEED": "0"},
    )
    return [
        DefaultInfo(files = depset([blob, contents])),
        LayerInfo(blob = blob, contents = contents),
        OutputGroupInfo(_validation = depset([_checked(ctx, blob, contents)])),
    ]


def _checked(ctx, blob, contents):
    """Declares the check that Bazel runs with every build that takes the layer in."""
    report = ctx.actions.declare_file(ctx.label.name + ".checked")
    arguments = ctx.actions.args()
    arguments.add("--blob", blob)
    arguments.add("--contents", contents)
    arguments.add("--report", report)
    ctx.actions.run(
        executable = ctx.executable._check,
        inputs = [blob, contents],
        outputs = [report],
        arguments = [arguments],
        mnemonic = "ImageLayerCheck",
        progress_message = "Reading back layer %{label}",
        execution_requirements = _IN_PLACE,
    )
    return report


def _debian_layer_impl(ctx):
    arguments = ctx.actions.args()
    arguments.add("--name", ctx.attr.layer_name)
    # One word each, whatever it begins with.
    arguments.add_all(ctx.attr.leave_out, format_each = "--leave-out=%s")
    arguments.add_all(ctx.attr.without, format_each = "--without=%s")
    debs = ctx.files.packages
    lower = ctx.attr.lower
    return _layer(ctx, ctx.executable._tool, _with_files(arguments, debs), debs, lower)


def _with_files(arguments, files):
    arguments.add_all(files)
    return arguments


debian_layer = rule(
    implementation = _debian_layer_impl,
    attrs = {
        "layer_name": attr.string(mandatory = True),
        "leave_out": attr.string_list(doc = "Patterns of paths without the leading slash."),
        "lower": _LOWER,
        "packages": attr.label_list(
            doc = "The .deb files.",
            allow_files = [".deb"],
            mandatory = True,
        ),
        "without": attr.string_list(
            doc = "Packages that others depend on and the image does not need.",
        ),
        "_check": _tool("check_layer"),
        "_tool": _tool("debian_layer"),
    },
    doc = "Debian packages, unpacked.",
)


def _python_layer_impl(ctx):
    usr = [file for file in ctx.files.runtime if file.basename == "usr"]
    if len(usr) != 1:
        fail("{} has no prefix/usr".format(ctx.attr.runtime.label))
    arguments = ctx.actions.args()
    arguments.add("--usr", usr[0].path)
    debs = ctx.files.packages
    inputs = ctx.files.runtime + debs
    return _layer(ctx, ctx.executable._tool, _with_files(arguments, debs), inputs, ctx.attr.lower)


python_layer = rule(
    implementation = _python_layer_impl,
    attrs = {
        "lower": _LOWER,
        "packages": attr.label_list(
            doc = "The .deb files that the interpreter was made of, for their metadata.",
            allow_files = [".deb"],
        ),
        "runtime": attr.label(
            doc = "The toolchain's py_runtime.",
            mandatory = True,
        ),
        "_check": _tool("check_layer"),
        "_tool": _tool("python_layer"),
    },
    doc = "The toolchain's CPython in /usr.",
)


def _wheel_plans_impl(ctx):
    plans = {
        name: ctx.actions.declare_file("{}.{}.plan".format(ctx.label.name, name))
        for name in ctx.attr.groups
    }
    inputs = [ctx.file.site, ctx.file.stamp]
    arguments = ctx.actions.args()
    arguments.add("--site", ctx.file.site.path)
    if ctx.file.stubs:
        arguments.add("--stubs", ctx.file.stubs)
        inputs.append(ctx.file.stubs)
    arguments.add("--groups", json.encode(ctx.attr.groups))
    arguments.add_all(ctx.attr.leave_out, format_each = "--leave-out=%s")
    arguments.add_all(ctx.attr.leave_out_paths, format_each = "--leave-out-path=%s")
    for name, plan in plans.items():
        arguments.add(plan, format = "--plan={}=%s".format(name))
    ctx.actions.run(
        executable = ctx.executable._tool,
        inputs = inputs,
        outputs = plans.values(),
        arguments = [arguments],
        mnemonic = "WheelPlans",
        progress_message = "Splitting the wheels of %{label} into layers",
        execution_requirements = _IN_PLACE,
    )
    return [
        DefaultInfo(files = depset(plans.values())),
        OutputGroupInfo(**{name: depset([plan]) for name, plan in plans.items()}),
    ]


wheel_plans = rule(
    implementation = _wheel_plans_impl,
    attrs = {
        "groups": attr.string_list_dict(
            doc = "Layer -> patterns of distributions; the first layer that matches takes one.",
            mandatory = True,
        ),
        "leave_out": attr.string_list(doc = "Patterns of distributions."),
        "leave_out_paths": attr.string_list(doc = "Patterns of paths in site-packages."),
        "site": attr.label(
            allow_single_file = True,
            mandatory = True,
        ),
        "stamp": attr.label(
            doc = "stamp.json of the environment: changes when the site does.",
            allow_single_file = True,
            mandatory = True,
        ),
        "stubs": attr.label(
            doc = "List of the CUDA stand-ins that are in the site.",
            allow_single_file = True,
        ),
        "_tool": _tool("plan"),
    },
    doc = "Says which file of a site-packages goes into which layer, and with what hash.",
)


def _wheels_layer_impl(ctx):
    arguments = ctx.actions.args()
    arguments.add("--name", ctx.attr.layer_name)
    arguments.add("--site", ctx.file.site.path)
    arguments.add("--plan", ctx.file.plan)
    arguments.add("--links", json.encode(ctx.attr.links))
    return _layer(ctx, ctx.executable._tool, arguments, [ctx.file.site, ctx.file.plan])


wheels_layer = rule(
    implementation = _wheels_layer_impl,
    attrs = {
        "layer_name": attr.string(mandatory = True),
        "links": attr.string_dict(doc = "Path in site-packages -> link that takes its place."),
        "plan": attr.label(
            allow_single_file = True,
            mandatory = True,
        ),
        "site": attr.label(
            allow_single_file = True,
            mandatory = True,
        ),
        "_check": _tool("check_layer"),
        "_tool": _tool("wheels_layer"),
    },
    doc = "The wheels of one plan.",
)


def _own_sources(targets):
    """Source files of this workspace that the targets need at run time."""
    files = depset(transitive = [target[DefaultInfo].default_runfiles.files for target in targets])
    return [file for file in files.to_list() if file.is_source and not file.owner.workspace_name]


def _files_layer_impl(ctx):
    own = [file for file in _own_sources(ctx.attr.commands) if file not in ctx.files.without]
    files = {file.short_path: file for file in own + ctx.files.data}
    arguments = ctx.actions.args()
    arguments.add("--name", ctx.attr.layer_name)
    for path, file in files.items():
        arguments.add_all([file], format_each = "--file={}=%s".format(path), expand_directories = False)
    for command in ctx.attr.commands:
        label = command.label
        arguments.add(
            "{}.{}".format(label.package.replace("/", "."), label.name), format = "--module=%s"
        )
    inputs = list(files.values())
    if ctx.file.stamp:
        arguments.add("--stamp", ctx.file.stamp)
        inputs.append(ctx.file.stamp)
    return _layer(ctx, ctx.executable._tool, arguments, inputs)


files_layer = rule(
    implementation = _files_layer_impl,
    attrs = {
        "commands": attr.label_list(
            doc = "Programs //PACKAGE:NAME: their sources go in, and /usr/local/bin/NAME starts them.",
        ),
        "data": attr.label_list(
            doc = "Files and folders at their workspace path.",
            allow_files = True,
        ),
        "layer_name": attr.string(mandatory = True),
        "stamp": attr.label(
            doc = "stamp.json of the stack that the programs insist on.",
            allow_single_file = True,
        ),
        "without": attr.label_list(
            doc = "Sources of the programs that are in another layer.",
            allow_files = True,
        ),
        "_check": _tool("check_layer"),
        "_tool": _tool("files_layer"),
    },
    doc = "The workspace's own files.",
)
