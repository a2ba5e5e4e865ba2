"""A rank is stuck in its own code, or reads and writes."""

from __future__ import annotations

from tests.faultpool.kind import Kind

_CODE = (
    Kind(
        "sleep",
        "code",
        """
def tokenize():
    time.sleep(9999)
""",
        sites=("data", "forward", "log"),
    ),
    Kind(
        "loop",
        "code",
        """
def dedupe():
    seen = 7
    while seen:
        seen = seen * 31 % 1000003 + 1
""",
    ),
    Kind(
        "poll",
        "code",
        """
def wait_for_cache():
    while not os.path.exists(os.path.join(HERE, "cache.ready")):
        time.sleep(0.05)
""",
    ),
    Kind(
        "retry",
        "code",
        """
def fetch():
    while True:
        try:
            return open(os.path.join(HERE, "absent", "part-7")).read()
        except OSError:
            time.sleep(0.2)
""",
        times=1,
    ),
    Kind(
        "recursion",
        "code",
        """
def walk(depth):
    if depth:
        walk(depth - 1)
    time.sleep(9999)
""",
        call="walk(700)",
        times=1,
    ),
    Kind(
        "regex",
        "code",
        """
def clean_text():
    return re.match("(a|aa)+$", "a" * 60 + "b")
""",
        sites=("data",),
        times=1,
    ),
    Kind(
        "generator",
        "code",
        """
def stream():
    for number in range(100):
        if number == 3:
            time.sleep(9999)
        yield number

def refill():
    return sum(stream())
""",
        call="refill()",
        times=1,
    ),
    Kind(
        "asyncio",
        "code",
        """
async def arrive():
    await asyncio.Event().wait()

def prefetch():
    asyncio.run(arrive())
""",
        call="prefetch()",
        places=("prefetch", "arrive"),
        times=1,
    ),
    Kind(
        "hook",
        "code",
        """
def scale(grad):
    while not os.path.exists(os.path.join(HERE, "scale.ready")):
        time.sleep(0.05)
    return grad
""",
        call="scale(None)",
        sites=("backward",),
        bare="never",
    ),
    Kind(
        "loop_all",
        "code",
        """
def pack():
    rest = 7
    while rest:
        rest = rest * 31 % 1000003 + 1
""",
        who="all",
        certainty=("sure", "likely", "unsure"),
        times=1,
    ),
)

_IO = (
    Kind(
        "fifo_open",
        "io",
        """
def read_shard():
    path = os.path.join(HERE, "shard-%d" % RANK)
    os.mkfifo(path)
    with open(path, "rb") as file:
        return file.read()
""",
        sites=("data", "forward", "log"),
        times=3,
    ),
    Kind(
        "fifo_read",
        "io",
        """
def read_manifest():
    path = os.path.join(HERE, "manifest-%d" % RANK)
    os.mkfifo(path)
    file = os.open(path, os.O_RDWR)
    return os.read(file, 4096)
""",
    ),
    Kind(
        "pipe",
        "io",
        """
def read_counts():
    reader, writer = os.pipe()
    return os.read(reader, 1)
""",
        sites=("data", "save"),
    ),
    Kind(
        "socket",
        "io",
        """
def download():
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    return client.recv(1024)
""",
        sites=("data", "log"),
    ),
    Kind(
        "http",
        "io",
        """
def fetch_config():
    server = socket.create_server(("127.0.0.1", 0))
    address = "http://127.0.0.1:%d/config" % server.getsockname()[1]
    return urllib.request.urlopen(address).read()
""",
        times=1,
    ),
    Kind(
        "full_pipe",
        "io",
        """
def send_metrics():
    reader, writer = os.pipe()
    with open(writer, "wb") as file:
        file.write(bytes(1000000))
""",
        sites=("log",),
    ),
    Kind(
        "accept",
        "io",
        """
def wait_for_worker():
    server = socket.create_server(("127.0.0.1", 0))
    return server.accept()
""",
        times=1,
    ),
    Kind(
        "select",
        "io",
        """
def poll_server():
    reader, writer = os.pipe()
    return select.select([reader], [], [])
""",
        times=1,
    ),
    Kind(
        "sqlite",
        "io",
        """
def write_row():
    path = os.path.join(HERE, "runs.db")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    mine = sqlite3.connect(path, isolation_level=None, timeout=9999)
    mine.execute("BEGIN EXCLUSIVE")
""",
        sites=("log",),
        times=1,
    ),
    Kind(
        "terminal",
        "io",
        """
def ask():
    ours, theirs = os.openpty()
    return os.read(theirs, 1)
""",
        sites=("save",),
        times=1,
    ),
    Kind(
        "fifo_all",
        "io",
        """
def read_index():
    path = os.path.join(HERE, "index-%d" % RANK)
    os.mkfifo(path)
    with open(path, "rb") as file:
        return file.read()
""",
        who="all",
        certainty=("sure", "likely", "unsure"),
    ),
    Kind(
        "fifo_two",
        "io",
        """
def read_pair():
    path = os.path.join(HERE, "pair-%d" % RANK)
    os.mkfifo(path)
    with open(path, "rb") as file:
        return file.read()
""",
        who="two",
    ),
    Kind(
        "late_start",
        "io",
        """
def load_weights():
    path = os.path.join(HERE, "weights-%d" % RANK)
    os.mkfifo(path)
    with open(path, "rb") as file:
        return file.read()
""",
        who="some",
        sites=("start",),
        bare="never",
    ),
)

KINDS = (*_CODE, *_IO)
