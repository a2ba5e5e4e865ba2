"""Begins the probe in each Python started below a wrapper, and hands over to the user's own sitecustomize.

Whatever brought it here is undone at once: environment, ``sys.path`` and all that the program starts in its
turn are those without it. What stays is a finder that finds nothing: it notices when torch was imported, and
then ``hooks`` arm. It wraps nothing, so that no traceback of the program ever has a line of ours.

Any Python must be able to parse this, the oldest too, or it would complain on the program's stderr.
"""
# mypy: allow-untyped-defs, allow-untyped-calls

import os
import sys

OLDEST = (3, 8)


def _begin(here):
    said = os.environ.pop("COCKPIT_PROBE", "").split()
    rings = os.environ.pop("COCKPIT_RINGS", "")
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
        finders.insert(0, _Lookout(here, settings))


class _Lookout(object):  # noqa: UP004
    """A finder that finds nothing: it looks what has been imported meanwhile.

    :param settings: of the hooks; None: this is no rank, and it goes away
    """

    def __init__(self, here, settings):
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
            if name == "torch" and self._waits:
                self._call("before_torch")
            for waited in tuple(self._waits):
                module = sys.modules.get(waited)
                spec = getattr(module, "__spec__", None)
                done = module is not None and not getattr(spec, "_initializing", False)
                if done and self._waits.pop(waited, False):  # for one thread alone
                    self._call("after", module)
            if not self._waits and name != __name__:  # not while we hand over
                sys.meta_path.remove(self)
        except Exception:
            # hooks.py is gone with its folder, or another thread has removed us.
            self._waits = {}

    def _call(self, what, *arguments):
        if os.getpid() != self._pid:
            return  # a child that was forked before torch was imported is no rank
        if self._hooks is None:
            source = os.path.join(self._here, "hooks.py")
            with open(source, "rb") as file:
                code = compile(file.read(), source, "exec")
            # It is no module: sys.modules is the program's.
            space = {"__name__": "cockpit_probe", "__file__": source}
            exec(code, space)
            self._hooks = space["Hooks"](*self._settings)  # type: ignore[operator]
        getattr(self._hooks, what)(*arguments)


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
