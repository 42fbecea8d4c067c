"""Options that several commands have, and how their values are read."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Alphabet",
    "Convention",
    "Coverage",
    "DatasetArgument",
    "DebugOption",
    "EpisodesOption",
    "ExcludeOption",
    "JsonOption",
    "Mode",
    "NaN",
    "Normalized",
    "Per",
    "RevisionOption",
    "ScalesOption",
    "Tail",
    "ThreadsOption",
    "Ties",
    "VocabSizesOption",
    "ids_of",
    "names_of",
    "numbers_of",
    "options_of",
]

MAX_IDS = 10_000_000


class Ties(str, Enum):
    """Values of ``--ties``."""

    right = "right"
    mid = "mid"


class NaN(str, Enum):
    """Values of ``--nan``."""

    skip = "skip"
    error = "error"


class Coverage(str, Enum):
    """Values of ``--coverage``."""

    sample = "sample"
    all = "all"


class Alphabet(str, Enum):
    """Values of ``--alphabet``."""

    bytes = "bytes"
    symbols = "symbols"


class Per(str, Enum):
    """Values of ``--per``."""

    episode = "episode"
    frame = "frame"
    task = "task"


class Tail(str, Enum):
    """Values of ``--tail``."""

    exclude = "exclude"
    clamp = "clamp"


class Convention(str, Enum):
    """Values of ``--convention``."""

    pi052 = "pi052"
    lerobot = "lerobot"
    lerobot_train_tokenizer = "lerobot-train-tokenizer"
    openpi = "openpi"
    opentau = "opentau"


class Mode(str, Enum):
    """Values of ``--normalization-mode``."""

    QUANTILES = "QUANTILES"
    QUANTILE10 = "QUANTILE10"
    MIN_MAX = "MIN_MAX"
    MEAN_STD = "MEAN_STD"
    IDENTITY = "IDENTITY"


class Normalized(str, Enum):
    """Values of ``--normalization``."""

    auto = "auto"
    stored = "stored"
    sample = "sample"
    none = "none"


DatasetArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATASET",
        help="Folder of a LeRobot dataset (v2.0, v2.1, v3.0), or its id on the Hub: org/name.",
    ),
]
RevisionOption = Annotated[
    str | None, typer.Option(metavar="REV", help="Branch, tag or commit of a dataset on the Hub.")
]
EpisodesOption = Annotated[
    str | None,
    typer.Option(metavar="IDS", help="Only these, such as 0:100,105 for 0 to 99 and 105."),
]
ExcludeOption = Annotated[
    str | None, typer.Option(metavar="IDS", help="None of these, whatever --episodes says.")
]
ScalesOption = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Scales that --advise looks at. Default: 5,10,20,50,100."),
]
VocabSizesOption = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Vocabularies that --advise looks at. Default: 256,512,1024,2048,4096.",
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Bound on threads that read. Default: VLAPREP_NUM_THREADS, or all."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout, and no tables.")
]
DebugOption = Annotated[
    bool, typer.Option("--debug", envvar="VLAPREP_DEBUG", help="Show where an error comes from.")
]


def ids_of(text: str | None) -> list[int] | None:
    """Read ids and half-open ranges, as the splits in ``meta/info.json`` write them."""
    if text is None:
        return None
    ids: set[int] = set()
    for part in text.strip("[] ").split(","):
        begin, colon, end = (piece.strip() for piece in part.partition(":"))
        if not begin.isdecimal() or (colon and not end.isdecimal()):
            raise typer.BadParameter(f"{part!r} is neither an id nor a range such as 0:100")
        chosen = range(int(begin), int(end) if colon else int(begin) + 1)
        if not 0 < len(chosen) <= MAX_IDS:
            raise typer.BadParameter(f"{part!r} names {len(chosen)} episodes")
        ids.update(chosen)
    return sorted(ids)


def names_of(text: str | None) -> list[str] | None:
    """Read names, indices and ranges with commas between them; an empty text names none."""
    if text is None:
        return None
    return [part.strip() for part in text.split(",")] if text.strip() else []


def numbers_of(text: str | None, kind: type[float]) -> list[float] | None:
    """Read numbers with commas between them."""
    if text is None:
        return None
    try:
        return [kind(part) for part in text.strip("[] ").split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list such as 5,10,20") from None


def options_of(names: Iterable[str]) -> str:
    """Spell arguments of Python as options, with commas between them."""
    return ", ".join("--" + name.replace("_", "-") for name in names)
