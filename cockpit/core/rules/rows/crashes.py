"""Crashes: signals, GPUs that fail, and what launchers say of them."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

_FAULTHANDLER = Next(
    "export PYTHONFAULTHANDLER=1", "prints the Python stack of the next crash", "下次崩溃时打印 Python 调用栈"
)
_CORE = Next(
    "coredumpctl gdb PID", "or gdb python CORE: its native stack", "看原生调用栈；或用 gdb python CORE"
)
_BLOCKING = Next(
    "export CUDA_LAUNCH_BLOCKING=1",
    "rerun: then the stack is that of the failing call",
    "设置后重跑，这时的调用栈才指向出错的调用",
)
_KILLED = (
    "Somebody sent SIGKILL, and it was not the kernel's OOM killer: a person, a scheduler or a launcher."
)
_KILLED_ZH = "收到 SIGKILL，但不是内核的 OOM killer 发的：可能来自人、调度器或启动器。"
_WHO_KILLED = (
    Next(
        "journalctl -S '-10min' | grep -iE 'kill|oom|session'",
        "on that node: earlyoom, systemd, a logout?",
        "在该节点上看是不是 earlyoom、systemd 或退出登录所致",
    ),
    Next("sacct -j JOB -o jobid,state,exitcode,end", "has SLURM ended it?", "看是不是 SLURM 结束的"),
)
_NO_TERMINAL = (
    Next(
        "tmux new -s train",
        "start it in there; or with `cockpit run`, which needs no terminal",
        "在 tmux 里启动；或用 cockpit run，它不依赖终端",
    ),
    Next(
        "setsid COMMAND > LOG 2>&1 < /dev/null &",
        "torchrun ends by SIGHUP under nohup, too",
        "脱离终端；torchrun 就算加了 nohup，收到 SIGHUP 也会退出",
    ),
)
XIDS_SAID = Next(
    "dmesg -T | grep -i xid",
    "13, 31, 43 and 45: the program; 48, 74, 79, 94 and 95: hardware",
    "13、31、43、45 是程序问题；48、74、79、94、95 是硬件问题",
)
_EXCLUDE = Next(
    "--exclude NODE",
    "train without that node (cockpit run, sbatch), and report it",
    "先排除该节点（cockpit run、sbatch 的选项）并报修",
)

ROWS: tuple[Row, ...] = (
    Row(
        id="sigbus-silent",
        ends=frozenset({"SIGBUS", "silent"}),
        means="A bus error: memory-mapped pages could not be backed, usually because /dev/shm or a disk is full.",
        zh="总线错误：内存映射的页分配不到空间，通常是 /dev/shm 或磁盘满了。",
        next=(
            Next("df -h /dev/shm /tmp", "shows whether one is full", "看哪个满了"),
            Next(
                "--shm-size=16g",
                "for docker run: its /dev/shm has 64 MB",
                "docker run 的选项：默认 /dev/shm 只有 64 MB",
            ),
        ),
        source="pytorch/ci-infra#490, Megatron-LM#878",
    ),
    Row(
        id="sigkill-silent",
        ends=frozenset({"SIGKILL", "no-oom", "silent"}),
        means=_KILLED,
        zh=_KILLED_ZH,
        next=_WHO_KILLED,
        source="DeepSpeed#3823, DeepSpeed#3232",
    ),
    Row(
        id="sigkill-unknown",
        ends=frozenset({"SIGKILL", "silent"}),
        means="Somebody sent SIGKILL: most likely the kernel, out of memory; else a scheduler or a person.",
        zh="收到 SIGKILL：最可能是内核因内存不足发的，其次是调度器或人。",
        next=(
            Next("dmesg -T | grep -i 'killed process'", "was it the OOM killer?", "看是不是 OOM killer"),
            *_WHO_KILLED,
        ),
        source="DeepSpeed#3823, DeepSpeed#4239",
    ),
    Row(
        id="sigkill-not-oom",
        signs=(
            r"\bexitcode *: -9\b",
            r"\bSignal 9 \(SIGKILL\)",
            r"\bdied with <Signals\.SIGKILL",
            r"\bexits with return code = -9\b",
            r"\bline \d{1,6}: +\d{1,10} Killed\b",
            r"\bexited on signal 9\b",
            r"\btasks? [\d,-]{1,200}: Killed\b",
            r"\bfailed \(exitcode: -9\)",
            r"^Killed[ \t]*$",
        ),
        ends=frozenset({"SIGKILL", "no-oom"}),
        means=_KILLED,
        zh=_KILLED_ZH,
        next=_WHO_KILLED,
        source="DeepSpeed#3823, DeepSpeed#3232",
    ),
    Row(
        id="gpu-lost",
        checks=frozenset({"gpu Xid-79"}),
        signs=(
            r"\bhas fallen off the bus\b",
            r"\bUnable to determine the device handle for GPU\b",
            r"\bGPU is lost\.",
            r"\bNVRM: Xid \([^)\n]{1,40}\): 79\b",
        ),
        means="A GPU dropped off the PCIe bus: its rank hangs or dies, and only a reset or reboot brings it back.",
        zh="GPU 掉卡（从 PCIe 总线上消失）：它的 rank 会卡住或退出，只有复位 GPU 或重启节点才能恢复。",
        next=(
            Next(
                "timeout 10 nvidia-smi -L; dmesg -T | grep -i xid",
                "which GPU; nvidia-smi itself may hang",
                "看是哪块 GPU；nvidia-smi 自己也可能卡住",
            ),
            _EXCLUDE,
        ),
        source="returnn#1486, NVIDIA Xid 79",
    ),
    Row(
        id="gpu-ecc",
        checks=frozenset({"gpu_errors", "gpu errors", *(f"gpu Xid-{xid}" for xid in (48, 64, 94, 95, 140))}),
        signs=(
            r"\buncorrectable ECC error encountered\b",
            r"\bCUDA_ERROR_ECC_UNCORRECTABLE\b",
            r"\bcudaErrorECCUncorrectable\b",
            r"\bNVRM: Xid \([^)\n]{1,40}\): (?:48|64|94|95|140)\b",
            r"\bhipErrorECCNotCorrectable\b",
        ),
        means="A GPU's memory has an error that it cannot correct: the hardware, not the program.",
        zh="GPU 显存出现无法纠正的 ECC 错误：是硬件问题，不是程序问题。",
        next=(
            Next(
                "nvidia-smi -q -d ECC,ROW_REMAPPER",
                "on that node: which GPU; is a reset pending?",
                "在该节点上看是哪块 GPU、是否等待复位",
            ),
            _EXCLUDE,
        ),
        source="MFC#1748, MFC#1750, jade#194, accelerate#1192",
    ),
    Row(
        id="device-assert",
        signs=(
            r"\.cuh?:\d{1,9}: [^\n]{1,600}?\bAssertion [`'][^\n]{1,300}? failed",
            r"\bdevice-side assert triggered\b",
            r"\bDevice-side assertion [`'][^\n]{1,300}? failed",
        ),
        means="An assertion in a GPU kernel failed: mostly an index out of range, as a label or a token.",
        zh="GPU kernel 里的断言失败：多半是索引越界，例如标签或 token id。",
        next=(
            Next(
                "grep -m1 'Assertion' LOG",
                "the first one says which check failed",
                "第一条 Assertion 说明是哪个检查失败",
            ),
            _BLOCKING,
            Next(
                "",
                "Compare the largest token id or label with the size of the embedding or the classes.",
                "检查最大的 token id 或标签是否超出 embedding 的大小或类别数。",
            ),
        ),
        source="pytorch aten/src/ATen/native/cuda, CUDAException",
    ),
    Row(
        id="illegal-memory-access",
        checks=frozenset({"gpu Xid-31"}),
        signs=(
            r"\b(?:CUDA|HIP) error: (?:an illegal memory access was encountered|misaligned address|unspecified launch failure)",
            r"\bCUDA_ERROR_ILLEGAL_ADDRESS\b",
            r"\b[Cc](?:uda|UDA) failure (?:\d{1,4} )?'an illegal memory access",
            r"\bMemory access fault by GPU\b",
            r"\bhipErrorIllegalAddress\b",
        ),
        means="A GPU kernel touched memory that is not its own; the line that reports it comes later than the fault.",
        zh="GPU kernel 访问了非法地址；报错的那一行晚于真正出错的地方。",
        next=(
            _BLOCKING,
            Next(
                "compute-sanitizer python train.py …",
                "on one GPU and a small case: which kernel",
                "用单卡跑小样例，找出是哪个 kernel",
            ),
            Next(
                "dmesg -T | grep -i xid",
                "Xid 31 is the program; others may be the GPU",
                "Xid 31 是程序问题，其他可能是硬件",
            ),
        ),
        source="pytorch CUDAException, ProcessGroupNCCL.cpp",
    ),
    Row(
        id="nvlink-failed",
        checks=frozenset({"gpu Xid-74"}),
        signs=(
            r"\buncorrectable NVLink error\b",
            r"\bNVRM: Xid \([^)\n]{1,40}\): 74\b",
        ),
        means="A link between GPUs of this node fails: the hardware, not the program.",
        zh="本节点 GPU 之间的 NVLink 出错：是硬件问题，不是程序问题。",
        next=(
            Next(
                "nvidia-smi nvlink -e; nvidia-smi nvlink -s",
                "which GPU, which link",
                "看是哪块 GPU、哪条链路",
            ),
            _EXCLUDE,
        ),
        source="CUDA error 220, NVIDIA Xid 74",
    ),
    Row(
        id="gpu-xid",
        checks=frozenset({"gpu Xid"}),
        signs=(r"\bNVRM: Xid \([^)\n]{1,40}\): \d",),
        severity="warning",
        means="The NVIDIA driver reported a GPU error (Xid); its number shows whether program or hardware is at fault.",
        zh="NVIDIA 驱动报告了 GPU 错误（Xid）：看编号可以区分程序问题和硬件问题。",
        next=(XIDS_SAID,),
        source="NVIDIA Xid catalogue",
    ),
    Row(
        id="ray-out-of-memory",
        signs=(
            r"\bkilled due to the node running low on memory\b",
            r"\bexceeds the memory usage threshold of \d",
            r"\bkilled due to memory pressure\b",
        ),
        means="Ray's memory monitor killed a worker, as the node was nearly out of host memory.",
        zh="节点内存快用尽，Ray 的内存监控杀掉了 worker。",
        next=(
            Next(
                "ray memory",
                "what holds objects; then fewer workers per node",
                "看对象被什么占着，再减少每个节点的 worker 数",
            ),
            Next(
                "export RAY_memory_usage_threshold=0.98",
                "kills later; before `ray start`, on each node",
                "更晚才杀 worker；在各节点 `ray start` 之前设置",
            ),
        ),
        source="ray#28778, ray#29341, OpenRLHF#936",
    ),
    Row(
        id="ray-actor-died",
        signs=(
            r"\bActorDiedError\b",
            r"\bray\.exceptions\.WorkerCrashedError\b",
            r"\bRayActorError: The actor died\b",
            r"\bThe actor is dead because its (?:worker process|node) has died\b",
            r"\bA worker died or was killed while executing a task by an unexpected system error\b",
        ),
        but=r"\bINTENDED_USER_EXIT\b|\bray\.kill\b",
        means="An actor's process is gone: its own last lines say why, not this traceback of who called it.",
        zh="某个 actor 进程退出了：原因在它自己的最后几行日志里，不在调用方的栈里。",
        next=(
            Next(
                "ray logs actor --id ACTOR_ID",
                "its own output; or /tmp/ray/session_latest/logs on its node",
                "看它自己的日志，或看它所在节点的 /tmp/ray/session_latest/logs",
            ),
            Next(
                "dmesg -T | grep -i 'killed process'",
                "on its node: out of memory?",
                "在它所在的节点上看是否内存不足",
            ),
        ),
        source="ray#28778",
    ),
    Row(
        id="sighup",
        ends=frozenset({"SIGHUP"}),
        means="SIGHUP: the terminal or ssh session that it was started from has closed.",
        zh="SIGHUP：启动它的终端或 ssh 会话关闭了。",
        next=_NO_TERMINAL,
        source="ms-swift#5884, EfficientViM#3",
    ),
    Row(
        id="sighup-received",
        signs=(
            r"\bgot signal: 1\b(?!\d)",
            r"\bReceived 1 death signal\b",
            r"\bReceived Signals\.SIGHUP death signal\b",
            r"\bclosing signal SIGHUP\b",
        ),
        means="torchrun got SIGHUP: the terminal or ssh session that it was started from has closed.",
        zh="torchrun 收到 SIGHUP：启动它的终端或 ssh 会话关闭了。",
        next=_NO_TERMINAL,
        source="ms-swift#5884, EfficientViM#3",
    ),
    Row(
        id="sigsegv-silent",
        ends=frozenset({"SIGSEGV", "silent"}),
        means="It crashed in native code (a segmentation fault), without any message.",
        zh="原生代码发生段错误（SIGSEGV）而崩溃，没有任何输出。",
        next=(_FAULTHANDLER, _CORE),
        source="Linux signal(7)",
    ),
    Row(
        id="sigabrt-silent",
        ends=frozenset({"SIGABRT", "silent"}),
        means="Native code aborted it (SIGABRT) without a message: a failed check in a library, or a watchdog.",
        zh="被原生代码中止（SIGABRT），没有任何输出：库里某项检查失败，或 watchdog 触发。",
        next=(_FAULTHANDLER, _CORE),
        source="SimpleTuner#759",
    ),
    Row(
        id="sigill-silent",
        ends=frozenset({"SIGILL", "silent"}),
        means="It ran an instruction that this CPU does not have: built for a newer one, such as with AVX-512.",
        zh="执行了本机 CPU 不支持的指令：程序是为更新的 CPU 编译的，例如 AVX-512。",
        next=(
            Next("lscpu | grep -o 'avx[^ ]*' | sort -u", "on each node: do they differ?", "在各节点上比较"),
            Next(
                "",
                "Build extensions such as cpu_adam on this kind of node.",
                "在这种节点上重新编译 cpu_adam 等扩展。",
            ),
        ),
        source="deepspeed/ops/op_builder/builder.py",
    ),
    Row(
        id="sigfpe-silent",
        ends=frozenset({"SIGFPE", "silent"}),
        means="Native code divided an integer by zero: an empty batch, a size of 0, or a library's fault.",
        zh="原生代码里整数除以零：空 batch、大小为 0，或库的 bug。",
        next=(_FAULTHANDLER, _CORE),
        source="Linux signal(7)",
    ),
    Row(
        id="segfault",
        signs=(
            r"\bFatal Python error: Segmentation fault\b",
            r"\bSignal 11 \(SIGSEGV\)",
            r"\bdied with <Signals\.SIGSEGV",
            r"\bexitcode *: -11\b",
            r"\bexits with return code = -11\b",
            r"(?:^|: |\d )Segmentation fault(?: \(core dumped\)| {2,}|[ \t]*$)",
            r"\*\*\* SIGSEGV ",
            r"\bSignal: Segmentation fault \(11\)",
            r"\bexited on signal 11\b",
            r"!!! Segfault encountered !!!",
            r"\bCaught signal 11 \(Segmentation fault",
        ),
        means="It crashed in native code: an extension, a decoder or a library of another version.",
        zh="在原生代码里崩溃：问题在扩展、解码库或版本不匹配的库。",
        next=(
            Next(
                "",
                "The first Python frame below names the library that crashed.",
                "看下面第一个 Python 栈帧，它指出崩溃的是哪个库。",
            ),
            _FAULTHANDLER,
            _CORE,
        ),
        source="CPython faulthandler.c, torch/distributed/elastic, UCX",
    ),
    Row(
        id="aborted",
        signs=(
            r"\bSignal 6 \(SIGABRT\)",
            r"\bexitcode *: -6\b",
            r"\bdied with <Signals\.SIGABRT",
            r"\bexits with return code = -6\b",
            r"\btasks? [\d,-]{1,200}: Aborted\b",
            r"\bexited on signal 6\b",
            r"\bFatal Python error: Aborted\b",
            r"^Aborted(?: \(core dumped\))?[ \t]*$",
        ),
        severity="info",  # too little to explain an end
        means="Native code aborted it: torch's watchdog, or a C++ exception; if it was not the first, a victim.",
        zh="被原生代码中止：torch 的 watchdog 或 C++ 异常；如果它不是最早出错的，就只是受牵连。",
        next=(
            Next(
                "",
                "Look above for `what():` or the watchdog, and for the rank that failed first.",
                "往上找 `what():` 或 watchdog，并找最先出错的 rank。",
            ),
        ),
        source="SimpleTuner#759, slurm srun",
    ),
    Row(
        id="root-cause-block",
        signs=(r"\bRoot Cause \(first observed failure\):", r"^Root Cause:$"),
        severity="info",
        means="torchrun's view of this node only: the first failure of all may be on another node.",
        zh="这只是 torchrun 在本节点上看到的，最早的错误可能在其他节点。",
        next=(
            Next(
                "",
                "Compare the `time` of these blocks over all nodes.",
                "比较所有节点上这段输出里的 `time`，最早的才是起因。",
            ),
        ),
        source="SimpleTuner#759, torch/distributed/elastic/multiprocessing/errors",
    ),
    Row(
        id="launcher-ends-others",
        signs=(r"\bsigkill_handler\] Killing subprocess \d",),
        severity="info",
        means="DeepSpeed's launcher ends the other ranks of its node after one failed: a consequence.",
        zh="有 rank 出错后，DeepSpeed 启动器会结束同一节点的其他 rank：这是结果，不是原因。",
        next=(Next("", "Search upwards for the first rank that failed.", "往上找最先出错的 rank。"),),
        source="DeepSpeed#3524, DeepSpeedExamples#475",
    ),
)
