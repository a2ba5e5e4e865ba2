"""Nobody is to blame, though some wait long; or a rank is slow, and steps go on."""

from __future__ import annotations

from functools import partial

from tests.faultpool.kind import Kind

_slow = partial(
    Kind, family="slow", state="slow", every=True, silence="without", certainty=("likely", "unsure")
)
_healthy = partial(Kind, family="healthy", state="healthy")

_BURN = """
def burn(seconds):
    until, found = time.monotonic() + seconds, 1
    while time.monotonic() < until:
        found = sum(n * n for n in range(found % 50 + 300))
"""

_SLOW = (
    _slow(
        "slow_data",
        code="""
def read_slowly():
    time.sleep(0.6)
""",
        sites=("data",),
    ),
    _slow(
        "slow_forward",
        code="""
def attend():
    burn(0.5)
"""
        + _BURN,
        places=("attend", "burn", "<genexpr>"),
        sites=("forward",),
    ),
    _slow(
        "slow_disk",
        code="""
def write_state():
    with open(os.path.join(HERE, "state-%d" % RANK), "wb") as file:
        for part in range(30):
            file.write(bytes(65536))
            os.fsync(file.fileno())
            time.sleep(0.02)
""",
        sites=("save",),
        times=1,
    ),
    _slow(
        "very_slow",
        code="""
def read_far():
    time.sleep(3)
""",
        sites=("data", "log"),
        certainty=("likely", "unsure"),
    ),
    _slow(
        "throttled",
        code="""
def cool_down():
    rank = os.getpid()
    if os.fork() == 0:
        while True:
            os.kill(rank, signal.SIGSTOP)
            time.sleep(0.3)
            os.kill(rank, signal.SIGCONT)
            time.sleep(0.1)
""",
        places=("",),
        every=False,
    ),
)

_BUILD_BUSY = """
def load_ops():
    baton = torch.utils.file_baton.FileBaton(os.path.join(HERE, "ops.lock"))
    if RANK != FIRST:
        while not os.path.exists(baton.lock_file_path):
            time.sleep(0.01)
        baton.wait()
    elif baton.try_acquire():
        subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 20: pass"])
        baton.release()
"""

_HEALTHY = (
    _healthy("train", call="pass", times=3),
    _healthy("train_ddp", call="pass", body="ddp", bare="never", times=1),
    _healthy("train_zero3", call="pass", body="zero3", bare="never", launchers=("deepspeed",), times=1),
    _healthy("pipeline", call="pass", waits=("pipeline",), bare="never", times=2),
    _healthy(
        "checkpoint",
        code="""
def write_model():
    with open(os.path.join(HERE, "model.pt"), "wb") as file:
        for part in range(600):
            file.write(bytes(65536))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.02)
""",
        who="zero",
        sites=("save",),
    ),
    _healthy(
        "checkpoint_all",
        code="""
def write_part():
    with open(os.path.join(HERE, "part-%d.pt" % RANK), "wb") as file:
        for part in range(600):
            file.write(bytes(65536))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.02)
""",
        who="all",
        sites=("save",),
        times=1,
    ),
    _healthy("evaluate", code="def evaluate():\n    burn(14)\n" + _BURN, who="zero", sites=("log",)),
    _healthy("evaluate_all", code="def score():\n    burn(14)\n" + _BURN, who="all", sites=("log",), times=1),
    _healthy(
        "log_zero",
        code="""
def write_events():
    with open(os.path.join(HERE, "events"), "ab") as file:
        for part in range(20):
            file.write(bytes(4096))
            os.fsync(file.fileno())
            time.sleep(0.01)
""",
        who="zero",
        every=True,
        sites=("log",),
    ),
    _healthy("build_busy", code=_BUILD_BUSY, others="load_ops()", sites=("start", "data"), bare="never"),
    _healthy(
        "compile_all", code="def lower():\n    burn(14)\n" + _BURN, who="all", sites=("forward",), times=1
    ),
    _healthy(
        "serve",
        code="""
def serve():
    server = socket.create_server(("127.0.0.1", 0))
    while True:
        client, address = server.accept()
""",
        who="zero",
        sites=("first",),
        times=1,
    ),
    _healthy(
        "serve_http",
        code="""
def serve_requests():
    http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler).serve_forever()
""",
        who="zero",
        sites=("first",),
        times=1,
    ),
    _healthy(
        "serve_all",
        code="""
def answer():
    http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler).serve_forever()
""",
        who="all",
        sites=("first",),
        bare="only",
        times=1,
    ),
    _healthy("first_step", code="def trace():\n    burn(14)\n" + _BURN, who="all", sites=("first",)),
    _healthy(
        "download",
        code="""
def download_model():
    here, there = socket.socketpair()

    def send():
        for part in range(600):
            there.send(bytes(1000))
            time.sleep(0.03)

    threading.Thread(target=send, daemon=True).start()
    while here.recv(4096):
        pass
""",
        who="zero",
        sites=("first",),
    ),
    _healthy(
        "tokenize", code="def tokenize_all():\n    burn(14)\n" + _BURN, who="zero", sites=("first",), times=1
    ),
    _healthy(
        "evaluate_gently",
        code="""
def evaluate_gently():
    until = time.monotonic() + 25
    while time.monotonic() < until:
        sum(n * n for n in range(5000))
        time.sleep(0.02)
""",
        who="zero",
        sites=("log",),
        like_hang=True,  # as a rank that asks again and again for what never comes
    ),
    _healthy(
        "upload",
        code="""
def upload():
    here, there = socket.socketpair()
    threading.Timer(25, there.send, (b"done",)).start()
    here.recv(4)
""",
        who="zero",
        sites=("save", "first"),
        like_hang=True,
    ),
    _healthy(
        "rest",
        code="""
def rest():
    time.sleep(25)
""",
        who="zero",
        sites=("log", "start"),
        like_hang=True,
    ),
    _healthy(
        "await_file",
        code="""
def await_file():
    path = os.path.join(HERE, "ready")
    threading.Timer(25, lambda: open(path, "w").close()).start()
    while not os.path.exists(path):
        time.sleep(0.1)
""",
        who="zero",
        sites=("data",),
        like_hang=True,
    ),
    _healthy(
        "compile_beside",
        code="""
def compile_beside():
    code = "import time\\nwhile time.process_time() < 20: pass"
    beside = threading.Thread(target=subprocess.run, args=([sys.executable, "-c", code],))
    beside.start()
    beside.join()
""",
        who="zero",
        sites=("forward", "first"),
    ),
    _healthy(
        "compile_in_c",
        code="""
def compile_in_c():
    code = "import time\\nwhile time.process_time() < 20: pass"
    ctypes.CDLL(None).system(("exec '%s' -c '%s'" % (sys.executable, code)).encode())
""",
        who="zero",
        sites=("forward",),
        times=1,
    ),
    _healthy(
        "throttled_deep",
        code="""
def cool_down():
    rank = os.getpid()
    if os.fork() == 0:
        while True:
            os.kill(rank, signal.SIGSTOP)
            time.sleep(3)
            os.kill(rank, signal.SIGCONT)
            time.sleep(0.2)
""",
        who="zero",
        sites=("data",),
        like_hang=True,
    ),
    _healthy("accumulate", call="pass", pause_s=2.0, times=1),
    _healthy(
        "uneven",
        code="""
def read_some():
    time.sleep(random.random())
""",
        who="all",
        every=True,
        sites=("data",),
    ),
    _healthy("over", call="sys.exit(0)", who="all", sites=("data",), bare_waits=("files",), times=1),
)

KINDS = (*_SLOW, *_HEALTHY)
