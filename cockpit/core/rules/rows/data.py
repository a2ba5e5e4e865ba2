"""Data, checkpoints, and downloads."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

_HUBS = r"(?:huggingface\.co|hf\.co|download\.pytorch\.org|github\.com|githubusercontent\.com|openaipublic\.\w{1,20}\.\w{1,20}|s3\.amazonaws\.com|modelscope\.cn)"

ROWS: tuple[Row, ...] = (
    Row(
        id="loader-killed",
        signs=(r"\bDataLoader worker \(pid[^)\n]{0,40}\) is killed by signal: Killed\b",),
        means="A data loader's worker was killed from outside: most likely the node ran out of host memory.",
        zh="DataLoader worker 被外部杀掉，很可能是节点内存不足。",
        next=(
            Next("dmesg -T | grep -i 'killed process'", "was it the OOM killer?", "看是不是 OOM killer"),
            Next(
                "",
                "Fewer workers: each holds its own copy of what the data set keeps in Python.",
                "减少 num_workers：数据集里的 Python 对象，每个 worker 都有一份副本。",
            ),
        ),
        source="torch/utils/data/_utils/signal_handling.py",
    ),
    Row(
        id="loader-crashed",
        signs=(
            r"\bDataLoader worker \(pid[^)\n]{0,40}\) is killed by signal: (?!Killed|Bus error|Terminated|Interrupt)\w",
            r"\bUnexpected (?:segmentation fault|floating-point exception) encountered in worker\b",
        ),
        means="A data loader's worker crashed in native code: a decoder, or a library that does not survive fork.",
        zh="DataLoader worker 在原生代码里崩溃：问题在解码库，或不支持 fork 的库。",
        next=(
            Next(
                "export PYTHONFAULTHANDLER=1",
                "prints its Python stack the next time",
                "下次崩溃时打印 Python 调用栈",
            ),
            Next(
                "",
                "With num_workers=0 the error shows in the rank itself.",
                "设 num_workers=0，错误就会直接在 rank 的进程里报出来。",
            ),
        ),
        source="torch/utils/data/_utils/signal_handling.py",
    ),
    Row(
        id="loader-exited",
        signs=(r"\bDataLoader worker \(pid\(s\) [\d, ]{1,400}\) exited unexpectedly\b",),
        means="A data loader's worker exited without a message: killed, out of memory, or it crashed.",
        zh="DataLoader worker 退出了，没有留下任何输出：被杀、内存不足或崩溃。",
        next=(
            Next("dmesg -T | tail -30", "killed for memory, or a crash?", "看是内存不足还是崩溃"),
            Next(
                "",
                "With num_workers=0 the error shows in the rank itself.",
                "设 num_workers=0，错误就会直接在 rank 的进程里报出来。",
            ),
        ),
        source="torch/utils/data/dataloader.py",
    ),
    Row(
        id="open-files",
        checks=frozenset({"limits_low files"}),
        signs=(
            r"\[Errno 24\]",
            r"(?:Error: |: |^)Too many open files\b",
            r"\breceived 0 items of ancdata\b",
        ),
        means="The limit of open files is reached or too low: loader workers pass each tensor through one.",
        zh="打开文件数的上限太低，或已经达到：DataLoader worker 每传一个张量都要占一个。",
        next=(
            Next(
                "ulimit -n 65536",
                "before the launch, on each node (cockpit run: --setup 'ulimit -n 65536')",
                "启动前在各节点设置（cockpit run 用 --setup 'ulimit -n 65536'）",
            ),
            Next(
                "",
                "torch.multiprocessing.set_sharing_strategy('file_system') needs fewer.",
                "改用 torch.multiprocessing.set_sharing_strategy('file_system') 可减少占用。",
            ),
        ),
        source="torch/utils/data/dataloader.py, torch/multiprocessing/reductions.py",
    ),
    Row(
        id="lfs-pointer",
        signs=(r"\bUnpicklingError: invalid load key, 'v'",),
        means="The file is a pointer of git-lfs (a few lines of text), not the weights.",
        zh="这个文件是 git-lfs 指针（几行文本），不是真正的权重。",
        next=(
            Next(
                "git lfs pull",
                "in that repository; head -c 200 FILE shows it",
                "在仓库里执行；head -c 200 FILE 可确认",
            ),
        ),
        source="torch/serialization.py",
    ),
    Row(
        id="checkpoint-damaged",
        signs=(
            r"\bfailed finding central directory\b",
            r"\bPytorchStreamReader failed (?:reading|locating|finding)\b",
            r": not a ZIP archive\b",
            r"\bError while deserializing header: ",
            r"\bHeaderToo(?:Large|Small)\b",
            r"\binvalid magic number; corrupt file\?",
            r"\bunexpected EOF, expected \d{1,15} more bytes\b",
            r"\bUnpicklingError: (?:pickle data was truncated|invalid load key)",
            r"^EOFError: Ran out of input",
            r"\bWeightsUnpickler error: Unsupported operand \d",
            r"^Unsupported operand \d{1,4}$",
        ),
        means="A checkpoint is damaged or only half written: the writer was ended, or the disk was full.",
        zh="checkpoint 损坏或没写完：写入进程被结束，或磁盘满了。",
        next=(
            Next(
                "ls -l FOLDER",
                "is it smaller than its neighbours, or still growing?",
                "看是否比其他文件小，或还在写",
            ),
            Next(
                "",
                "Resume from the checkpoint before it; download it again if it is from a hub.",
                "从上一个 checkpoint 恢复；若来自 hub 则重新下载。",
            ),
        ),
        source="caffe2/serialize/inline_container.cc, lora-scripts#180, safetensors",
    ),
    Row(
        id="weights-only",
        signs=(
            r"\bWeights only load failed\. This file can still be loaded\b",
            r"\bUnsupported global: GLOBAL \S{1,200} was not an allowed global\b",
        ),
        means="torch 2.6 and later load only plain tensors by default, and this file holds other objects too.",
        zh="torch 2.6 起默认只加载纯张量，而这个文件里还有其他对象。",
        next=(
            Next(
                "torch.load(FILE, weights_only=False)",
                "only for a file that you trust: it may run code",
                "只用于你信任的文件：加载时可能执行其中的代码",
            ),
            Next(
                "torch.serialization.add_safe_globals([CLASS])",
                "allows what the message names",
                "放行报错中提到的类",
            ),
        ),
        source="torch/serialization.py",
    ),
    Row(
        id="hub-refused",
        signs=(
            r"\bGatedRepoError\b",
            r"\b(?:401|403) Client Error: [^\n]{0,40}? for url: https://(?:huggingface\.co|hf\.co)\b",
        ),
        means="The hub refuses this account the model or data set: no token here, or its licence is not accepted.",
        zh="hub 拒绝访问该模型或数据集：没有 token，或没有同意其许可协议。",
        next=(
            Next("huggingface-cli whoami", "on that node: is there a token?", "在该节点上看有没有 token"),
            Next(
                "",
                "Accept the licence on the model's page, or download it once where you are logged in.",
                "在模型页面同意许可协议，或在已登录的机器上先下载。",
            ),
        ),
        source="huggingface_hub/errors.py",
    ),
    Row(
        id="tracker-without-key",
        signs=(r"\bapi_key not configured \(no-tty\)",),
        means="wandb has no API key on that node, and nobody can be asked for one.",
        zh="该节点上没有 wandb API key，又没有人可以输入。",
        next=(
            Next(
                "wandb login",
                "once, into ~/.netrc, if the nodes share the home folder",
                "执行一次，写入 ~/.netrc（共享 home 时有效）",
            ),
            Next("export WANDB_MODE=offline", "or sync later", "或离线记录，之后再同步"),
        ),
        source="wandb/sdk",
    ),
    Row(
        id="other-world-size",
        signs=(r"\bThe checkpoint being loaded used a DP world size of \d",),
        means="The optimizer state of a ZeRO checkpoint is split for another number of ranks.",
        zh="ZeRO checkpoint 的优化器状态是按另一个 rank 数切分的。",
        next=(
            Next(
                "",
                "Resume with that many ranks, or convert it to a universal checkpoint.",
                "用相同的 rank 数恢复，或转换为 universal checkpoint。",
            ),
            Next(
                "ds_to_universal.py --input_folder CKPT --output_folder OUT",
                "then load_universal in the settings",
                "然后在配置里打开 load_universal",
            ),
        ),
        source="deepspeed/runtime/zero",
    ),
    Row(
        id="no-internet",
        signs=(
            r"\b[Ww]e couldn't connect to '?https://",
            r"\burlopen error \[Errno -?(?:2|3|5|101|110|113)\]",
            rf"\bHTTPSConnectionPool\(host='[\w.-]{{0,60}}{_HUBS}'",
            rf"\bFailed to resolve '[\w.-]{{0,60}}{_HUBS}'",
            r"\bLocalEntryNotFoundError\b",
            r"\bOfflineModeIsEnabled\b",
            r"\bCannot find the requested files in the (?:disk|local) cache\b",
            r"\bConnectionError: Couldn't reach \S",
        ),
        but=r"(?i:\bretrying\b|\bretry in\b|\bfalling back\b)",
        means="The node has no way to the internet, and what was to be downloaded is not in its cache.",
        zh="节点连不上外网，而要下载的内容不在本地缓存里。",
        next=(
            Next(
                "huggingface-cli download MODEL",
                "on a node with internet, with the same HF_HOME",
                "在能上网的节点上下载，HF_HOME 保持一致",
            ),
            Next(
                "export HF_HUB_OFFLINE=1 HF_HOME=/shared/hf",
                "for the ranks: take the cache, ask nobody",
                "让 rank 只用缓存、不联网",
            ),
            Next("export HTTPS_PROXY=http://PROXY:PORT", "if the cluster has one", "集群有代理时设置"),
        ),
        source="transformers/utils/hub.py, huggingface_hub, CPython urllib",
    ),
)
