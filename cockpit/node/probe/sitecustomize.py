"""Begins the probe in each Python started below a wrapper, and hands over to the user's own sitecustomize.

Whatever brought it here is undone at once: environment, ``sys.path`` and all that the program starts in its
turn are those without it. What stays is a finder that finds nothing: it notices that torch is being imported,
and ``hooks`` arm when that has ended. It wraps nothing, so that no traceback of an import has a line of ours.

Any Python must be able to parse this, the oldest too, or it would complain on the program's stderr.
"""
# mypy: allow-untyped-defs, allow-untyped-calls

import os
import sys

OLDEST = (3, 8)


def _begin(here):
    said = os.environ.pop("COCKPIT_PROBE", "").split()
    rings = os.environ.pop("COCKPIT_RINGS", "")
    packages = os.environ.pop("COCKPIT_CALLS", "")
    window = os.environ.pop("COCKPIT_WINDOW", "")
    # Also where PYTHONPATH alone was passed on, or we would find ourselves when we hand over.
    places = [place for place in os.environ.get("PYTHONPATH", "").split(":") if place != here]
    if places or said[2:] == ["1"]:
        os.environ["PYTHONPATH"] = ":".join(places)
    else:
        os.environ.pop("PYTHONPATH", None)
    sys.path[:] = [place for place in sys.path if place != here]
    sys.path_importer_cache.pop(here, None)
    if sys.version_info >= OLDEST:
        probes = len(said) == 3 and said[1].isdigit()
        settings = (os.path.dirname(here), said[0], int(said[1]), rings) if probes else None
        finders = sys.meta_path  # type: list[object]  # type: ignore[assignment]
        finders.insert(0, _Lookout(here, settings, window))
        if settings and packages and rings:
            _note_calls(here, settings[2], rings, packages.split(","))


def _note_calls(here, rank, rings, packages):
    """Note calls into packages; what keeps it from that is in the same file, if there is one."""
    try:
        path = os.path.join(rings, "%d.%d.calls" % (rank, os.getpid()))
        _read(here, "calls.py")["arm"](path, rank, packages)
    except Exception as error:
        if interrupted(error):
            raise


def _read(here, name):
    """What a file beside this one defines. It is no module: sys.modules is the program's."""
    source = os.path.join(here, name)
    with open(source, "rb") as file:
        code = compile(file.read(), source, "exec")
    space = {"__name__": "cockpit_probe", "__file__": source}
    exec(code, space)
    return space


class _Lookout(object):  # noqa: UP004
    """A finder that finds nothing: it looks what has been imported meanwhile.

    :param settings: of the hooks; None: this is no rank, and it goes away
    :param window: see ``windows.py``
    """

    def __init__(self, here, settings, window=""):
        self._window = window
        self._here = here
        self._settings = settings
        self._hooks = None
        self._waits = {"torch": True, "deepspeed.runtime.engine": True} if settings else {}
        self._pid = os.getpid()

    def find_spec(self, name, path=None, target=None):
        """Nothing; called at each import of a module that is not there yet."""
        try:
            if _left_behind:
                _drop()
            if name == "torch" and name in self._waits:
                self._call("before_torch")
            for waited in tuple(self._waits):
                self._look(waited)
            if not self._waits and name != __name__ and self in sys.meta_path:  # not while we hand over
                sys.meta_path.remove(self)
        except Exception as error:
            if interrupted(error):
                raise
            self._give_up(error)

    def _look(self, waited):
        module = sys.modules.get(waited)
        if module is None or type(module).__name__ == "_LazyModule":
            return  # to ask a lazy one for anything would import it
        spec = getattr(module, "__spec__", None)
        if getattr(spec, "_initializing", False):
            _at_end(spec, lambda: self._ended(waited))
        else:
            self._arrived(waited, module)

    def _ended(self, waited):
        """Its import has ended."""
        try:
            module = sys.modules.get(waited)
            if module is not None:  # else it failed, and may be tried again
                self._arrived(waited, module)
        except Exception as error:
            if interrupted(error):
                raise
            self._give_up(error)

    def _arrived(self, waited, module):
        if not self._waits.pop(waited, False):
            return  # another thread does it
        try:
            self._call("after", module)
        except BaseException:
            self._waits[waited] = True
            raise

    def _call(self, what, *arguments):
        if os.getpid() != self._pid:
            return  # a child that was forked before torch was imported is no rank
        if self._hooks is None:
            hooks = _read(self._here, "hooks.py")["Hooks"]
            self._hooks = hooks(*self._settings, interrupted=interrupted, window=self._window)
        getattr(self._hooks, what)(*arguments)

    def _give_up(self, error):
        """Leave, and say why where the hooks would have said how they are; their folder may be gone."""
        self._waits = {}
        if self._settings is None or os.getpid() != self._pid:
            return
        why = "the probe failed: %s: %s" % (type(error).__name__, error)
        why = "".join(each if " " <= each <= "~" and each not in '"\\' else "?" for each in why[:300])
        path = os.path.join(self._settings[0], "%d.%d.json" % (self._settings[2], self._pid))
        text = '{"rank": %d, "pid": %d, "server": "%s", "steps": "%s"}'
        try:
            if not os.path.exists(path):
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(path + ".tmp", flags, 0o600), "w") as file:
                    file.write(text % (self._settings[2], self._pid, why, why))
                os.rename(path + ".tmp", path)
        except OSError:
            pass


def _at_end(spec, do):
    """Call something when the import of a module ends, with or without success.

    The import system then takes a mark off the module's spec. Until then the spec is of a class of ours, like
    its own in all else: if we wrapped the loader, the module would see it, and so would its tracebacks.
    """
    plain = type(spec)
    if plain is not type(sys.__spec__):
        return  # it is of our class already, or of one of the program's

    def set_attribute(spec, name, value):
        if name != "_initializing" or value:
            plain.__setattr__(spec, name, value)
            return
        spec.__class__ = plain
        spec._initializing = value
        do()

    members = {"__setattr__": set_attribute, "__module__": plain.__module__}
    spec.__class__ = type(plain.__name__, (plain,), members)


def interrupted(error):
    """Whether code of the program's that ran in the middle of ours has raised it, such as a signal's handler.

    What interrupts is handed the frame that it interrupts; a handler may have dropped it again.
    """
    import _signal  # type: ignore[import-not-found]

    handlers = [_signal.getsignal(number) for number in range(1, _signal.NSIG)]
    codes = [getattr(getattr(each, "__func__", each), "__code__", each) for each in handlers]
    trace = error.__traceback__
    while trace is not None:
        frame, before = trace.tb_frame, trace.tb_frame.f_back
        given = list(frame.f_locals.values())
        for value in tuple(given):
            given.extend(value if type(value) is tuple else ())
        if any(frame.f_code is code for code in codes) or any(value is before for value in given if before):
            return True
        trace = trace.tb_next
    return False


_left_behind = []  # type: list[object]


def _drop():
    """Leave ``sys.modules``, where import must find us for as long as it imports us."""
    if sys.modules.get(__name__) is _left_behind.pop():
        del sys.modules[__name__]


def _hand_over():
    ours = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if getattr(error, "name", None) != __name__ and str(error) != "No module named " + __name__:
            raise
        sys.modules[__name__] = ours
        _left_behind.append(ours)


if __name__ == "sitecustomize":
    _begin(os.path.dirname(__file__))
    _hand_over()
