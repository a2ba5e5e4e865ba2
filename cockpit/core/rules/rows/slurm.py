"""SLURM and other schedulers: ends that they decide."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

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
                "看内存用量和所在节点",
            ),
            Next("#SBATCH --mem=0", "asks for all memory of the nodes", "申请节点的全部内存"),
            Next(
                "",
                "Memory grows with ranks: fewer loader workers, less pinned or offloaded memory.",
                "内存随 rank 数增长：减少 loader worker，少用 pinned 或 offload。",
            ),
        ),
        source="nextflow#5932, HAFS#101, noether#190",
    ),
    Row(
        id="time-limit",
        signs=(
            r"\bDUE TO TIME LIMIT\b",
            r"\bjob killed: walltime\b",
            r"\bTERM_RUNLIMIT\b",
        ),
        means="The scheduler ended the job at its time limit; nothing in the program failed.",
        zh="作业到达时间上限，被调度器结束；程序本身没有出错。",
        next=(
            Next(
                "#SBATCH --time=2-00:00:00",
                "more time, if the partition allows it",
                "在分区允许范围内加长时间",
            ),
            Next(
                "#SBATCH --signal=B:USR1@300",
                "a signal 5 minutes before: save, then requeue",
                "提前 5 分钟发信号，先保存再重新排队",
            ),
        ),
        source="slurm src/slurmd/slurmstepd/req.c",
    ),
    Row(
        id="preempted",
        signs=(r"\bDUE TO (?:PREEMPTION|JOB REQUEUE)\b", r"\bTERM_PREEMPT\b"),
        means="The scheduler took the nodes for another job; nothing in the program failed.",
        zh="节点被更高优先级的作业抢占；程序本身没有出错。",
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
            Next("#SBATCH --exclude=NODE", "restarts without it", "排除该节点后重启"),
        ),
        source="slurm src/slurmd/slurmstepd/req.c",
    ),
)
