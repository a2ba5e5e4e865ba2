"""Containers: what an image, or docker's defaults, do not give."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

_SHM_SIZE = Next(
    "docker run --shm-size=16g …",
    "or --ipc=host; Kubernetes: an emptyDir with medium Memory on /dev/shm",
    "或 --ipc=host；Kubernetes 中把 medium: Memory 的 emptyDir 挂到 /dev/shm",
)
_DRIVER = Next(
    "nvidia-smi | head -4",
    "on each node: driver, and the newest CUDA that it knows",
    "在各节点查看驱动及其支持的最高 CUDA 版本",
)

ROWS: tuple[Row, ...] = (
    Row(
        id="shm-full",
        checks=frozenset({"shm_small"}),
        signs=(
            r"\bposix_fallocate failed[^\n]{0,80}?No space left",
            r"\bfailed to extend /dev/shm/",
            r"\bError while creating shared memory segment /dev/shm/nccl",
            r"/dev/shm\b[^\n]{0,200}?No space left on device",
            r"\bNo space left on device[^\n]{0,60}?/dev/shm\b",
            r"\bunable to (?:write to|open|mmap|resize|allocate)[^\n]{0,60}?(?:</torch_\d|shared memory)",
            r"\bunable to write to file </torch_",
        ),
        deep=(
            r"posix_fallocate failed.{0,200}No space left|failed to extend /dev/shm/nccl|"
            r"(?:Error while creating|shm_open).{0,200}/dev/shm/nccl",
        ),
        means="/dev/shm is too small or full: docker gives 64 MB by default, and killed ranks leave files there.",
        zh="/dev/shm 太小或者满了：docker 默认只有 64 MB，也可能有上次残留的文件。",
        next=(
            Next("df -h /dev/shm; ls -l /dev/shm", "its size, and what fills it", "看它有多大、被什么占满"),
            _SHM_SIZE,
            Next(
                "mount -o remount,size=16G /dev/shm",
                "as root, outside of containers",
                "不在容器里时以 root 执行",
            ),
        ),
        source="nccl#290, nccl#525, nccl#342, pytorch/ci-infra#490",
    ),
    Row(
        id="loader-shm-full",
        signs=(
            r"\bDataLoader worker \(pid[^)\n]{0,40}\) is killed by signal: Bus error",
            r"\bUnexpected bus error encountered in worker\b",
        ),
        means="A data loader's worker found no room in /dev/shm, through which it hands over batches.",
        zh="DataLoader worker 通过 /dev/shm 传递数据，而 /dev/shm 空间不足。",
        next=(
            _SHM_SIZE,
            Next("df -h /dev/shm", "on that node, while it trains", "训练时在该节点上查看"),
            Next(
                "",
                "Fewer workers, or a smaller prefetch_factor, need less.",
                "减少 num_workers 或 prefetch_factor 可降低占用。",
            ),
        ),
        source="simplerecon#3, hopsworks#1557, Megatron-LM#878",
    ),
    Row(
        id="drivers-differ",
        checks=frozenset({"differs_driver"}),
        means="Nodes have different NVIDIA drivers: an older one may lack what torch's CUDA needs.",
        zh="各节点的 NVIDIA 驱动版本不一致：较旧的可能不支持 torch 所用的 CUDA。",
        next=(_DRIVER, Next("", "Install the same driver on all nodes.", "所有节点装同一版本的驱动。")),
        severity="warning",
        source="https://docs.nvidia.com/deploy/cuda-compatibility",
    ),
    Row(
        id="driver-mismatch",
        signs=(r"\bFailed to initialize NVML: Driver/library version mismatch",),
        means="The NVIDIA driver was updated under the running kernel: module and libraries are of two versions.",
        zh="NVIDIA 驱动升级后内核模块没有重新加载，与用户态库的版本不一致。",
        next=(
            Next(
                "cat /proc/driver/nvidia/version; ls /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.*",
                "both versions",
                "查看两边的版本",
            ),
            Next(
                "", "Reboot the node, or have the module reloaded.", "重启节点，或让管理员重新加载驱动模块。"
            ),
        ),
        source="nvidia-smi",
    ),
    Row(
        id="driver-without-gpu",
        checks=frozenset({"gpu_lost"}),
        means="The NVIDIA driver is loaded, but shows no GPU: this job was given none, or they dropped off the bus.",
        zh="NVIDIA 驱动已加载，但看不到 GPU：作业没有分到 GPU，或 GPU 掉卡。",
        next=(
            Next(
                "nvidia-smi -L; sudo dmesg | grep -i xid", "has one fallen off the bus?", "看是否有 GPU 掉卡"
            ),
            Next("srun --gpus-per-node=N …", "in a SLURM job: asks for them", "在 SLURM 作业里申请 GPU"),
            Next("--exclude NODE", "train without it", "训练时排除该节点"),
        ),
        source="returnn#1486",
    ),
    Row(
        id="driver-not-found",
        signs=(r"\bFound no NVIDIA driver on your system\b",),
        means="No NVIDIA driver is visible here: a node without a GPU, or a container that was given none.",
        zh="看不到 NVIDIA 驱动：节点没有 GPU，或容器没有拿到 GPU。",
        next=(
            Next(
                "nvidia-smi; ls -l /dev/nvidia*",
                "on the node, then in the container",
                "先在节点上、再在容器里执行",
            ),
            Next(
                "docker run --gpus all …",
                "gives a container the GPUs (SLURM: --gpus-per-node)",
                "把 GPU 交给容器（SLURM 用 --gpus-per-node）",
            ),
        ),
        source="torch/csrc/cuda/Module.cpp",
    ),
    Row(
        id="driver-too-old",
        signs=(
            r"\bThe NVIDIA driver on your system is too old\b",
            r"\bCUDA driver version is insufficient for CUDA runtime version\b",
            r"\bforward compatibility was attempted on non supported HW\b",
        ),
        means="This node's NVIDIA driver is older than the CUDA that torch was built with needs.",
        zh="本节点的 NVIDIA 驱动太旧，不支持 torch 所用的 CUDA 版本。",
        next=(
            _DRIVER,
            Next(
                "python -m pip install torch --index-url https://download.pytorch.org/whl/cu118",
                "a torch for an older CUDA",
                "安装针对较旧 CUDA 的 torch",
            ),
        ),
        source="torch/csrc/cuda/Module.cpp, CUDA error 35 and 804",
    ),
    Row(
        id="container-without-gpu",
        signs=(
            r"\bcould not select device driver \"[^\"\n]{0,20}\" with capabilities: \[\[gpu\]\]",
            r"\bnvidia-container-cli: initialization error: ",
        ),
        means="Docker cannot give GPUs to containers here: the NVIDIA container toolkit is missing or broken.",
        zh="docker 无法把 GPU 交给容器：没有安装 NVIDIA container toolkit，或配置有误。",
        next=(
            Next(
                "nvidia-ctk --version; docker info | grep -i runtimes",
                "is it installed, and known to docker?",
                "看是否安装并已注册到 docker",
            ),
            Next(
                "",
                "Ask the node's admin for `nvidia-ctk runtime configure`: docker must restart, and its containers with it.",
                "请管理员执行 `nvidia-ctk runtime configure`：docker 要重启，正在运行的容器也会重启。",
            ),
        ),
        source="docker daemon, NVIDIA/nvidia-container-toolkit",
    ),
)
