"""Loaders, threads, children, debuggers, signals, and the GIL kept in C."""

from __future__ import annotations

from tests.faultpool.kind import Kind

_LOADERS = (
    Kind(
        "worker_stuck",
        "loader",
        """
def next_batch():
    return next(iter(torch.utils.data.DataLoader(Shards(), num_workers=1)))

class Shards(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, number):
        time.sleep(9999)
""",
        places=("next_batch", "__getitem__"),
        sites=("data",),
        bare="never",
    ),
    Kind(
        "worker_stopped",
        "loader",
        """
def next_sample():
    return next(iter(torch.utils.data.DataLoader(Samples(), num_workers=1)))

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, number):
        os.kill(os.getpid(), signal.SIGSTOP)
        return number
""",
        places=("next_sample", "__getitem__"),
        sites=("data",),
        bare="never",
    ),
    Kind(
        "loader_all",
        "loader",
        """
def next_chunk():
    return next(iter(torch.utils.data.DataLoader(Chunks(), num_workers=1)))

class Chunks(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, number):
        reader, writer = os.pipe()
        return os.read(reader, 1)
""",
        places=("next_chunk", "__getitem__"),
        who="all",
        sites=("data",),
        bare="never",
        certainty=("sure", "likely", "unsure"),
        times=1,
    ),
    Kind(
        "worker_dead",
        "loader",
        """
def next_tokens():
    tokens = multiprocessing.Queue()
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(9999,), daemon=True)
    worker.start()
    os.kill(worker.pid, signal.SIGKILL)
    return tokens.get()
""",
        sites=("data",),
    ),
    Kind(
        "pool_dead",
        "loader",
        """
def tokenize_all():
    pool = multiprocessing.get_context("fork").Pool(1)
    return pool.apply(leave)

def leave():
    os._exit(1)
""",
        sites=("data",),
        times=1,
    ),
    Kind(
        "child_silent",
        "loader",
        """
def receive():
    here, there = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(9999,), daemon=True).start()
    return here.recv()
""",
        sites=("data",),
        times=1,
    ),
)

_THREADS = (
    Kind(
        "join",
        "thread",
        """
def drain():
    reader, writer = os.pipe()
    thread = threading.Thread(target=upload, args=(reader,))
    thread.start()
    thread.join()

def upload(reader):
    os.read(reader, 1)
""",
        places=("drain", "upload"),
        sites=("log", "save"),
    ),
    Kind(
        "future",
        "thread",
        """
def gather_parts():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(read_part, range(2)))

def read_part(number):
    reader, writer = os.pipe()
    return os.read(reader, 1)
""",
        places=("gather_parts", "read_part"),
        sites=("data",),
        times=1,
    ),
    Kind(
        "in_thread",
        "thread",
        """
def decode():
    reader, writer = os.pipe()
    return os.read(reader, 1)
""",
        sites=("data", "log"),
        body="thread",
    ),
    Kind(
        "under_loop",
        "thread",
        """
def read_frames():
    reader, writer = os.pipe()
    return os.read(reader, 1)
""",
        sites=("data", "log"),
        body="thread_loop",
        bare="never",
    ),
    Kind(
        "under_queue",
        "thread",
        """
def pack_rows():
    threading.Event().wait()
""",
        sites=("data", "log"),
        body="thread_poll",
        bare="never",
    ),
    Kind(
        "under_loop_end",
        "thread",
        call="finish()",
        places=("finish",),
        body="thread_loop",
        bare="never",
        times=1,
    ),
    Kind(
        "under_loop_train", "healthy", call="pass", body="thread_loop", bare="never", times=1, state="healthy"
    ),
)

_CHILDREN = (
    Kind(
        "subprocess",
        "child",
        """
def convert():
    subprocess.run(["sleep", "9999"])
""",
        sites=("data", "save"),
    ),
    Kind(
        "communicate",
        "child",
        """
def count_lines():
    path = os.path.join(HERE, "lines-%d" % RANK)
    os.mkfifo(path)
    return subprocess.check_output(["cat", path])
""",
        times=1,
    ),
    Kind(
        "waitpid",
        "child",
        """
def spawn_helper():
    pid = os.fork()
    if pid == 0:
        time.sleep(9999)
    os.waitpid(pid, 0)
""",
        times=1,
    ),
    Kind(
        "in_child",
        "child",
        """
def read_rows():
    reader, writer = os.pipe()
    return os.read(reader, 1)
""",
        body="child",
        sites=("data", "log"),
    ),
)

_HELD = (
    Kind(
        "debugger",
        "debugger",
        """
def inspect():
    path = os.path.join(HERE, "typed-%d" % RANK)
    os.mkfifo(path)
    debugger = pdb.Pdb(stdin=open(os.open(path, os.O_RDWR)), stdout=sys.stdout)
    debugger.set_trace()
    return None
""",
    ),
    Kind(
        "traced",
        "debugger",
        """
def attach():
    ready, told = os.pipe()
    rank = os.getpid()
    if os.fork() == 0:
        libc = ctypes.CDLL(None)
        libc.ptrace(16, rank, 0, 0)
        time.sleep(9999)
        os._exit(0)
    while True:
        time.sleep(0.01)
""",
        times=1,
    ),
    Kind(
        "stopped",
        "signal",
        """
def pause():
    os.kill(os.getpid(), signal.SIGSTOP)
""",
        sites=("data", "forward", "save"),
        times=3,
    ),
    Kind(
        "stopped_node",
        "signal",
        """
def halt():
    os.kill(os.getpid(), signal.SIGSTOP)
""",
        who="node",
        sites=("data",),
    ),
    Kind(
        "gil",
        "gil",
        """
def decode_image():
    ctypes.PyDLL(None).sleep(9999)
""",
        sites=("data", "forward"),
    ),
    Kind(
        "gil_thread",
        "gil",
        """
def decode_ahead():
    ctypes.PyDLL(None).sleep(9999)
""",
        call="threading.Thread(target=decode_ahead, daemon=True).start()",
        sites=("data",),
    ),
)

KINDS = (*_LOADERS, *_THREADS, *_CHILDREN, *_HELD)
