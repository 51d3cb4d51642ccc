"""What the repository rules of this folder share."""

# A change of these variables makes another cache, or another rule about floating packages.
CACHE_VARIABLES = [
    "EAGLE3_CACHE",
    "EAGLE3_DEBIAN_MIRROR",
    "EAGLE3_STRICT",
    "HOME",
    "XDG_CACHE_HOME",
]

# What fetches and unpacks; a rule that runs it is repeated when one of them changes.
BOOTSTRAP_SOURCES = [
    "//tools/bootstrap:cache.py",
    "//tools/bootstrap:console.py",
    "//tools/bootstrap:debian.py",
    "//tools/bootstrap:errors.py",
    "//tools/bootstrap:host.py",
    "//tools/bootstrap:pins.py",
    "//tools/bootstrap:prefix.py",
    "//tools/bootstrap:process.py",
    "//tools/bootstrap:wheels.py",
]


def host_python(rctx):
    """Returns the machine's own python3, which starts everything before the pinned one exists."""
    python = rctx.which("python3")
    if not python:
        fail("No python3 on this machine. Install it (Debian: apt-get install python3-pip).")
    return python


def run_step(rctx, command, what, environment = {}):
    """Runs a command whose output the user sees as it comes; a failure ends the build.

    Args:
      rctx: the repository context.
      command: the command line.
      what: a phrase for the error line, such as "installing the cpu stack".
      environment: variables on top of the caller's.
    """
    result = rctx.execute(
        command,
        environment = environment,
        quiet = False,
        # Large downloads on a slow line: the step itself decides when to give up.
        timeout = 24 * 3600,
    )
    if result.return_code:
        fail("{} failed (exit code {}); the lines above say why.".format(what, result.return_code))
