"""Names of the images that executors run, as a repository, from docker/*.digest."""

_REPOSITORY = "EAGLE3_IMAGES"


def _reference(rctx, name):
    """Returns docker://REPOSITORY@DIGEST, or a name that no registry has where one is missing."""
    recorded = rctx.workspace_root.get_child("docker").get_child(name + ".digest")
    rctx.watch(recorded)
    digest = rctx.read(recorded).strip() if recorded.exists else ""
    repository = rctx.os.environ.get(_REPOSITORY, "set-eagle3-images.invalid/eagle3")
    return "docker://{}@{}".format(repository, digest or "sha256:" + 64 * "0")


def _executor_images_impl(rctx):
    rctx.file(
        "images.bzl",
        "IMAGE = {}\nIMAGE_CPU = {}\n".format(
            repr(_reference(rctx, "image")),
            repr(_reference(rctx, "image_cpu")),
        ),
    )
    rctx.file("BUILD.bazel", "")


executor_images = repository_rule(
    implementation = _executor_images_impl,
    doc = "Generates images.bzl: the images by digest, in the repository that EAGLE3_IMAGES names.",
    environ = [_REPOSITORY],
)
