"""Hangs: collectives that do not end, and what torch says of them."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

_STACKS = Next(
    "cockpit stacks RUN", "while it hangs: which rank is elsewhere?", "卡住时执行，看哪个 rank 停在别处"
)

ROWS: tuple[Row, ...] = (
    Row(
        id="collective-mismatch",
        signs=(
            r"\bDetected mismatch between collectives on ranks\. Rank",
            r"\bCollectives differ in the following aspects: ",
        ),
        means="Ranks called different collectives, or the same with other shapes or types: the code diverged.",
        zh="各 rank 调用的 collective 不同，或形状、类型不一致：代码走了不同分支。",
        next=(
            Next(
                "",
                "Compare the two fingerprints of the message: OpType, shape, type, number.",
                "比较报错里的两份 fingerprint：OpType、形状、类型、序号。",
            ),
            Next(
                "",
                "Look for a branch on the rank, on data, or a last batch that only some ranks have.",
                "检查代码里是否有依赖 rank 或数据的分支，或只有部分 rank 才有的最后一个 batch。",
            ),
        ),
        source="pytorch#78022, pytorch#100207, ms-swift#9443, Lightning#19106",
    ),
    Row(
        id="nccl-collective-mismatch",
        signs=(
            r"\bMismatched collective detected\b",
            r"\bcollective mismatch error\b",
            r"\bMessage truncated : received \d{1,15} bytes instead of \d",
        ),
        means="NCCL got data of another size than it waited for: ranks called different collectives or sizes.",
        zh="NCCL 收到的数据大小与预期不符：各 rank 调用的 collective 或数据大小不一致。",
        next=(
            Next(
                "export TORCH_DISTRIBUTED_DEBUG=DETAIL",
                "torch then names the call that differs",
                "让 torch 指出不一致的调用",
            ),
            _STACKS,
        ),
        source="nccl#296, nccl#531, nccl/src/transport/net_ib.cc, net_socket.cc",
    ),
    Row(
        id="watchdog-stuck",
        signs=(
            r"\bwatchdog got stuck for \d",
            r"\b[Hh]eartbeat monitor timed out\b",
            r"\bdue to ProcessGroupNCCL watchdog hang\b",
        ),
        means="A rank's own watchdog thread hung: in a CUDA call, or behind a thread that holds the GIL.",
        zh="该 rank 的 watchdog 线程卡住了：停在某个 CUDA 调用里，或有线程一直占着 GIL。",
        next=(
            Next(
                "py-spy dump --native --pid PID",
                "on that rank: shows which thread holds the GIL, and in which call",
                "看谁占着 GIL、停在哪个调用",
            ),
            Next("dmesg -T | grep -i xid", "has its GPU failed?", "看 GPU 是否出错"),
            Next(
                "export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800",
                "if it is only slow, as in a long checkpoint",
                "如果只是慢（如保存 checkpoint 很久），就加大超时",
            ),
        ),
        source="LlamaFactory#6964, LlamaFactory#8549, verl#1158, sglang#1691, pytorch#117312",
    ),
    Row(
        id="watchdog-timeout",
        signs=(
            r"\bWatchdog caught collective operation timeout: Work",
            r"\bcollective operation timeout: (?:WorkNCCL|WorkHCCL|WorkXCCL)\(",
            r"\bException \(either an error or timeout\) detected by watchdog at work\b",
        ),
        means="A rank waited in a collective until the timeout: another did not come, and that one is to blame.",
        zh="有 rank 在 collective 里等到超时：问题在没有来的那个 rank。",
        next=(
            Next(
                "",
                "Look for the rank that says nothing, or failed before: most that print this only waited.",
                "找没有输出或更早出错的 rank；打印这句的 rank 大多只是在等。",
            ),
            Next(
                "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1",
                "the next time: a file per rank says who was missing",
                "下次启动前设置；每个 rank 会写一个文件，能看出谁没有来",
            ),
            _STACKS,
        ),
        source="pytorch#118369, OFA#271, LlamaFactory#7396, Megatron-LM#1207, ArcticTraining#219",
    ),
    Row(
        id="unused-parameters",
        signs=(r"\bExpected to have finished reduction in the prior iteration before starting a new one\b",),
        means="DDP waits for gradients of parameters that took no part in the loss on this rank.",
        zh="DDP 在等一些参数的梯度，但这些参数在本 rank 上没有参与 loss 计算。",
        next=(
            Next("export TORCH_DISTRIBUTED_DEBUG=DETAIL", "names the parameters", "会打印是哪些参数"),
            Next(
                "",
                "DistributedDataParallel(…, find_unused_parameters=True), or use all of them in the loss.",
                "用 DistributedDataParallel(…, find_unused_parameters=True)，或让所有参数都参与 loss。",
            ),
        ),
        source="torch/csrc/distributed/c10d/reducer.cpp",
    ),
    Row(
        id="recorder-signal",
        signs=(
            r"\bObserved flight recorder dump signal from another rank\b",
            r"\bFirst PG on this rank to signal dumping\b",
            r"\bReceived a (?:dump signal|global timeout) (?:due to|from)\b",
        ),
        severity="info",
        means="A rank ran into the timeout and asked all to write their flight recorder; it is not the culprit yet.",
        zh="某个 rank 超时后通知所有 rank 写出 flight recorder，它不一定是起因。",
        next=(
            Next(
                "torchfrtrace --prefix PREFIX FOLDER",
                "reads those files: who did not enter which collective",
                "读取这些文件，看谁没有进入哪个 collective",
            ),
        ),
        source="torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    ),
    Row(
        id="recorder-off",
        signs=(r"\bStack trace of the \w{1,20} collective\b[^\n]{0,20}? not found\b",),
        severity="info",
        means="The flight recorder was off, so torch cannot say which call had waited.",
        zh="flight recorder 没有打开，torch 无法指出是哪个调用在等。",
        next=(
            Next(
                "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_NCCL_DEBUG_INFO_TEMP_FILE=FOLDER/trace_",
                "for the next launch; the default of the files is in /tmp",
                "下次启动前设置；文件默认写在 /tmp",
            ),
        ),
        source="ArcticTraining#219, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    ),
    Row(
        id="recorder-lost",
        signs=(r"\btimed out after waiting for \d{1,9} ?ms\b[^\n]{0,40}? dumps?\b",),
        severity="warning",
        means="A flight recorder file was not finished in time: its folder is slow, full or not writable.",
        zh="flight recorder 文件没能及时写完：目录太慢、已满或不可写。",
        next=(
            Next(
                "export TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/tmp/$USER/trace_",
                "a local folder, on each node",
                "改用各节点的本地目录",
            ),
        ),
        source="LlamaFactory#8261",
    ),
    Row(
        id="taken-down",
        signs=(
            r"\bSome NCCL operations have failed or timed out\b",
            r"\bTo avoid data inconsistency, we are taking the entire process down\b",
        ),
        severity="info",
        means="torch ends this rank after a collective failed: a consequence; the cause is above, or on another rank.",
        zh="collective 失败后 torch 结束了本 rank：这是结果，原因在上面的日志里，或在其他 rank 上。",
        next=(Next("", "Look for the first failure, on all ranks.", "在所有 rank 的日志里找最早的错误。"),),
        source="torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    ),
)
