"""SLURM and other schedulers: ends that they decide, steps that do not start, and steps that do not end."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

_STUCK = Next(
    "ps -eo pid,stat,wchan:32,cmd | awk '$2 ~ /^D/'",
    "on the node: what is stuck in the GPU driver or a file system? only a reboot ends it",
    "在该节点上看有没有进程卡在 GPU 驱动或文件系统里；有就只能重启节点",
)
_HELD = Next(
    "cockpit doctor HOSTFILE",
    "before the next run: what still holds GPUs?",
    "下次运行前，看谁还占着 GPU",
)
_MEMORY = "Memory required by task is not available"

ROWS: tuple[Row, ...] = (
    Row(
        id="step-out-of-memory",
        signs=(
            r"\bDetected \d{1,6} oom[_-]kill event",
            r"\bsrun: error: [^\n]{1,200}?: tasks? [\d,-]{1,200}: Out Of Memory\b",
            r"\b[Ee]xceeded (?:job |step )?memory limit\b",
            r"\bTERM_MEMLIMIT\b",
        ),
        means="The job's memory limit on that node was reached, and the kernel killed a process of it.",
        zh="作业在该节点上超出内存限额，内核杀掉了其中的进程。",
        next=(
            Next(
                "sacct -j JOB -o jobid,maxrss,maxrssnode,reqmem,state",
                "how much was used, and where",
                "看用了多少内存、在哪个节点",
            ),
            Next("#SBATCH --mem=0", "asks for all memory of the nodes", "申请节点的全部内存"),
            Next(
                "",
                "Memory grows with ranks: fewer loader workers, less pinned or offloaded memory.",
                "内存随 rank 数增长：减少 DataLoader worker，少用 pinned memory 和 offload。",
            ),
        ),
        source="nextflow#5932, HAFS#101, noether#190",
    ),
    Row(
        id="time-limit",
        checks=frozenset({"time_limit"}),
        signs=(
            r"\bDUE TO TIME LIMIT\b",
            r"\bjob killed: walltime\b",
            r"\bTERM_RUNLIMIT\b",
        ),
        means="The scheduler ends a job at its time limit; nothing in the program failed.",
        zh="作业到了时间上限就会被调度器结束；程序本身没有出错。",
        next=(
            Next(
                "#SBATCH --time=2-00:00:00",
                "more time, if the partition allows it",
                "在分区允许的范围内延长时间",
            ),
            Next(
                "#SBATCH --signal=B:USR1@300",
                "a signal 5 minutes before: save, then requeue",
                "提前 5 分钟发信号：先保存，再重新排队",
            ),
        ),
        source="slurm src/slurmd/slurmstepd/req.c",
    ),
    Row(
        id="preempted",
        signs=(r"\bDUE TO (?:PREEMPTION|JOB REQUEUE)\b", r"\bTERM_PREEMPT\b"),
        means="The scheduler took the nodes for another job; nothing in the program failed.",
        zh="节点被调度器让给了其他作业（抢占）；程序本身没有出错。",
        next=(
            Next("sacct -X -j JOB -o jobid,state,start,end,restarts", "was it requeued?", "看是否已重新排队"),
            Next(
                "#SBATCH --requeue",
                "starts it again by itself: resume from the last checkpoint",
                "自动重新排队，从最近的 checkpoint 恢复",
            ),
        ),
        source="slurm src/slurmd/slurmstepd/req.c",
    ),
    Row(
        id="node-failed",
        signs=(r"\bDUE TO NODE FAILURE\b", r"\b(?:Node failure on|due to failure of node) \S"),
        means="SLURM lost a node of the job: it crashed, rebooted or was cut off.",
        zh="SLURM 与作业的一个节点失联：宕机、重启或断网。",
        next=(
            Next(
                "sacct -j JOB -o jobid,state,nodelist; sinfo -R",
                "which node, and why",
                "看是哪个节点、原因是什么",
            ),
            Next("#SBATCH --exclude=NODE", "restarts without it", "排除该节点后重新提交"),
        ),
        source="slurm src/slurmd/slurmstepd/req.c",
    ),
    Row(
        id="slurm-no-step-memory",
        signs=(rf"\bUnable to create (?:step for job \d{{1,10}}|job step): {_MEMORY}\b",),
        means="SLURM could not start the step: other steps hold the job's memory, or it asks for more than the job has.",
        zh="SLURM 没能启动作业步：作业的内存被其他作业步占满，或该作业步申请的内存超过了作业的内存。",
        next=(
            Next(
                "srun --mem=0 …",
                "takes the memory that the job has, not the default",
                "使用作业已有的全部内存，而不是默认值",
            ),
            Next(
                "srun --exact --mem=32G --cpus-per-task=8 …",
                "for steps side by side: to each its part",
                "并行跑多个作业步时，每个只申请自己那份",
            ),
            Next("scontrol show job JOBID | grep -i tres", "what does the job have?", "看作业有多少资源"),
        ),
        source="radical.pilot#2620, optimas#266, DLA-Future#337",
    ),
    Row(
        id="slurm-interconnect",
        signs=(r"\b(?:[Ll]aunch failed|failed on node \S{1,200}): Error configuring interconnect\b",),
        means="SLURM could not set up the step's interconnect: it shares nodes with another step, or a node is bad.",
        zh="SLURM 无法为该作业步配置高速互连网络：它与其他作业步共用节点，或某个节点有故障。",
        next=(
            Next(
                "srun --overlap -N1 -n1 -w NODE …",
                "attaches to a job: one task, one node",
                "进入正在运行的作业：只用一个节点、一个 task",
            ),
            Next(
                "squeue --steps --jobs JOBID",
                "is an old step still there? scancel JOBID.STEP",
                "看有没有旧的作业步；有就用 scancel JOBID.STEP 结束",
            ),
            Next("sbatch --exclude=NODE …", "again, without that node", "排除该节点后重新提交"),
        ),
        source="lumi-userguide#223, slurm src/common/slurm_errno.c",
    ),
    Row(
        id="slurm-step-waits",
        signs=(r"\bsrun: Job (?:\d{1,10} )?step creation (?:temporarily|still) disabled, retrying\b",),
        means="srun waits: another step of the same job holds all its CPUs, GPUs or memory.",
        zh="srun 在等待：同一作业的另一个作业步占满了 CPU、GPU 或内存。",
        next=(
            Next(
                "srun --overlap …",
                "shares what the running step holds (since 20.11)",
                "与正在运行的作业步共用资源（20.11 起）",
            ),
            Next("squeue --steps --jobs JOBID", "which step holds them?", "看是哪个作业步占着"),
            Next(
                "srun --exact --mem=32G --cpus-per-task=8 …",
                "for steps side by side: to each its part",
                "并行跑多个作业步时，每个只申请自己那份",
            ),
        ),
        severity="warning",
        source="llnl/smith#688, LaunchMON#57, ompi#8378, csc-user-guide#1022",
    ),
    Row(
        id="slurm-unkillable-step",
        signs=(r"\bSTEPD TERMINATED ON \S{1,200} AT \S{1,40} DUE TO JOB NOT ENDING WITH SIGNALS\b",),
        means="SLURM gave up on the step: a process stuck in the kernel survived SIGKILL, so the node is drained.",
        zh="SLURM 放弃了该作业步：有进程卡在内核里，SIGKILL 也杀不掉，节点因此被 drain。",
        next=(
            _STUCK,
            Next(
                "sinfo -R",
                "is the node drained for it? its admin has to reboot it and set it to resume",
                "看节点是否因此被 drain；要由管理员重启并 resume",
            ),
            _HELD,
        ),
        severity="warning",
        source="trixie#45, slurm src/slurmd/slurmstepd/step_terminate_monitor.c",
    ),
    Row(
        id="srun-gave-up",
        signs=(r"\bsrun: error: Timed out waiting for job step to complete\b",),
        means="srun stopped waiting for its step to end: processes of it may still run on its nodes.",
        zh="srun 不再等待作业步结束：它的进程可能还在节点上运行。",
        next=(
            Next(
                "squeue --steps --jobs JOBID",
                "is the step still there? scancel --signal=KILL JOBID.STEP",
                "看作业步还在不在；还在就用 scancel --signal=KILL JOBID.STEP 结束",
            ),
            _STUCK,
            _HELD,
        ),
        severity="warning",
        source="EgoVerse#682, pySCENIC#456, slurm src/api/step_launch.c",
    ),
)
