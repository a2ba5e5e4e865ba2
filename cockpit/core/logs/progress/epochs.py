"""Whether the steps that a log counts are those of an epoch, and how many of the run are left."""

from __future__ import annotations

from collections.abc import Mapping

NEAR_END = 0.9
"""A count that begins again from beyond this share of its total was over: the next epoch counts anew."""
NEXT = 0.1
"""A count that goes on in the next epoch does so by less than this share of its total."""


class Epochs:
    """What one log says about epochs.

    A log that names an epoch may count the steps of it, or those of the run. What the count does from epoch
    to epoch tells which; until then a log that says how many epochs there will be counts those of one.
    """

    __slots__ = ("_before", "_of_epoch", "_of_run", "_zero")

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._of_epoch = False
        self._of_run = False
        self._zero = False  # epochs are counted from 0

    def take(self, said: Mapping[str, float], count: int | None) -> None:
        """Take in what was said at once.

        :param count: how many epochs there will be, if that was said too
        """
        epoch = said.get("epoch")
        if epoch is not None and epoch != int(epoch):
            self._of_run = True
        if "step" not in said or "total" not in said:
            return
        before, new = self._before, {**self._before, **said}
        self._before = new if count is None else {**new, "epochs": count}
        self._zero = self._zero or epoch == 0
        if before.get("total") != said["total"]:
            return
        done = said["step"] - before["step"]
        if done < 0 and before["step"] >= NEAR_END * said["total"]:
            self._of_epoch = True
        elif epoch is not None and epoch == before.get("epoch", epoch) + 1:
            self._of_epoch = self._of_epoch or done < 0
            self._of_run = self._of_run or 0 <= done < NEXT * said["total"]

    def of_run(self, step: int, total: int) -> tuple[int, int] | None:
        """The last step and the total of a log as those of the run; None: not known."""
        epoch, epochs = self._before.get("epoch"), self._before.get("epochs")
        if not self._of_epoch and (self._of_run or epoch is None):
            return step, total
        if epoch is None or epochs is None or epochs < epoch:
            return None
        over = int(epoch) - (not self._zero)
        return max(0, over) * total + step, int(epochs) * total

    @property
    def several(self) -> bool:
        """Whether what is said of the time left may be that of an epoch."""
        return self._of_epoch or (not self._of_run and "epoch" in self._before)
