"""What goes into the images, as data: layers from the least-changing to the most-changing."""

# Paths of Debian packages that nobody needs at run time. Copyright files stay.
BASE_LEAVES_OUT = [
    "etc/skel*",
    "etc/update-motd.d/*",
    "usr/lib/systemd/*",
    "usr/lib/x86_64-linux-gnu/gconv/*",
    "usr/share/bash-completion/*",
    "usr/share/bug/*",
    "usr/share/debconf/*",
    "usr/share/doc/*/[!c]*",
    "usr/share/doc/*/ch*",
    "usr/share/info/*",
    "usr/share/lintian/*",
    "usr/share/locale/*",
    "usr/share/man/*",
    "usr/share/menu/*",
    "usr/share/zoneinfo/localtime",
    "usr/share/zoneinfo/right/*",
]

# The layers of wheels. The first pattern that matches a distribution decides; speculators has a
# layer of its own because it is patched.
_CUDA = ["nvidia-*", "cuda-*"]

CPU_GROUPS = {
    "torch": _CUDA + ["torch", "torchvision", "torchaudio"],
    "vllm": ["vllm*"],
    "patched": ["speculators", "eagle3-stack"],
    "wheels": ["*"],
}

CPU_ORDER = ["torch", "vllm", "wheels", "patched"]

# Files of wheels that only builds, tests or other machines need. Each pattern must match.
LEAVES_OUT_PATHS = [
    # Starters of commands, which name the folder of the interpreter that installed them.
    "bin/*",
    "share/*",
    # Static libraries and headers: nothing is compiled against them at run time.
    "*.a",
    "torch/include/*",
    "nvidia/*/include/*",
    "numpy/_core/include/*",
    "pyarrow/include/*",
    "xgrammar/include/*",
    "torch/share/*",
    "torch/bin/protoc*",
    "*/tests/*",
]

# One store of certificates, the system's, as in Debian's own certifi.
LINKS = {"certifi/cacert.pem": "/etc/ssl/certs/ca-certificates.crt"}
