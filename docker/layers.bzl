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

# Packages that those of the base depend on, for their maintainer scripts or for what nobody starts.
BASE_WITHOUT = [
    "awk",
    "debconf",
    "debianutils",
    "openssl",
    "openssl-provider-legacy",
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

CUDA_GROUPS = {
    "torch": ["torch", "torchvision", "torchaudio", "triton"],
    "vllm": ["vllm"],
    "patched": ["speculators", "eagle3-stack"],
    "cuda": ["nvidia-*-cu12"],
    "wheels": ["*"],
}

CUDA_ORDER = ["cuda", "torch", "vllm", "wheels", "patched"]

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

# Distributions that vLLM asks for and this project never loads: other attention kernels, other
# executors, a second compiler, video.
CUDA_LEAVES_OUT = [
    "apache-tvm-ffi",
    "cuda-bindings",
    "cuda-pathfinder",
    "cuda-python",
    "cupy-cuda12x",
    "flashinfer-python",
    "nvidia-cudnn-frontend",
    "nvidia-cutlass-dsl",
    "nvidia-cutlass-dsl-libs-base",
    "opencv-python-headless",
    "ray",
]

CUDA_LEAVES_OUT_PATHS = LEAVES_OUT_PATHS + [
    # cuDNN's convolutions and recurrent networks: a decoder has neither. torch is linked with the
    # front door, which opens these on demand.
    "nvidia/cudnn/lib/libcudnn_adv.so.9",
    "nvidia/cudnn/lib/libcudnn_cnn.so.9",
    "nvidia/cudnn/lib/libcudnn_engines_*.so.9",
    "nvidia/cudnn/lib/libcudnn_heuristic.so.9",
    # Parts of CUDA libraries that torch is not linked with and never opens.
    "nvidia/cublas/lib/libnvblas.so.12",
    "nvidia/cuda_nvrtc/lib/*.alt.so.*",
    "nvidia/cufft/lib/libcufftw.so.11",
    "nvidia/cusolver/lib/libcusolverMg.so.11",
    "nvidia/nvshmem/lib/*.bc",
    # Profilers and disassemblers.
    "nvidia/cuda_cupti/lib/libcheckpoint.so",
    "nvidia/cuda_cupti/lib/libnvperf_*.so",
    "nvidia/cuda_cupti/lib/libpcsamplingutil.so",
    "triton/FileCheck",
    "triton/_C/libproton.so",
    "triton/backends/nvidia/bin/cuobjdump",
    "triton/backends/nvidia/bin/nvdisasm",
    "triton/backends/nvidia/lib/cupti/*",
]

# Of the C compiler, which Triton calls for the starter of each kernel, what C does not need:
# other languages, sanitizers, whole-program optimisation, static libraries.
COMPILER_LEAVES_OUT = BASE_LEAVES_OUT + [
    "usr/bin/*gprof*",
    "usr/bin/*gp-*",
    "usr/bin/*dwp",
    "usr/bin/*gcov*",
    "usr/bin/*lto-dump*",
    "usr/lib/gcc/x86_64-linux-gnu/14/*san*",
    "usr/lib/gcc/x86_64-linux-gnu/14/lib[!g]*",
    "usr/lib/gcc/x86_64-linux-gnu/14/libgcov*",
    "usr/lib/gcc/x86_64-linux-gnu/14/libgomp*",
    "usr/lib/gcc/x86_64-linux-gnu/14/plugin/*",
    "usr/lib/x86_64-linux-gnu/gprofng/*",
    "usr/lib/x86_64-linux-gnu/libgprofng*",
    "usr/lib/x86_64-linux-gnu/lib[!c]*.a",
    "usr/lib/x86_64-linux-gnu/libc.a",
    "usr/lib/x86_64-linux-gnu/libcrypt.a",
    "usr/libexec/gcc/x86_64-linux-gnu/14/g++-mapper-server",
    "usr/libexec/gcc/x86_64-linux-gnu/14/lto*",
    "usr/libexec/gcc/x86_64-linux-gnu/14/plugin/*",
    # A link into the documents of a package that is not here.
    "usr/share/doc/gcc",
    "usr/share/gcc*/*",
    "usr/share/gdb/*",
]

# Other languages' parts, sanitizers, and packages whose files are those of another one here.
COMPILER_WITHOUT = [
    "cpp",
    "cpp-14",
    "cpp-x86-64-linux-gnu",
    "gcc-x86-64-linux-gnu",
    "libasan8",
    "libc-dev-bin",
    "libhwasan0",
    "libitm1",
    "liblsan0",
    "libquadmath0",
    "libtsan2",
    "libubsan1",
    "rpcsvc-proto",
]

# One store of certificates, the system's, as in Debian's own certifi.
LINKS = {"certifi/cacert.pem": "/etc/ssl/certs/ca-certificates.crt"}
