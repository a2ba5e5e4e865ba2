"""Memory: of the host and of the GPU."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

_HANDLED = r"(?i:\bretry|\bskipp|\bignor|\bfall(?:ing)? ?back)"
LARGEST = Next(
    "ps -eo pid,rss,args --sort=-rss | head",
    "on that node: its largest processes",
    "在该节点上看最占内存的进程",
)
_LESS = Next(
    "",
    "Memory grows with ranks: fewer loader workers, no pin_memory, load weights on one rank.",
    "内存随 rank 数增长：减少 DataLoader worker、关掉 pin_memory、权重只在一个 rank 上加载。",
)
_WHOSE = Next(
    "ps -o pid,ppid,user,lstart,args -p PID",
    "is it left from an ended run, or of this one?",
    "看是残留进程还是本次训练的进程",
)
_WHO_USES = Next(
    "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv",
    "who holds memory on that node?",
    "看该节点上谁占着显存",
)

ROWS: tuple[Row, ...] = (
    Row(
        id="sigkill-oom",
        ends=frozenset({"SIGKILL", "oom"}),
        means="The kernel's OOM killer ended it: the node, or its cgroup, ran out of host memory.",
        zh="被内核的 OOM killer 杀掉：节点或其 cgroup 的内存用尽。",
        next=(
            Next(
                "",
                "Memory grows with ranks: fewer loader workers, no pin_memory, load weights on one rank (meta device).",
                "内存随 rank 数增长：减少 DataLoader worker、关掉 pin_memory、权重只在一个 rank 上加载（meta device）。",
            ),
            Next(
                "",
                "With offload: to NVMe instead of CPU, or fewer ranks per node.",
                "如果用了 offload，改为 offload 到 NVMe，或减少每个节点的 rank 数。",
            ),
        ),
        source="DeepSpeed#4239, LlamaFactory#4629, LlamaFactory#9116, ChatGLM-6B#736",
    ),
    Row(
        id="kernel-oom",
        signs=(
            r"\b[Oo]ut of memory: Killed process \d",
            r"\bMemory cgroup out of memory: Kill",
            r"\boom-kill:constraint=",
            r"\bOOMKilled\b",
        ),
        but=r"\bOOMKilled\W{1,4}(?:false|False|0)",
        means="The kernel's OOM killer ended a process: the node, or its container, ran out of host memory.",
        zh="内核的 OOM killer 杀掉了一个进程：节点或容器的内存用尽。",
        next=(
            Next(
                "free -h; cat /sys/fs/cgroup/memory.max",
                "the node's memory, and the container's limit",
                "看节点内存和容器限额",
            ),
            _LESS,
        ),
        source="linux mm/oom_kill.c",
    ),
    Row(
        id="memory-low",
        checks=frozenset({"memory_low", "memory_filling"}),
        means="Host memory is nearly used up; once it is, the kernel kills a process, most likely a rank.",
        zh="内存快用尽了；一旦用尽，内核就会杀掉进程，多半是某个 rank。",
        next=(LARGEST, _LESS),
        severity="warning",
        source="DeepSpeed#4239",
    ),
    Row(
        id="gpu-held",
        checks=frozenset({"gpu_busy"}),
        means="Processes hold memory of a GPU before the run: left from an ended run, or somebody else's.",
        zh="训练开始前就有进程占着显存：上次训练的残留，或别人的进程。",
        next=(_WHOSE, _WHO_USES, Next("--exclude NODE", "train without it", "训练时排除该节点")),
        severity="warning",
        source="DeepSpeed#1016, EgoVerse#682",
    ),
    Row(
        id="gpu-oom-others",
        signs=(
            r"\bout of memory\. Tried to allocate [^\n]{1,300}?\bProcess \d{1,10} has [^\n]{1,40}? memory in use",
        ),
        but=_HANDLED,
        means="The GPU is full, and other processes hold a part of its memory.",
        zh="显存不足，而且有其他进程占用了这块 GPU 的一部分显存。",
        next=(
            _WHO_USES,
            _WHOSE,
            Next(
                "export CUDA_VISIBLE_DEVICES=…",
                "are two ranks on one GPU?",
                "看是不是两个 rank 用了同一块 GPU",
            ),
        ),
        source="DeepSpeed#1016, c10/cuda/CUDACachingAllocator.cpp",
    ),
    Row(
        id="gpu-oom",
        signs=(
            r"\b(?:CUDA|HIP|NPU|XPU|MPS backend) out of memory\b",
            r"\b(?:CUDA|HIP) error: out of memory\b",
            r"\b[Cc](?:uda|UDA) failure (?:\d{1,4} )?'out of memory'",
            r"\b(?:CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory|cudaErrorMemoryAllocation)\b",
            r"\bRESOURCE_EXHAUSTED: [^\n]{0,60}?[Oo]ut of memory\b",
            r"\bCUBLAS_STATUS_ALLOC_FAILED\b",
            r"\bcuda runtime error \(2\) : out of memory\b",
            r"\bOOM when allocating tensor\b",
            r"^torch(?:\.cuda)?\.OutOfMemoryError\b",
        ),
        but=_HANDLED,
        means="The GPU has no memory left for what was asked of it.",
        zh="显存不足，分配失败。",
        next=(
            Next(
                "",
                "A smaller micro batch or sequence, activation checkpointing, ZeRO or FSDP.",
                "减小 micro batch 或序列长度，或用 activation checkpointing、ZeRO、FSDP。",
            ),
            Next(
                "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                "if much is reserved but unallocated: fragmentation",
                "如果 reserved but unallocated 很大，就是碎片问题",
            ),
            _WHO_USES,
        ),
        source="c10/cuda/CUDACachingAllocator.cpp, nccl/src/include/checks.h",
    ),
    Row(
        id="host-allocation-failed",
        signs=(
            r"\bDefaultCPUAllocator: (?:can't allocate memory|not enough memory)\b",
            r"^MemoryError\b",
            r"^OSError: \[Errno 12\] Cannot allocate memory",
            r"\bwhat\(\): +std::bad_alloc\b",
        ),
        means="Host memory was refused to it: the node, or a limit of its own (ulimit -v, cgroup), is exhausted.",
        zh="内存分配失败：节点内存或进程自身的限额（ulimit -v、cgroup）用尽。",
        next=(
            Next("free -h; ulimit -v; cat /sys/fs/cgroup/memory.max", "what is the limit?", "看限制在哪里"),
            Next(
                "",
                "Is a size wrong by a factor? The message says how much was asked for.",
                "看报错里申请的大小是否合理：是不是多算了好几倍。",
            ),
        ),
        source="c10/core/impl/alloc_cpu.cpp, CPython",
    ),
    Row(
        id="no-more-threads",
        checks=frozenset({"limits_low processes"}),
        signs=(
            r"\bcan't start new thread\b",
            r"\blibgomp: Thread creation failed\b",
            r"\bpthread_create failed[^\n]{0,60}?Resource temporarily unavailable",
            r"\bBlockingIOError: \[Errno 11\] Resource temporarily unavailable",
        ),
        means="The limit of threads and processes, of the user or of the cgroup, is reached or too low.",
        zh="用户或 cgroup 的线程/进程数上限太低，或已经达到。",
        next=(
            Next(
                "ulimit -u; cat /sys/fs/cgroup/pids.max",
                "the limits where ranks run",
                "看 rank 所在环境的上限",
            ),
            Next(
                "export OMP_NUM_THREADS=1",
                "each rank and each loader worker starts as many threads",
                "每个 rank 和每个 DataLoader worker 都会启动这么多线程",
            ),
        ),
        source="CPython, libgomp, OpenBLAS",
    ),
)
