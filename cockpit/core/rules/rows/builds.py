"""Builds: extensions that are compiled, or were compiled for something else."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

_VERSIONS = Next(
    "python -c 'import torch; print(torch.__version__, torch.version.cuda)'",
    "on each node: do they differ?",
    "在每个节点上比较版本",
)

ROWS: tuple[Row, ...] = (
    Row(
        id="ninja-missing",
        checks=frozenset({"login_only ninja"}),
        signs=(
            r"\bNinja is required to load C\+\+ extensions\b",
            r"\bop due to ninja not being installed\b",
            r"\bNo such file or directory: '?ninja'?",
            r"\bninja: (?:command )?not found\b",
            r"\bninja \.{3,60} [^\n]{0,12}\[FAIL\]",
        ),
        means="ninja is not on PATH of the ranks: over ssh, or by a python's full path, PATH is shorter than in your shell.",
        zh="rank 的 PATH 里没有 ninja：通过 ssh 或 python 绝对路径启动时，PATH 比你终端里的短。",
        next=(
            Next(
                "ssh NODE 'command -v ninja; echo $PATH'",
                "the PATH that ranks get",
                "看 rank 实际拿到的 PATH",
            ),
            Next(
                "python -m pip install ninja",
                "on each node, into the Python of the ranks",
                "在每个节点装到 rank 所用的 Python 里",
            ),
            Next(
                "export PATH=$(dirname $(which python)):$PATH",
                "at the beginning of ~/.bashrc",
                "写在 ~/.bashrc 的最前面",
            ),
        ),
        source="DeepSpeed#1687, DeepSpeed#1644, DeepSpeed#5627, lmdeploy#242",
    ),
    Row(
        id="build-lock-left",
        checks=frozenset({"stale_lock"}),
        means="A build of an extension was killed and left its lock: ranks that need it wait forever.",
        zh="扩展编译到一半被杀，留下了锁：需要它的 rank 会一直等下去。",
        next=(Next("rm FILE", "if no build is running", "确认没有编译在进行后删除"),),
        severity="warning",
        source="transformers#26015, transformers#12723, DeepSpeed#5205",
    ),
    Row(
        id="cuda-home-missing",
        signs=(
            r"\bCUDA_HOME (?:environment variable is not set|does not exist)",
            r"\bMissingCUDAException\b",
            r"\bNo such file or directory: '[^'\n]{0,200}nvcc'",
            r"\bnvcc: (?:command )?not found\b",
        ),
        means="An operator is to be compiled here, and this node or image has no CUDA toolkit (nvcc).",
        zh="需要在本机编译算子，但节点或镜像里没有 CUDA toolkit（nvcc）。",
        next=(
            Next("ls -d /usr/local/cuda*; command -v nvcc", "is one there?", "看有没有安装"),
            Next(
                "export CUDA_HOME=/usr/local/cuda",
                "or `module load cuda`, or a devel image",
                "或 `module load cuda`，或换 devel 镜像",
            ),
        ),
        source="vixtts-demo#12, deepspeed/ops/op_builder/builder.py, torch/utils/cpp_extension.py",
    ),
    Row(
        id="cuda-versions-differ",
        signs=(
            r"\bdetected CUDA version \([\d.]{1,10}\) mismatches the version that was used to compile\b",
            r"\bInstalled CUDA version [\d.]{1,10} does not match the version torch was compiled with\b",
        ),
        means="nvcc here is of another CUDA version than torch was built with, so extensions are not built.",
        zh="本机 nvcc 的 CUDA 版本与编译 torch 时用的不同，扩展无法编译。",
        next=(
            Next("nvcc --version; ls -d /usr/local/cuda-*", "which ones are there?", "看装了哪些版本"),
            Next(
                "export CUDA_HOME=/usr/local/cuda-X.Y", "the version that torch has", "改成 torch 对应的版本"
            ),
        ),
        source="deepspeed/ops/op_builder/builder.py, torch/utils/cpp_extension.py",
    ),
    Row(
        id="compiler-too-new",
        signs=(r"\bunsupported GNU version! gcc versions later than \d",),
        means="This gcc is newer than nvcc accepts.",
        zh="gcc 版本太新，nvcc 不支持。",
        next=(
            Next("export CC=gcc-12 CXX=g++-12", "a version that the message allows", "换成报错里允许的版本"),
        ),
        source="CUDA crt/host_config.h",
    ),
    Row(
        id="headers-missing",
        signs=(r"\bfatal error: (?:Python|cu\w{1,20}|cuda_runtime\w{0,10})\.h: No such file or directory",),
        means="The compiler misses headers of Python or CUDA on this node.",
        zh="编译器在本节点上找不到 Python 或 CUDA 的头文件。",
        next=(
            Next("sudo apt-get install python3-dev", "for Python.h", "缺 Python.h 时安装"),
            Next(
                "ls $CUDA_HOME/include/cublas_v2.h",
                "for CUDA's: is the toolkit whole?",
                "缺 CUDA 头文件时，看 toolkit 是否完整",
            ),
        ),
        source="torch/utils/cpp_extension.py, triton/runtime/build.py",
    ),
    Row(
        id="other-torch",
        signs=(
            r"\.so[\w.]{0,20}: undefined symbol: \w",
            r"\bImportError: [^\n]{0,300}?\bundefined symbol: _Z",
        ),
        means="An extension was compiled for another version of torch or CUDA than the one it is loaded into.",
        zh="扩展是针对另一个版本的 torch 或 CUDA 编译的，与当前环境不匹配。",
        next=(
            _VERSIONS,
            Next(
                "python -m pip install --force-reinstall --no-deps --no-build-isolation PACKAGE",
                "builds it for the torch that is here",
                "针对当前的 torch 重新编译安装",
            ),
        ),
        source="ld.so; flash-attention and apex threads",
    ),
    Row(
        id="torch-without-cuda",
        signs=(
            r"\bTorch not compiled with CUDA enabled\b",
            r"\btorch was not compiled with CUDA\b",
        ),
        means="The torch of this Python is the CPU build: another environment than meant, or pip took that wheel.",
        zh="这个 Python 里的 torch 是 CPU 版：用错了环境，或 pip 装成了 CPU 版。",
        next=(
            Next(
                "python -c 'import sys, torch; print(sys.executable, torch.__version__)'",
                "on each node: +cpu at the end?",
                "在各节点上看版本是否以 +cpu 结尾",
            ),
            Next(
                "python -m pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126",
                "the build for CUDA",
                "重装 CUDA 版",
            ),
        ),
        source="torch/cuda/__init__.py",
    ),
    Row(
        id="libstdcxx-too-old",
        signs=(r"\bversion `?(?:GLIBCXX|CXXABI|GLIBC)_[\d.]{1,10}' not found",),
        means="A library was built on a newer system than this one, whose C or C++ library is older.",
        zh="某个库是在更新的系统上编译的，本机的 C/C++ 运行库太旧。",
        next=(
            Next(
                "export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH",
                "GLIBCXX, CXXABI: conda's libstdc++ may be newer",
                "GLIBCXX、CXXABI：conda 自带的 libstdc++ 可能更新",
            ),
            Next(
                "",
                "GLIBC: build the package on this system, or take an image with a newer one.",
                "GLIBC：在本系统上重新编译这个包，或换用 GLIBC 更新的镜像。",
            ),
        ),
        source="ld.so",
    ),
    Row(
        id="no-kernel-for-gpu",
        signs=(
            r"\bno kernel image is available for execution on the device\b",
            r"\bHIP error: invalid device function\b",
            r"\bCUDA_ERROR_NO_BINARY_FOR_GPU\b",
        ),
        means="torch or an extension was not compiled for this kind of GPU.",
        zh="torch 或某个扩展在编译时没有包含这种 GPU 的架构。",
        next=(
            Next(
                "python -c 'import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())'",
                "the GPU, and what torch was built for",
                "看 GPU 架构和 torch 支持的架构",
            ),
            Next(
                "export TORCH_CUDA_ARCH_LIST=9.0",
                "that of the GPU, and build the extension again",
                "设为该 GPU 的架构后重新编译扩展",
            ),
        ),
        source="pytorch CUDAException, ROCm",
    ),
    Row(
        id="library-missing",
        signs=(
            r"\blib(?:cudart|nccl|cuda|cupti|torch\w{0,12}|c10\w{0,6})\.so[\d.]{0,12}: cannot open shared object file",
            r"\berror while loading shared libraries: lib(?:cu\w{2,20}|nv\w{2,20}|mpi\w{0,20}|ibverbs)\.so",
        ),
        means="A library of CUDA or torch is not where the loader looks on this node.",
        zh="本节点的动态链接器找不到 CUDA 或 torch 的库。",
        next=(
            Next("ldd FILE.so | grep 'not found'", "which ones?", "看缺哪些库"),
            Next(
                "export LD_LIBRARY_PATH=/usr/local/cuda/lib64:$LD_LIBRARY_PATH",
                "if the library is there",
                "如果库在这里，就把路径加上",
            ),
        ),
        source="ld.so",
    ),
    Row(
        id="build-failed",
        signs=(
            r"\bError building extension '",
            r"\bhas no attribute 'ds_opt_adam'",
            r"/torch_extensions/\S{1,200}\.so: cannot open shared object file",
            r"/(?:cpu_ad\w{1,8}|fused_\w{1,8}|cpu_lion|async_io|utils|transformer_inference)\.so: cannot open shared object file",
            r"\bError compiling objects for extension\b",
            r"\bninja: build stopped: subcommand failed\b",
            r"\bUnable to JIT load the \w{1,60} op due to it not being compatible\b",
        ),
        means="An extension was not built on this node: the compiler's first error, further up, says why.",
        zh="扩展在本节点上编译失败：往上找编译器的第一个 error，那才是原因。",
        next=(
            Next("grep -nE 'error:|FAILED:|cannot find' LOG | head", "the first error", "看第一个错误"),
            Next("ds_report", "which operators can be built here", "看哪些算子可以编译"),
            Next(
                "export TORCH_EXTENSIONS_DIR=/tmp/torch_extensions_$USER",
                "a folder for each node: two nodes that build in one shared folder disturb each other",
                "每个节点用本地目录；多节点共用一个目录会互相干扰",
            ),
        ),
        source="DeepSpeed#3969, safe-rlhf#2, DeepSpeed#885",
    ),
    Row(
        id="build-lock-stale",
        # Nothing is printed there; whoever interrupts it sees this frame.
        signs=(r"/torch/utils/file_baton\.py\"?, line \d{1,5},? in wait\b",),
        means="Ranks wait for a build lock that nobody holds: a build that was killed left it behind.",
        zh="rank 一直在等一个没有进程持有的编译锁：之前的编译被杀掉，锁文件留了下来。",
        next=(
            Next(
                "pgrep -a ninja",
                "on each node that shares the folder: is a build running?",
                "在共用该目录的每个节点上看是否有编译在运行",
            ),
            Next(
                "rm ~/.cache/torch_extensions/*/*/lock",
                "if none is; the same below TORCH_EXTENSIONS_DIR, if that is set",
                "没有的话就删除；如果设置了 TORCH_EXTENSIONS_DIR，则删除该目录下的锁",
            ),
        ),
        source="transformers#26015, DeepSpeed#5205, torch/utils/file_baton.py",
    ),
    Row(
        id="cache-on-nfs",
        signs=(r"\bappears to be on an NFS system\b",),
        severity="warning",
        means="Triton's cache is on a network file system: locks there are slow and may hang at the exit.",
        zh="Triton 缓存在网络文件系统上：加锁很慢，退出时可能卡住。",
        next=(
            Next(
                "export TRITON_CACHE_DIR=/tmp/triton_$USER",
                "a local disk, on each node",
                "在每个节点上改到本地磁盘",
            ),
            Next(
                "export TORCH_EXTENSIONS_DIR=/tmp/torch_extensions_$USER",
                "the same for extensions",
                "扩展的缓存也改到本地磁盘",
            ),
        ),
        source="DeepSpeed#5205, DeepSpeed#6540",
    ),
)
