"""What a value in a file that a person writes may be, and all that is wrong in one; pydantic checks it.

Importing this takes a tenth of a second: only who has such a file does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    ValidationError,
    WrapValidator,
    create_model,
)
from pydantic_core import PydanticCustomError

from cockpit.errors import CockpitError, near_or_all

Table = type[BaseModel]
"""What may be in a table of TOML."""


def must_be(words: str) -> WrapValidator:
    """The words that say what fits, for a type annotated with them."""

    def fits(value: object, check: Any) -> object:
        try:
            return check(value)
        except Exception:  # what Textual raises for a colour is no ValueError
            raise PydanticCustomError("unfit", words) from None

    return WrapValidator(fits)


Flag = Annotated[StrictBool, must_be("true or false")]
FlagOrAuto = Annotated[StrictBool | Literal["auto"], must_be('true, false or "auto"')]
Name = Annotated[StrictStr, must_be("the name of a theme")]
Command = Annotated[StrictStr, must_be("a command, as one would type it")]
Group = Annotated[StrictStr, must_be("the name of a group")]
Keys = Annotated[StrictStr, must_be('a text like "x,ctrl+x"')]
Whole = Annotated[int, Field(strict=True, ge=0, lt=1 << 62), must_be("a whole number from 0 on")]
Seconds = Annotated[float, Field(strict=True, gt=0, lt=1e9), must_be("a number of seconds")]
SecondsOrNever = Annotated[float, Field(strict=True, ge=0, lt=1e9), must_be("a number of seconds, or 0")]
OnHang = Annotated[Literal["note", "stop"], must_be('"note" or "stop"')]
Units = Annotated[Literal["binary", "decimal"], must_be('"binary" or "decimal"')]
Lang = Annotated[Literal["", "en", "zh"], must_be('"en", "zh", or "" for that of the locale')]
Percent = Annotated[float, Field(strict=True, ge=0, le=100), must_be("a number from 0 to 100")]


SHOWN = 20
"""Mistakes of one file that are said."""


def table(keys: Mapping[str, Any]) -> Table:
    """A table with some of these keys.

    :param keys: what each is: a table, a type annotated with :func:`must_be`, or a name in this module
    """
    fields: dict[str, Any] = {name: (of, None) for name, of in keys.items()}
    return create_model("Table", __config__=ConfigDict(extra="forbid"), __module__=__name__, **fields)


def mistakes(data: Mapping[str, Any], top: Table, where: str, see: str) -> Iterator[CockpitError]:
    """All that is wrong with a file's data, in its order.

    :param where: the file
    :param see: where it says what may be in it
    """
    try:
        top.model_validate(data)
    except ValidationError as error:
        place = {name: number for number, name in enumerate(data)}
        found = sorted(error.errors(include_url=False), key=lambda one: place[str(one["loc"][0])])
        if len(found) > SHOWN:
            yield CockpitError(f"{len(found)} keys are wrong; the first {SHOWN}:", where=where)
        for one in found[:SHOWN]:
            *above, name = map(str, one["loc"])
            if one["type"] == "extra_forbidden":
                known: Any = top.model_fields[above[0]].annotation if above else top
                what, hint = "unknown", near_or_all(name, known.model_fields)
            else:
                must = one["msg"] if one["type"] == "unfit" else f"a table: [{name}]"
                what, hint = f"must be {must}, not {_shown(one['input'])}", see
            yield CockpitError(f"key {'.'.join((*above, name))!r}: {what}", where=where, hint=hint)


def _shown(value: object) -> str:
    """A value as in TOML, enough of it for a person to find it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "a table" if isinstance(value, dict) else repr(value)[:200]
