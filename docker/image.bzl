"""One image of a stack: its layers, in order, and its configuration."""

load("//tools/oci:attestations.bzl", "image_attestations")
load("//tools/oci:image.bzl", "oci_image")
load("//tools/oci:layers.bzl", "files_layer", "wheel_plans", "wheels_layer")
load(":commands.bzl", "COMMANDS")
load(":layers.bzl", "LINKS")

_ENV = {
    "HOME": "/home/nonroot",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    # The root may be read-only, and byte code is there already.
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONSAFEPATH": "1",
    # Where commands find what they ship.
    "RUNFILES_DIR": "/opt/eagle3",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
}

# --config=release names commit and time.
_STAMPED = select(
    {
        "//docker:release": True,
        "//conditions:default": False,
    }
)

_LABELS = {
    "org.opencontainers.image.licenses": "Apache-2.0 AND LicenseRef-see-SBOM",
}


def stack_image(
    name,
    stack,
    groups,
    order,
    stubs,
    leave_out,
    leave_out_paths,
    title,
    base,
    debs,
    locks,
    env,
    constraint,
):
    """Declares an image `name` and its layers `name`_LAYER.

    Args:
      name: the image's target.
      stack: name of the environment's repository.
      groups: layer -> patterns of distributions.
      order: the layers of wheels, the lowest first.
      stubs: list of the stack's CUDA stand-ins, or None.
      leave_out: patterns of distributions that stay out.
      leave_out_paths: patterns of paths in site-packages that stay out.
      title: the image's title label.
      base: layers below the wheels.
      debs: the Debian packages of those layers.
      locks: lock files that decide what is in the image.
      env: variables on top of those of every image.
      constraint: the platform's constraint value that chooses the stack.
    """
    site = "@{}//:site-packages".format(stack)
    stamp = "@{}//:stamp.json".format(stack)
    wheel_plans(
        name = name + "_plans",
        groups = groups,
        leave_out = leave_out,
        leave_out_paths = leave_out_paths,
        site = site,
        stamp = stamp,
        stubs = stubs,
        target_compatible_with = [constraint],
    )
    for layer in order:
        native.filegroup(
            name = "{}_{}_plan".format(name, layer),
            srcs = [name + "_plans"],
            output_group = layer,
            target_compatible_with = [constraint],
        )
        wheels_layer(
            name = "{}_{}".format(name, layer),
            layer_name = layer,
            links = LINKS,
            plan = "{}_{}_plan".format(name, layer),
            site = site,
            target_compatible_with = [constraint],
        )
    files_layer(
        name = name + "_model",
        data = [
            "//examples:smollm2-selfgen",
            "//third_party/models:smollm2",
        ],
        layer_name = "model",
        # Where actions run in the image, the model is a link into it: no such image is made.
        target_compatible_with = [
            constraint,
            "//tools/platforms:stack_as_inputs",
        ],
    )
    files_layer(
        name = name + "_workspace",
        commands = COMMANDS,
        layer_name = "workspace",
        stamp = stamp,
        target_compatible_with = [constraint],
        # An edit shall send little.
        without = ["//examples:smollm2-selfgen"],
    )
    own = (
        [name + "_model"] + ["{}_{}".format(name, layer) for layer in order] + [name + "_workspace"]
    )
    oci_image(
        name = name,
        cmd = ["extract", "--help"],
        env = _ENV | env,
        labels = _LABELS | {"org.opencontainers.image.title": title},
        layers = base + own,
        stamp = _STAMPED,
        target_compatible_with = [constraint],
    )
    image_attestations(
        name = name + "_attestations",
        debs = debs,
        image = name,
        locks = locks,
        site = site,
        stamp = stamp,
        stamped = _STAMPED,
        target_compatible_with = [constraint],
    )
    native.filegroup(
        name = name + "_referrers",
        srcs = [name + "_attestations"],
        output_group = "referrers",
        target_compatible_with = [constraint],
    )
    for group in ["layout", "digest", "contents"]:
        native.filegroup(
            name = "{}_{}".format(name, group),
            srcs = [name],
            output_group = group,
            target_compatible_with = [constraint],
        )


# What the tools are told of an image.
_LAYOUT = ["--layout=$(rootpath {image}_layout)", "--digest=$(rootpath {image}_digest)"]
_RECORD = ["--digest=$(rootpath {image}_digest)", "--contents $(rootpaths {image}_contents)"]


def image_tools(images):
    """Declares bundle, load, push, record and digest_test for the image that the platform chooses.

    Args:
      images: constraint value -> name of the image that it stands for.
    """
    for name, arguments in {
        "bundle": ["--layout=$(rootpath {image}_layout)", "--script=$(rootpath install.sh)"],
        "load": _LAYOUT,
        "push": _LAYOUT + ["--referrers=$(rootpath {image}_referrers)"],
        "record": _RECORD + ["--name={image}"],
    }.items():
        native.py_binary(
            name = name,
            srcs = ["//tools/oci:{}.py".format(name)],
            main = "//tools/oci:{}.py".format(name),
            args = _chosen(images, arguments),
            data = _chosen(
                images,
                [
                    "install.sh",
                    "{image}_contents",
                    "{image}_digest",
                    "{image}_layout",
                    "{image}_referrers",
                ],
            ),
            deps = ["//tools/oci"],
        )
    native.py_test(
        name = "digest_test",
        size = "small",
        srcs = ["//tools/oci:compare.py"],
        main = "//tools/oci:compare.py",
        args = _chosen(images, _RECORD + ["--recorded=$(rootpath {image}.digest)"]),
        data = _chosen(
            images,
            ["{image}.digest", "{image}.tree", "{image}_digest", "{image}_contents"],
        ),
        deps = ["//tools/oci"],
    )


def _chosen(images, words):
    return select(
        {
            constraint: [word.format(image = image) for word in words]
            for constraint, image in images.items()
        }
    )
