"""Launch: hostfiles, ssh, launchers, and what reaches the nodes."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

_SSH = Next("ssh -v NODE true", "shows where the login stops", "看登录卡在哪一步")

ROWS: tuple[Row, ...] = (
    Row(
        id="hostfile-missing",
        signs=(r"Unable to find hostfile, will proceed with training with local resources only",),
        severity="warning",
        means="DeepSpeed found no hostfile, so it trains on this node alone, whatever was asked for.",
        zh="DeepSpeed 没找到 hostfile，只会在本机训练，不会用到其他节点。",
        next=(
            Next(
                "deepspeed --hostfile /absolute/path/hostfile …", "names the file", "用绝对路径指定 hostfile"
            ),
            Next(
                "ls -l /job/hostfile",
                "the default; relative paths start at the working folder",
                "未指定时的默认位置；相对路径从当前目录算起",
            ),
        ),
        source="DeepSpeed#5221, DeepSpeedExamples#575",
    ),
    Row(
        id="hostfile-no-nodes",
        signs=(r"Num nodes is >1 but no extra nodes available via hostfile",),
        means="Several nodes were asked for, but DeepSpeed has read no hostfile that names them.",
        zh="训练要用多个节点，但 DeepSpeed 没有读到列出这些节点的 hostfile。",
        next=(
            Next(
                "deepspeed --hostfile /absolute/path/hostfile …", "names the file", "用绝对路径指定 hostfile"
            ),
        ),
        source="deepspeed/launcher/runner.py",
    ),
    Row(
        id="hostfile-filter",
        signs=(
            r"\bHostname '[^'\n]{1,100}' not found in hostfile",
            r"\bNo slot '\d{1,4}' specified on host ",
        ),
        means="--include or --exclude names a node or a slot that the hostfile does not have.",
        zh="--include 或 --exclude 里写的节点或 slot 在 hostfile 中不存在。",
        next=(
            Next(
                "cat HOSTFILE",
                "names must be spelt alike; slots count from 0",
                "名字要完全一致，slot 从 0 开始",
            ),
        ),
        source="deepspeed/launcher/runner.py",
    ),
    Row(
        id="hostfile-bad",
        signs=(
            r"\bHostfile contains (?:a bad entry|multiple entries for|duplicate hosts)\b",
            r"\bHostfile is (?:empty or )?not formatted correctly\b",
            r"\bHostfile is empty\b",
        ),
        means="A line of the hostfile is not `host slots=N`, or a host is in it twice.",
        zh="hostfile 里有一行不是 `主机名 slots=N` 的格式，或者同一主机写了两次。",
        next=(
            Next(
                "cat -A HOSTFILE",
                "shows typing errors, tabs and Windows line ends; no user@, one line per host",
                "看有没有拼写错误、制表符或 Windows 换行；不能写 user@，每台主机一行",
            ),
            Next("cockpit plan HOSTFILE -- train.py", "says which line is wrong", "会指出哪一行有问题"),
        ),
        source="DeepSpeed#3669, DeepSpeed#2626, DeepSpeedExamples#575",
    ),
    Row(
        id="slots-too-few",
        signs=(r"\bThere are not enough slots available in the system to satisfy the \d",),
        means="More ranks were asked of mpirun than its hostfile or the job has slots for.",
        zh="mpirun 要启动的 rank 数超过了 hostfile 或作业提供的 slot 数。",
        next=(
            Next("mpirun --hostfile HOSTFILE -np N …", "with slots=N for each host", "每台主机写上 slots=N"),
        ),
        source="open-mpi/ompi help-orte-rmaps-base.txt",
    ),
    Row(
        id="ssh-first-host",
        signs=(r"\bhost=\S{1,200} was not reachable via ssh\b",),
        means="DeepSpeed could not log in to the first host of the hostfile; it discards ssh's own error.",
        zh="DeepSpeed 登录不了 hostfile 的第一台主机，而且把 ssh 的报错丢掉了。",
        next=(
            Next("ssh -o BatchMode=yes NODE hostname", "shows ssh's error", "可以看到 ssh 真正的报错"),
            Next(
                "cockpit doctor HOSTFILE", "tries every host, not only the first", "检查所有主机，不只第一台"
            ),
        ),
        source="DeepSpeed#4907, DeepSpeed#1832, volcano#2952",
    ),
    Row(
        id="host-key-changed",
        checks=frozenset({"unreachable changed-key"}),
        signs=(
            r"\bREMOTE HOST IDENTIFICATION HAS CHANGED\b",
            r"\b[Hh]ost key for \S{1,200} has changed and you have requested\b",
        ),
        means="The node's ssh host key differs from the known one: reinstalled, a reused address, or an attack.",
        zh="节点的 ssh 主机密钥和记录的不一致：可能重装过、IP 被复用，也可能是攻击。",
        next=(
            Next(
                "ssh-keygen -F NODE; ssh-keyscan NODE | ssh-keygen -lf -",
                "old and new fingerprint: ask whoever runs the node which is right",
                "列出新旧指纹，向管理员核对",
            ),
            Next("ssh-keygen -R NODE", "forgets the old key, once it is verified", "核实之后再删除旧密钥"),
        ),
        source="openssh sshconnect.c",
    ),
    Row(
        id="host-key-unknown",
        checks=frozenset({"unreachable host-key"}),
        signs=(
            r"\bHost key is not trusted for host\b",
            r"\bHost key verification failed\.",
            r"\bNo \S{1,40} host key is known for ",
        ),
        means="The node's ssh host key is not in known_hosts of the account that launches.",
        zh="启动训练的账号的 known_hosts 里没有这个节点的主机密钥。",
        next=(
            Next("ssh NODE true", "logs in once by hand: compare the fingerprint", "手动登录一次并核对指纹"),
            Next(
                "ssh-keyscan -H NODE >> ~/.ssh/known_hosts",
                "for many nodes on a network that you trust",
                "节点多且网络可信时使用",
            ),
        ),
        source="asyncssh/connection.py, openssh sshconnect.c",
    ),
    Row(
        id="ssh-too-many-keys",
        checks=frozenset({"unreachable many-keys"}),
        signs=(r"\bToo many authentication failures\b",),
        means="The ssh agent offered more keys than the server accepts before it came to the right one.",
        zh="ssh agent 里密钥太多，还没试到正确的那把就被服务器断开了。",
        next=(
            Next(
                "ssh -o IdentitiesOnly=yes -i ~/.ssh/KEY NODE true",
                "offers this key only; put both into ~/.ssh/config",
                "只用这把密钥；可把这两项写进 ~/.ssh/config",
            ),
            Next("ssh-add -l", "lists what the agent offers", "列出 agent 中的密钥"),
        ),
        source="openssh auth.c",
    ),
    Row(
        id="ssh-refused",
        checks=frozenset({"unreachable login"}),
        signs=(
            r"\bPermission denied \((?:publickey|password|gssapi|keyboard-interactive|hostbased)",
            r"\bAll configured authentication methods failed\b",
            r"\bPermission denied for user \S{1,100} on host\b",
        ),
        but=r"\bgit@|\b(?:git|github|gitlab|bitbucket)\.",
        means="The node accepts none of the keys offered for this user.",
        zh="节点不接受该用户提供的任何密钥。",
        next=(
            Next("ssh-copy-id USER@NODE", "puts your key there", "把公钥放到该节点上"),
            Next(
                "ssh -v NODE true 2>&1 | grep -E 'Offering|as user'",
                "which keys, which user",
                "看用的是哪些密钥和用户",
            ),
        ),
        source="asyncssh/connection.py, openssh sshconnect2.c",
    ),
    Row(
        id="ssh-penalised",
        signs=(
            r"\bpenalty: (?:failed authentication|exceeded LoginGraceTime|connections without attempting)",
            r"\b(?:srclimit_penalise: ipv4: |srclimit_penalise: ipv6: )",
            r"(?:^|\bbanner line \d{1,4}: )Not allowed at this time\b",
        ),
        means="The ssh server refuses this address for a while, after failed logins from it (PerSourcePenalties).",
        zh="此前登录失败，ssh 服务器暂时拒绝来自这个地址的连接（PerSourcePenalties）。",
        next=(
            Next(
                "",
                "Wait up to 10 minutes: each further try prolongs it.",
                "最多等 10 分钟；每次重试都会延长处罚。",
            ),
            Next(
                "sudo sshd -T | grep -i persource",
                "on that node; PerSourcePenaltyExemptList spares the cluster's addresses",
                "在该节点上查看；PerSourcePenaltyExemptList 可豁免集群地址",
            ),
        ),
        source="openssh srclimit.c, servconf.c",
    ),
    Row(
        id="ssh-throttled",
        checks=frozenset({"unreachable dropped"}),
        signs=(
            r"\b(?:kex|ssh)_exchange_identification: (?:read: )?Connection (?:closed by remote host|reset by peer)",
            r"\bConnection (?:timed out|reset by peer) during banner exchange\b",
            r"\bbeginning MaxStartups throttling\b",
            r"\bpast MaxStartups\b",
            r"\b[Ee]xceeded MaxStartups\b",
        ),
        means="The ssh server or jump host drops logins: too many at once (MaxStartups), or a penalty; the node is up.",
        zh="ssh 服务器或跳板机拒绝了登录：同时登录的太多（MaxStartups），或还在处罚期；节点本身没有问题。",
        next=(
            Next(
                "export PDSH_SSH_ARGS_APPEND='-o ConnectionAttempts=5'", "tries again (pdsh)", "pdsh 自动重试"
            ),
            Next("pdsh -f 8 …", "fewer logins at once", "减少同时登录的数量"),
            Next("sudo sshd -T | grep -i maxstartups", "on that node: its limit", "在该节点上查看上限"),
        ),
        source="ansible#24594, asyncssh#55, teleport#8146",
    ),
    Row(
        id="ssh-sessions",
        signs=(
            r"\berror: no more sessions\b",
            r"\bSession open refused by peer\b",
            r"\bopen failed: connect failed: open failed\b",
            r"\bChannelOpenError: (?:open failed|Session)",
        ),
        means="The ssh server allows no more sessions on one connection (MaxSessions, 10 by default).",
        zh="单个 ssh 连接上的会话数达到了服务器的上限（MaxSessions，默认 10）。",
        next=(
            Next("ssh -o ControlPath=none NODE true", "with a connection of its own", "改用独立连接"),
            Next("sudo sshd -T | grep -i maxsessions", "on that node: its limit", "在该节点上查看上限"),
        ),
        source="openssh session.c, servconf.h",
    ),
    Row(
        id="name-unknown",
        checks=frozenset({"name_unknown", "unreachable name"}),
        signs=(
            r"\bssh: Could not resolve hostname ",
            r"\bgethostbyname\(\"[^\"\n]{1,100}\"\) failed",
            r"^socket\.gaierror: \[Errno -[235]\] ",
        ),
        but=r"\b(?:git|github|gitlab|bitbucket)\.",
        means="A name of a node is not known here: it is neither in DNS nor in /etc/hosts.",
        zh="本机解析不了某个节点的名字：DNS 和 /etc/hosts 里都没有。",
        next=(
            Next(
                "getent hosts NODE",
                "on each node: is it known there?",
                "在每个节点上执行，看能否解析",
            ),
            Next(
                "",
                "Write addresses into the hostfile, or add the name to /etc/hosts.",
                "hostfile 里改用 IP，或把名字加进 /etc/hosts。",
            ),
        ),
        source="CPM-2-Finetune#42, volcano#2952",
    ),
    Row(
        id="master-name-unknown",
        signs=(r"\bThe IPv[46] network addresses of \([^\n]{1,200}\) cannot be retrieved \(gai error: ",),
        severity="warning",
        means="This node cannot resolve the name in MASTER_ADDR; torch retries until its timeout.",
        zh="本节点解析不了 MASTER_ADDR 里的主机名，torch 会一直重试到超时。",
        next=(
            Next("getent hosts $MASTER_ADDR", "on this node", "在本节点上执行"),
            Next("export MASTER_ADDR=ADDRESS", "an address instead of the name", "直接用 IP 地址"),
        ),
        source="torch/csrc/distributed/c10d/socket.cpp",
    ),
    Row(
        id="launcher-missing",
        signs=(
            r"\blauncher '\w{1,40}' not installed\b",
            r"\b(?:pdsh|mpirun|mpiexec): (?:command )?not found\b",
        ),
        means="The launcher's tool (pdsh, mpirun) is not installed on the node that launches.",
        zh="执行启动命令的节点上没有安装启动工具（pdsh 或 mpirun）。",
        next=(
            Next(
                "sudo apt-get install pdsh",
                "or let cockpit run launch: it needs none",
                "或者改用 cockpit run，它不需要 pdsh",
            ),
            Next(
                "deepspeed --launcher openmpi …", "another launcher that is installed", "换一个已安装的启动器"
            ),
        ),
        source="deepspeed/launcher/runner.py, mistral#38",
    ),
    Row(
        id="pdsh-rsh",
        signs=(
            r"\brcmd: socket: Permission denied\b",
            r"^pdsh@\S{1,80}: \S{1,80}: connect: Connection refused",
        ),
        means="pdsh uses rsh instead of ssh.",
        zh="pdsh 用的是 rsh，不是 ssh。",
        next=(Next("export PDSH_RCMD_TYPE=ssh", "before the launch", "启动前设置"),),
        source="pdsh's default rcmd",
    ),
    Row(
        id="path-missing",
        checks=frozenset({"no_script"}),
        signs=(
            r": cd: (?:\d{1,4}: )?(?:can't cd to )?[/~$][^\n]{0,300}?: No such file or directory",
            r"\bcd: can't cd to \S",
            r"\bcd:(?:\d{1,4}:)? no such file or directory: ",
            r"\bNo such file or directory: '[^'\n]{0,300}/python[\d.]{0,6}'",
            r"sh: (?:line \d{1,4}: |\d{1,4}: )?\S{0,300}?python[\d.]{0,6}: (?:No such file or directory|command not found|not found)",
            r"\benv: \S{0,3}python[\d.]{0,6}\S{0,3}: No such file or directory",
            r"python[\d.]{0,6}: can't open file '",
            r"\bpython[\d.]{0,6}: bad interpreter: No such file or directory",
            r"\b(?:slurmstepd: error: couldn't chdir to|slurmstepd: error: execve\(\): )",
        ),
        means="The working folder, the script or the Python of the launch does not exist on that node.",
        zh="启动所用的工作目录、脚本或 Python 在该节点上不存在。",
        next=(
            Next(
                "ssh NODE ls -ld FOLDER",
                "is it there? is a file system not mounted?",
                "看目录在不在、文件系统是否挂载",
            ),
            Next("cockpit doctor HOSTFILE", "compares all nodes", "比较所有节点"),
        ),
        source="Megatron-DeepSpeed#126, DeepSpeedExamples#889",
    ),
    Row(
        id="master-address-wrong",
        signs=(
            r"\bUsing IP address of +(?:127\.|172\.1[78]\.|192\.168\.122\.|10\.88\.0\.|169\.254\.|for node)",
        ),
        severity="warning",
        means="The first address of `hostname -I` was taken as master: a bridge's or loopback, or none at all.",
        zh="主节点地址取自 `hostname -I` 的第一项，而它是网桥或回环地址，或者是空的。",
        next=(
            Next(
                "ssh FIRST_NODE hostname -I",
                "all its addresses, in the order that counts",
                "查看所有地址及顺序",
            ),
            Next(
                "deepspeed --master_addr ADDRESS …",
                "one that the other nodes reach",
                "指定其他节点能连上的地址",
            ),
        ),
        source="DeepSpeed#2612, deepspeed/launcher/runner.py",
    ),
    Row(
        id="secret-in-command",
        signs=(
            r"\b(?:cmd = |pdsh |ssh |mpirun )[^\n]{0,3000}?(?:export|-x) \w{0,60}(?:_KEY=|TOKEN=|SECRET=|PASSWORD=|PASSWD=)[\"']?[^\s;*\"'<]{6}",
        ),
        severity="warning",
        means="The launch command contains a secret, visible in this log and in `ps` on every node.",
        zh="启动命令里带有密钥：日志里和每个节点的 `ps` 里都能看到。",
        next=(
            Next("", "Replace that key: take it for known.", "尽快更换密钥，当作已经泄露。"),
            Next(
                "",
                "Keep it in a file with mode 600 that the script reads.",
                "把密钥放进权限 600 的文件，由脚本读取。",
            ),
        ),
        source="deepspeed/launcher/runner.py, wandb#12443",
    ),
    Row(
        id="local-rank-argument",
        signs=(r"\bunrecognized arguments:[^\n]{0,1000}?--local[-_]rank\b",),
        means="The launcher adds --local_rank to the script's arguments, and the script does not take it.",
        zh="启动器会给脚本加上 --local_rank 参数，而脚本不接受它。",
        next=(
            Next(
                "deepspeed --no_local_rank …", "or torchrun, which adds none", "或改用不加该参数的 torchrun"
            ),
            Next(
                "", "In the script: read os.environ['LOCAL_RANK'].", "脚本里改读 os.environ['LOCAL_RANK']。"
            ),
        ),
        source="deepspeed/launcher/launch.py, torch/distributed/launch.py",
    ),
    Row(
        id="no-job-on-node",
        checks=frozenset({"unreachable job"}),
        signs=(
            r"\bAccess denied by pam_slurm_adopt: you have no active jobs on this node",
            r"\bAccess denied: user \S{1,100}[^\n]{0,60}? has no active jobs on this node",
        ),
        means="SLURM lets nobody log in to a node without a job there: yours has ended, or is on other nodes.",
        zh="节点上没有你的作业时，SLURM 不允许你登录：你的作业已经结束，或者在别的节点上。",
        next=(
            Next("squeue --me -o '%i %T %N'", "your jobs and their nodes", "查看自己的作业和所在节点"),
            Next(
                "sacct -X -S now-1day -o jobid,state,end,nodelist",
                "how the last one ended",
                "上一个作业是怎么结束的",
            ),
        ),
        source="slurm contribs/pam_slurm_adopt",
    ),
    Row(
        id="killed-at-logout",
        checks=frozenset({"killed_at_logout"}),
        signs=(
            r"\b(?:session-\S{1,20}\.scope|user@\d{1,10}\.service): Killing process \d{1,10} \([^)\n]{1,40}\) with signal SIG",
        ),
        means="systemd ends the processes of a login session when its user logs out (KillUserProcesses).",
        zh="用户退出登录时，systemd 会结束该会话里的所有进程（KillUserProcesses）。",
        next=(
            Next(
                "loginctl enable-linger $USER",
                "on each node, as far as that is allowed",
                "在各节点上执行（如果允许）",
            ),
            Next(
                "systemd-run --user --scope COMMAND",
                "starts it outside of the session",
                "让程序在会话之外运行",
            ),
        ),
        source="systemd#8486, tmux#428",
    ),
)
