"""py-spy: why it took no stack. None of these ends a rank."""

from __future__ import annotations

from cockpit.base.stacks.spy_words import NEWER, NO_PYTHON, ROOT_DENIED
from cockpit.core.rules.row import Next, Row

ROWS: tuple[Row, ...] = (
    Row(
        id="pyspy-denied",
        signs=(r"\bPermission Denied: Try running again with elevated permissions by going ",),
        means="py-spy may not trace that process: kernel.yama.ptrace_scope forbids it, or it is another user's.",
        zh="py-spy 无权跟踪该进程：被 kernel.yama.ptrace_scope 禁止，或进程属于其他用户。",
        next=(
            Next(
                "cockpit stacks RUN",
                "needs no root for a run that cockpit started",
                "对 cockpit 启动的训练不需要 root",
            ),
            Next(
                'sudo env "PATH=$PATH" py-spy dump --pid PID',
                "root may trace everything",
                "root 可以跟踪任何进程",
            ),
            Next(
                "sudo sysctl -w kernel.yama.ptrace_scope=0",
                "lets users trace their own processes, until the next boot",
                "允许用户跟踪自己的进程，重启后失效",
            ),
        ),
        severity="warning",
        source="py-spy#8, py-spy#395, py-spy#408",
    ),
    Row(
        id="ptrace-forbidden",
        checks=frozenset({"no_stacks"}),
        means="kernel.yama.ptrace_scope is 2 (only root may take stacks) or 3 (nobody may, until a reboot).",
        zh="kernel.yama.ptrace_scope 为 2（只有 root 能取调用栈）或 3（谁都不能，重启后才能改）。",
        next=(
            Next(
                "sudo sysctl -w kernel.yama.ptrace_scope=1",
                "enough for runs that cockpit starts; from 3, only after a reboot",
                "对 cockpit 启动的训练已经足够；原来是 3 的要先重启",
            ),
        ),
        severity="warning",
        source="linux security/yama/yama_lsm.c",
    ),
    Row(
        id="pyspy-denied-root",
        signs=(
            r"\bIt looks like you are running in a docker container\. Please make sure .{0,60}\bSYS_PTRACE\b",
            r"\bError: Failed to open process - check if it is running",
            r"^Reason: Operation not permitted \(os error 1\)",
        ),
        means=f"py-spy was refused, as {ROOT_DENIED}.",
        zh="py-spy 被拒绝：root 在这里也不能跟踪其他进程，容器没有 SYS_PTRACE 权限。",
        next=(
            Next(
                "--cap-add SYS_PTRACE",
                "for docker run; docker exec needs --privileged",
                "加在 docker run 上；docker exec 则需 --privileged",
            ),
            Next(
                "securityContext: {capabilities: {add: [SYS_PTRACE]}}",
                "in the pod's containers, for Kubernetes",
                "用 Kubernetes 时，写在 Pod 的 containers 里",
            ),
            Next(
                "sudo py-spy dump --pid PID",
                "on the host, with the pid that it has there",
                "在宿主机上运行，PID 用宿主机上的",
            ),
        ),
        severity="warning",
        source="py-spy#12, py-spy#459, py-spy#612, marin#4529",
    ),
    Row(
        id="pyspy-cannot-suspend",
        signs=(r"(?:\bError|\bfrom \d{1,10}): Failed to suspend process\b",),
        means="py-spy could not pause the process: another tracer holds it, or a thread is stuck in the kernel.",
        zh="py-spy 无法暂停该进程：已被其他工具跟踪，或有线程卡在内核里（D 状态）。",
        next=(
            Next(
                "grep -E 'State|TracerPid' /proc/PID/task/*/status",
                "who traces it (not 0), which thread is in state D?",
                "看谁在跟踪它（非 0）、哪个线程处于 D 状态",
            ),
            Next(
                "py-spy dump --nonblocking --pid PID",
                "does not pause it; stacks may be torn",
                "不暂停进程；调用栈可能前后不一致",
            ),
        ),
        severity="warning",
        source="py-spy#83, py-spy#565, py-spy#764",
    ),
    Row(
        id="pyspy-no-python",
        signs=(
            r"\bFailed to find python version from target process\b",
            r"\bError: Unsupported version of Python: \d",
            r"\bError: No python processes found in process \d",
            r"\bFailed to find a python interpreter in the \.data section\b",
        ),
        means=f"py-spy found no Python: the target {NO_PYTHON}.",
        zh="py-spy 没找到可读的 Python：该进程不是 Python 进程、Python 尚未启动，或 py-spy 还不支持它的版本。",
        next=(
            Next(NEWER, "knows newer versions of Python", "新版 py-spy 支持更新的 Python"),
            Next(
                "readlink /proc/PID/exe",
                "bash or a launcher? then take its child",
                "如果是 bash 或启动器，就改用它的子进程",
            ),
            Next(
                "py-spy dump --subprocesses --pid PID",
                "inspects what it started as well (uv, entry points)",
                "连同子进程一起看（uv、入口脚本）",
            ),
        ),
        severity="warning",
        source="py-spy#43, py-spy#397, py-spy#498, py-spy#550, py-spy#663, py-spy#823",
    ),
    Row(
        id="pyspy-gone",
        signs=(r"\bFailed to get process executable name\. Check that the process is running\b",),
        means="py-spy found no such process: it has exited, or the pid belongs to another pid namespace (a container).",
        zh="py-spy 找不到该进程：它已退出，或这个 PID 属于另一个 PID 命名空间（容器）。",
        next=(
            Next("pgrep -af python", "pids as they are where py-spy runs", "列出 py-spy 所在环境里的 PID"),
            Next(
                "grep NSpid /proc/PID/status",
                "on the host: its pid in the container",
                "在宿主机上查它在容器内的 PID",
            ),
        ),
        severity="warning",
        source="py-spy/src/python_process_info.rs",
    ),
    Row(
        id="traced-already",
        signs=(r"\bprocess \d{1,10} is already traced by process \d",),
        means="Another debugger or profiler is already attached; a process can have only one tracer.",
        zh="该进程已被另一个调试器或 profiler 跟踪；一个进程同时只能有一个跟踪者。",
        next=(
            Next(
                "ps -fp $(awk '/TracerPid/ {print $2}' /proc/PID/status)",
                "shows the tracer; end it, or detach it",
                "查看跟踪者；结束它或让它 detach",
            ),
        ),
        severity="warning",
        source="gdb/nat/linux-ptrace.c",
    ),
)
