"""The identity of the stack that is running."""

import eagle3_stack  # written into site-packages by the build

from eagle3.store.manifest import StackIdentity


def running_stack() -> StackIdentity:
    """The stack's name and digest, the versions of its packages and its patches."""
    return StackIdentity(
        name=eagle3_stack.STACK,
        digest=eagle3_stack.DIGEST,
        versions=dict(eagle3_stack.VERSIONS),
        patches=dict(eagle3_stack.PATCHES),
    )
