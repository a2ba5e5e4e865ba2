"""nsys, ncu, CUPTI and torch's profiler: reports that are missing, empty or refused."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

_FOR_ALL = Next(
    "options nvidia NVreg_RestrictProfilingToAdminUsers=0",
    "a line for /etc/modprobe.d; then load the driver again, as root",
    "写进 /etc/modprobe.d，然后以 root 重新加载驱动",
)
_PAUSE = Next(
    "dcgmi profile --pause",
    "frees the counters; after profiling: dcgmi profile --resume",
    "让出计数器；采集后用 dcgmi profile --resume 恢复",
)
_HOLDERS = Next(
    "ps aux | grep -E 'dcgm|ncu|nsys'",
    "who has them? one profiler per GPU at a time",
    "看谁占着；每块 GPU 同时只能有一个 profiler",
)

ROWS: tuple[Row, ...] = (
    Row(
        id="nsys-import",
        signs=(
            r"Importer error status: \w",
            r"\bUnable to retrieve the importer version: ",
            r"\bImport Failed with unexpected exception: .{0,300}\bQdstrmImporter\b",
        ),
        means="nsys could not turn its raw .qdstrm into a report; the recorded data is not lost.",
        zh="nsys 没能把 .qdstrm 原始数据转换成报告；采集到的数据没有丢。",
        next=(
            Next(
                "QdstrmImporter -i FILE.qdstrm -o FILE.nsys-rep",
                "of the same Nsight Systems, in its host-linux-x64 folder",
                "用同一版本 Nsight Systems 自带的，在它的 host-linux-x64 目录里",
            ),
            Next(
                "apt install nsight-systems-cli",
                "from NVIDIA's repository: distributions' packages lack the importer",
                "从 NVIDIA 的软件源安装：发行版自带的包没有 importer",
            ),
        ),
        severity="warning",
        source="mitul93/devcontainer-features#8, nsys 2022.4.2",
    ),
    Row(
        id="nsys-waits",
        signs=(
            r"\bOne or more process(?:es)? it created re-parented\b",
            r"\btermination of re-parented processes\b",
        ),
        means="The program has ended, but nsys waits for background processes that it left running.",
        zh="程序已结束，但 nsys 还在等它遗留的后台进程退出。",
        next=(
            Next(
                "nsys profile --wait=primary …",
                "ends with the program; for cockpit: --nsys-args='--wait=primary'",
                "程序一结束就收尾；在 cockpit 里用 --nsys-args='--wait=primary'",
            ),
            Next(
                "ps -eo pid,ppid,lstart,cmd | awk '$2 == 1'",
                "shows what was left running",
                "看它遗留了哪些进程",
            ),
        ),
        severity="warning",
        source="Megatron-LM#638, Nsight Systems user guide: --wait",
    ),
    Row(
        id="nsys-no-report",
        signs=(r"^\s*No reports were generated\s*$",),
        means="nsys recorded nothing: its capture range never began, or the program was killed before it ended.",
        zh="nsys 什么都没录到：采集区间从未开始，或程序在区间结束前被杀。",
        next=(
            Next(
                "torch.cuda.profiler.start()",
                "for --capture-range=cudaProfilerApi the program must call it",
                "使用 --capture-range=cudaProfilerApi 时程序必须调用它",
            ),
            Next(
                "--env NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
                "for --capture-range=nvtx: torch's ranges are not registered strings",
                "使用 --capture-range=nvtx 时需要：torch 的 range 不是 registered string",
            ),
            Next("--delay 60 --duration 30", "records by time instead of a range", "改为按时间采集"),
        ),
        severity="warning",
        source="sglang#957, Nsight Systems user guide: NVTX capture range",
    ),
    Row(
        id="gpu-counters-denied",
        checks=frozenset({"no_gpu_counters", "differs_gpu_counters"}),
        signs=(
            r"==ERROR== ERR_NVGPUCTRPERM\b",
            r"\bInsufficient privilege, see https://developer\.nvidia\.com/ERR_NVGPUCTRPERM\b",
        ),
        means="The driver reserves GPU performance counters for root: a profiler that reads them is refused.",
        zh="驱动只允许 root 读取 GPU 性能计数器，读取它们的 profiler 会被拒绝。",
        next=(
            Next(
                "nsys profile --gpu-metrics-devices=none …",
                "traces CUDA without counters: no privilege needed",
                "不采集计数器，只跟踪 CUDA，不需要特权",
            ),
            _FOR_ALL,
            Next("docker run --cap-add SYS_ADMIN", "in a container", "在容器里"),
        ),
        source="machine-shop-maintenance#11, fics-cluster-guide#4, developer.nvidia.com/ERR_NVGPUCTRPERM",
    ),
    Row(
        id="cupti-denied",
        signs=(
            r"\bfailed with error CUPTI_ERROR_(?:VIRTUALIZED_DEVICE_)?INSUFFICIENT_PRIVILEGES\b",
            r"\bWarning: ERR_NVGPUCTRPERM - ",
        ),
        means="CUPTI was refused access to the GPU: traces will have no GPU activity; training continues.",
        zh="CUPTI 无权访问 GPU：trace 里不会有 GPU 活动；训练不受影响。",
        next=(_FOR_ALL, Next("docker run --cap-add SYS_ADMIN", "in a container", "在容器里")),
        severity="warning",
        source="tensorflow profiler guide, kineto libkineto/src/init.cpp",
    ),
    Row(
        id="gpu-counters-busy",
        signs=(r"\bProfiling failed because a driver resource was unavailable\b",),
        means="Another tool holds this GPU's performance counters, usually DCGM's monitoring of the cluster.",
        zh="这块 GPU 的性能计数器被其他工具占用，通常是集群监控 DCGM。",
        next=(_PAUSE, _HOLDERS),
        source="Nsight Compute profiling guide: FAQ, pytorch#125272",
    ),
    Row(
        id="cupti-busy",
        signs=(r"\bCUPTI_ERROR_HARDWARE_BUSY\b",),
        means="CUPTI found the GPU's monitoring hardware in use, usually by DCGM: this trace lacks its data.",
        zh="CUPTI 发现 GPU 监控硬件正被占用（通常是 DCGM）：这份 trace 缺少相应数据。",
        next=(
            _PAUSE,
            _HOLDERS,
            Next(
                "nsys profile --trace=cuda-sw,nvtx …",
                "traces without that hardware",
                "改用软件跟踪，不需要该硬件",
            ),
        ),
        severity="warning",
        source="pytorch#125272, cupti_result.h",
    ),
    Row(
        id="cupti-two-profilers",
        signs=(r"\berror (?:\d{1,3}: )?CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED\b",),
        means="Two profilers in one process: CUPTI serves one at a time, so the second records no GPU activity.",
        zh="同一进程里有两个 profiler：CUPTI 同时只服务一个，后启动的录不到 GPU 活动。",
        next=(
            Next(
                "",
                "run with nsys or with torch.profiler, not with both",
                "nsys 和 torch.profiler 只用一个，不要同时用。",
            ),
            Next(
                "env | grep -E 'NVTX_INJECTION64_PATH|CUDA_INJECTION64_PATH'",
                "unset what an image sets: it loads CUPTI first",
                "镜像里设置了就 unset：它会抢先加载 CUPTI",
            ),
        ),
        severity="warning",
        source="pytorch#117935, TensorRT-LLM#9073, tensorflow#37674, verl docs: profiler",
    ),
    Row(
        id="torch-trace-without-gpu",
        signs=(r"\bCUPTI initialization failed - CUDA profiler activities will be missing\b",),
        means="torch.profiler could not start CUPTI: its trace will contain CPU activity only.",
        zh="torch.profiler 未能启动 CUPTI：trace 里只有 CPU 活动。",
        next=(
            Next("", "the line before it names the CUPTI error", "看前一行，它给出了 CUPTI 的错误。"),
            Next(
                "nvidia-smi",
                "is there a GPU, is its driver older than torch's CUDA?",
                "看有没有 GPU、驱动是否太旧而不支持 torch 的 CUDA",
            ),
        ),
        severity="warning",
        source="kineto libkineto/src/init.cpp",
    ),
    Row(
        id="profiler-tmp-denied",
        signs=(
            r"\bFailed to create directory \"[^\"]{0,200}/nsight_systems\b[^\"]{0,200}\": Permission denied",
            r"\bFailed to open/create lock file \S{0,200}nsight-compute-lock\b",
            r"\bInterprocessLockFailed\b",
            r"\bEACCES: permission denied, open '/tmp/nni/",
        ),
        means="The profiler's fixed folder or lock file in /tmp belongs to another user, so it cannot start.",
        zh="profiler 在 /tmp 下的固定目录或锁文件属于其他用户，因此无法启动。",
        next=(
            Next(
                'mkdir -p "/tmp/$USER" && export TMPDIR="/tmp/$USER"',
                "before the profiler; for cockpit: with --setup",
                "在启动 profiler 之前设置；在 cockpit 里放进 --setup",
            ),
            Next("ls -ld /tmp/nvidia /tmp/nsight-compute-lock", "whose are they?", "看它们属于谁"),
        ),
        source="nni#1665, vllm#41410, nsys 2026.3",
    ),
    Row(
        id="nsys-no-kernels",
        signs=(r"\bSKIPPED: .{1,300} does not contain CUDA (?:kernel|trace) data\b",),
        means="The nsys report has no GPU kernels: the ranks were not traced, or CUDA was not.",
        zh="nsys 报告里没有 GPU kernel：没有跟踪到各个 rank，或没有跟踪 CUDA。",
        next=(
            Next(
                "cockpit run --profile nsys …",
                "traces all ranks: nsys sees only what starts below it",
                "跟踪所有 rank：nsys 只能看到由它启动的进程",
            ),
            Next(
                "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node …",
                "without a torch.profiler in the program; also kernels in CUDA graphs",
                "程序里不要用 torch.profiler；CUDA graph 里的 kernel 也会跟踪到",
            ),
            Next("nsys status -e", "what does this machine allow?", "看这台机器允许采集什么"),
        ),
        severity="warning",
        source="sglang#957, nsys stats",
    ),
)
