"""A rank waits for a lock; builds, and lock files that somebody or nobody holds."""

from __future__ import annotations

from tests.faultpool.kind import Kind

_HOLD = """
def hold(path, kind):
    ready, told = os.pipe()
    if os.fork() == 0:
        file = open(path, "w")
        kind(file, fcntl.LOCK_EX)
        os.write(told, b"x")
        time.sleep(9999)
        os._exit(0)
    os.read(ready, 1)
"""

_LOCKS = (
    Kind(
        "lock_self",
        "lock",
        """
def register():
    lock = threading.Lock()
    with lock:
        lock.acquire()
""",
    ),
    Kind(
        "lock_thread",
        "lock",
        """
def enqueue():
    lock, held = threading.Lock(), threading.Event()

    def upload():
        with lock:
            held.set()
            time.sleep(9999)

    threading.Thread(target=upload, daemon=True).start()
    held.wait()
    with lock:
        pass
""",
        places=("enqueue", "upload"),
    ),
    Kind(
        "deadlock",
        "lock",
        """
def swap():
    one, two, held = threading.Lock(), threading.Lock(), threading.Event()

    def back():
        with two:
            held.set()
            with one:
                pass

    with one:
        threading.Thread(target=back, daemon=True).start()
        held.wait()
        with two:
            pass
""",
        places=("swap", "back"),
        times=1,
    ),
    Kind(
        "event",
        "lock",
        """
def wait_ready():
    threading.Event().wait()
""",
        sites=("data", "save"),
    ),
    Kind(
        "queue",
        "lock",
        """
def next_item():
    return queue.Queue().get()
""",
        times=1,
    ),
    Kind(
        "semaphore",
        "lock",
        """
def take_slot():
    multiprocessing.Semaphore(0).acquire()
""",
        times=1,
    ),
    Kind(
        "flock",
        "lock",
        """
def lock_cache():
    path = os.path.join(HERE, "cache.lock")
    hold(path, fcntl.flock)
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
"""
        + _HOLD,
    ),
    Kind(
        "lockf",
        "lock",
        """
def lock_index():
    path = os.path.join(HERE, "index.lock")
    hold(path, fcntl.lockf)
    with open(path, "r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
"""
        + _HOLD,
        times=1,
    ),
    Kind(
        "flock_of_rank",
        "lock",
        """
def lock_tokens():
    file = open(os.path.join(HERE, "tokens.lock"), "a")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file
""",
        call="lock_tokens()",
        setup="""
if RANK == (FIRST + 1) % WORLD:
    kept = lock_tokens()
""",
        sites=("data",),
        times=1,
    ),
    Kind(
        "filelock",
        "lock",
        """
def download_once():
    path = os.path.join(HERE, "model.lock")
    hold(path, fcntl.flock)
    filelock.FileLock(path).acquire()
"""
        + _HOLD,
        times=1,
    ),
    Kind(
        "logging",
        "lock",
        """
def report():
    handler, held = logging.StreamHandler(), threading.Event()

    def flush():
        with handler.lock:
            held.set()
            time.sleep(9999)

    threading.Thread(target=flush, daemon=True).start()
    held.wait()
    handler.handle(logging.makeLogRecord({"msg": "step"}))
""",
        places=("report", "flush"),
        sites=("log",),
        times=1,
    ),
    Kind(
        "stale_one",
        "stale",
        """
def wait_lock():
    path = os.path.join(HERE, "dataset.lock")
    open(path, "w").close()
    while os.path.exists(path):
        time.sleep(0.1)
""",
    ),
    Kind(
        "stale_all",
        "stale",
        """
def wait_for_lock():
    path = os.path.join(HERE, "vocab.lock")
    open(path, "w").close()
    while os.path.exists(path):
        time.sleep(0.1)
""",
        who="all",
        certainty=("sure", "likely", "unsure"),
    ),
    Kind(
        "stale_baton",
        "stale",
        """
def load_op():
    path = os.path.join(HERE, "lock")
    open(path, "w").close()
    torch.utils.file_baton.FileBaton(path).wait()
""",
        who="all",
        bare="never",
        certainty=("sure", "likely", "unsure"),
    ),
    Kind(
        "stale_baton_one",
        "stale",
        """
def load_kernel():
    path = os.path.join(HERE, "lock-%d" % RANK)
    open(path, "w").close()
    torch.utils.file_baton.FileBaton(path).wait()
""",
        bare="never",
        times=1,
    ),
)

_BUILD = """
def load_ops():
    baton = torch.utils.file_baton.FileBaton(os.path.join(HERE, "ops.lock"))
    if RANK != FIRST:
        while not os.path.exists(baton.lock_file_path):
            time.sleep(0.01)
        baton.wait()
    elif baton.try_acquire():
        compile_ops()
        baton.release()

def compile_ops():
    subprocess.run(["sh", "-c", "sleep 9999; true"])
"""

_BUILDS = (
    Kind("build", "build", _BUILD, others="load_ops()", places=("compile_ops", "load_ops"), bare="never"),
    Kind(
        "build_pipe",
        "build",
        _BUILD.replace('subprocess.run(["sh"', 'subprocess.check_output(["sh"'),
        others="load_ops()",
        places=("compile_ops", "load_ops"),
        bare="never",
        sites=("start", "data"),
        times=1,
    ),
    Kind(
        "build_locked",
        "build",
        """
def build_vocab():
    with filelock.FileLock(os.path.join(HERE, "vocab.lock")):
        if RANK == FIRST:
            merge_counts()

def merge_counts():
    open(os.path.join(HERE, "merging"), "w").close()
    reader, writer = os.pipe()
    os.read(reader, 1)

def after_first():
    while not os.path.exists(os.path.join(HERE, "merging")):
        time.sleep(0.01)
    build_vocab()
""",
        others="after_first()",
        places=("merge_counts",),
        times=1,
    ),
)

KINDS = (*_LOCKS, *_BUILDS)
