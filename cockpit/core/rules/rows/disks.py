"""Disks and shared file systems."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

USERS = Next("du -xh --max-depth=2 FOLDER | sort -h | tail", "what uses it", "看什么占了空间")

ROWS: tuple[Row, ...] = (
    Row(
        id="disk-quota",
        signs=(r"\[Errno 122\]", r"\bDisk quota exceeded\b", r"\bcode: 122, kind: "),
        means="Your quota on that file system is used up: bytes, or the number of files.",
        zh="该文件系统上的配额用完了：容量或文件数。",
        next=(
            Next(
                "quota -s; lfs quota -h -u $USER FOLDER",
                "which one (the second for Lustre)",
                "看哪项超限（后者用于 Lustre）",
            ),
            USERS,
        ),
        source="Megatron-LM#878",
    ),
    Row(
        id="disk-full",
        signs=(
            r"\[Errno 28\]",
            r"\bNo space left on device\b",
            r"\bkind: StorageFull\b",
        ),
        but=r"/dev/shm\b|</torch_\d|posix_fallocate",
        means="The file system is full: of bytes, or of inodes.",
        zh="文件系统满了：空间或 inode 用尽。",
        next=(
            Next(
                "df -h FOLDER /tmp; df -i FOLDER /tmp",
                "which one, bytes or inodes",
                "看哪个满了，是空间还是 inode",
            ),
            USERS,
        ),
        source="Megatron-LM#878",
    ),
    Row(
        id="disk-low",
        checks=frozenset({"disk_low", "disk"}),
        means="Once a disk is full, or has no inodes, output of ranks is lost and no checkpoint is saved.",
        zh="磁盘空间或 inode 一旦用尽，rank 的输出会丢失，checkpoint 也存不下来。",
        next=(USERS,),
        severity="warning",
        source="Megatron-LM#878",
    ),
    Row(
        id="run-folders-on-nfs",
        checks=frozenset({"run_folders_remote"}),
        means="Output of ranks would go to a network file system: while its server hangs, ranks that print hang.",
        zh="rank 的输出会写到网络文件系统上：服务器没有响应时，打印输出的 rank 也会卡住。",
        next=(Next("--node-dir DIR", "a folder on a local disk", "改用本地磁盘上的目录"),),
        severity="warning",
        source="DeepSpeed#5205",
    ),
    Row(
        id="checkpoint-write-failed",
        signs=(
            r"\bPytorchStreamWriter failed writing (?:file|central directory|zip)",
            r"\bunexpected pos \d{1,20} vs \d",
            r"\bbasic_ios::clear: iostream error\b",
        ),
        means="A checkpoint was not written to its end: usually the disk or the quota is full; it is damaged.",
        zh="checkpoint 没有写完，通常是磁盘或配额满了；这个文件已损坏。",
        next=(
            Next("df -h FOLDER; df -i FOLDER; quota -s", "disk, inodes, quota", "看磁盘、inode 和配额"),
            Next(
                "ls -l FOLDER", "resume from the checkpoint before this one", "从上一个完整的 checkpoint 恢复"
            ),
        ),
        source="ChatGLM-6B#1166, caffe2/serialize/inline_container.cc",
    ),
    Row(
        id="stale-handle",
        signs=(r"\b[Ss]tale (?:NFS )?file handle\b", r"\[Errno 116\]"),
        means="A file on a network file system was replaced or removed under this node, or its server restarted.",
        zh="文件句柄失效：网络文件系统上的文件被替换或删除，或服务器重启过。",
        next=(
            Next(
                "ls FOLDER; mount | grep nfs",
                "does it answer now? on how many nodes at once?",
                "看现在能否访问、有几个节点同时出错",
            ),
            Next(
                "",
                "If many nodes failed in the same second, it was the file server; otherwise find what replaced the file.",
                "如果许多节点在同一秒出错，就是服务器的问题；否则查是谁替换了文件。",
            ),
        ),
        source="linux fs/nfs",
    ),
    Row(
        id="file-server-silent",
        signs=(r"\bnfs: server \S{1,200} (?:not responding, still trying|not responding, timed out)",),
        severity="warning",
        means="The NFS server does not answer: everything that touches it hangs until it is back.",
        zh="NFS 服务器没有响应：访问它的进程都会卡住，直到它恢复。",
        next=(
            Next(
                "timeout 5 ls FOLDER; dmesg -T | grep 'nfs: server'",
                "is it back (nfs: server … OK)?",
                "看是否已恢复（nfs: server … OK）",
            ),
        ),
        source="linux net/sunrpc/clnt.c",
    ),
    Row(
        id="file-system-failed",
        signs=(
            r"\[Errno 5\] Input/output error",
            r": Input/output error$",
            r"\[Errno (?:107|108)\]",
            r"\bTransport endpoint is not connected\b",
            r"\bCannot send after transport endpoint shutdown\b",
        ),
        but=r"<std(?:in|out|err)>",
        means="A disk, or the server of a shared file system, failed to read or write.",
        zh="磁盘或共享文件系统的服务器读写失败。",
        next=(
            Next(
                "dmesg -T | tail -50",
                "on that node: disk, NFS or Lustre errors",
                "在该节点上看磁盘、NFS、Lustre 的错误",
            ),
            Next("df -h FOLDER", "is it mounted, does it answer?", "看是否挂载、有无响应"),
        ),
        source="linux errno; Lustre and FUSE",
    ),
)
