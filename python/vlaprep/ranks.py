"""Ranks: which process this is, where all meet, and whether all hold the same tokenizer.

Processes of one job are told by what is imported and initialised already, or by the environment;
nothing is imported to find out. Where nodes share no disk each has a cache of its own. A fit gives
the same bytes everywhere, so nothing needs to be copied; `verify_ranks` proves it, before a policy
trains on tokens that mean one thing here and another there.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import re
import socket
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from vlaprep import fit_report
from vlaprep.errors import RanksDisagreeError, TokenizerFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from os import PathLike

__all__ = ["Ranks", "barrier_after", "meet_after", "verify_ranks"]

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")
# torchrun and accelerate first: under srun they number their own processes. Then MPI, as accelerate
# reads it, and SLURM itself.
_RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_DIGEST = re.compile("[0-9a-f]{16,128}")
_MOST_TOLD = 5
"""How many processes, and differences of each, a message names."""


def _no_barrier() -> None:
    """Return at once: there is nobody to wait for, or no way to reach them."""


@dataclass(frozen=True)
class Ranks:
    """Which of several cooperating processes this one is. ``Ranks()`` is a process on its own.

    Parameters
    ----------
    rank : int
        Number of this process, from 0.
    world_size : int
        How many processes there are.
    is_main : bool
        Whether this process writes and warns for all.

    Examples
    --------
    >>> Ranks().is_main
    True
    """

    rank: int = 0
    world_size: int = 1
    is_main: bool = True
    _wait: Callable[[], object] = field(default=_no_barrier, repr=False, compare=False)
    _collect: Callable[[Any], list[Any]] | None = field(default=None, repr=False, compare=False)

    def barrier(self) -> None:
        """Wait until every process is here; a no-op for one process.

        Also a no-op when the ranks are known from environment variables alone: then no collective
        has been set up that one could wait on.
        """
        if self.world_size > 1:
            self._wait()

    def gather(self, thing: Any) -> list[Any] | None:
        """Return what every process gave, by rank; all of them have to call it.

        Parameters
        ----------
        thing : object
            Anything that pickles.

        Returns
        -------
        list or None
            None where the processes cannot reach each other: the ranks are known from environment
            variables alone.

        Examples
        --------
        >>> Ranks().gather("alone")
        ['alone']
        """
        if self.world_size <= 1:
            return [thing]
        return None if self._collect is None else self._collect(thing)

    @classmethod
    def detect(cls, accelerator: Any = None) -> Ranks:
        """Find out from what is given, or already imported and initialised; import nothing.

        Parameters
        ----------
        accelerator : accelerate.Accelerator or Ranks, optional
            Anything with ``num_processes``, ``is_main_process`` and ``wait_for_everyone()``; a
            `Ranks` is returned as it is. Without it the first of these that is in use answers:
            accelerate's process state, ``torch.distributed``, the variables of torchrun and
            accelerate (RANK and WORLD_SIZE), of MPI, of SLURM (SLURM_PROCID and SLURM_NTASKS).

        Returns
        -------
        Ranks
            ``Ranks()`` when nothing says that there are several processes.
        """
        if isinstance(accelerator, Ranks):
            return accelerator
        distributed = _process_group()
        collect = functools.partial(_all_gather, distributed) if distributed else None
        source = accelerator if accelerator is not None else _accelerate_state()
        if source is not None:
            world_size = int(source.num_processes)
            main = world_size <= 1 or bool(source.is_main_process)
            rank = int(getattr(source, "process_index", 0 if main else 1))
            return cls(rank, world_size, main, source.wait_for_everyone, collect)
        if distributed:
            rank, world_size = int(distributed.get_rank()), int(distributed.get_world_size())
            return cls(rank, world_size, rank == 0, distributed.barrier, collect)
        for rank_name, size_name in _RANK_VARIABLES:
            rank_text, size_text = os.environ.get(rank_name, ""), os.environ.get(size_name, "")
            if rank_text.isdecimal() and size_text.isdecimal():
                rank, world_size = int(rank_text), int(size_text)
                return cls(rank, world_size, rank == 0 or world_size <= 1)
        return cls()


def _accelerate_state() -> Any:
    """Return accelerate's process state if it is imported and initialised, else None."""
    module = sys.modules.get("accelerate.state")
    # The constructor would initialise a state that is not there yet, so look before calling it.
    if module is None or not module.PartialState._shared_state:
        return None
    return module.PartialState()


def _process_group() -> Any:
    """Return the module torch.distributed if it is imported and initialised, else None."""
    module = sys.modules.get("torch.distributed")
    return module if module and module.is_available() and module.is_initialized() else None


def _all_gather(distributed: Any, thing: Any) -> list[Any]:
    answers = [None] * int(distributed.get_world_size())
    distributed.all_gather_object(answers, thing)
    return answers


@contextmanager
def barrier_after(ranks: Ranks) -> Iterator[None]:
    """Let all processes meet at the end of a block, once, also when it raises.

    A process that left a barrier out would meet the others in the wrong collective from then on,
    and training would hang much later.

    Parameters
    ----------
    ranks : Ranks
        Who meets.

    Examples
    --------
    >>> with barrier_after(Ranks.detect()):
    ...     answer = 6 * 7
    """
    try:
        yield
    except BaseException:
        try:
            ranks.barrier()
        except Exception as trouble:  # of any kind: what the block raised says more
            logger.warning("the other processes are out of reach: %s", trouble)
        raise
    ranks.barrier()


def meet_after(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make every call of a function end in `barrier_after`.

    The ranks are those that `Ranks.detect` finds, given the argument ``accelerator`` of the call.

    Parameters
    ----------
    call : callable
        A function with a keyword argument ``accelerator``.

    Returns
    -------
    callable
        The same, with a barrier.

    Examples
    --------
    >>> @meet_after
    ... def answer(*, accelerator=None):
    ...     return 42
    >>> answer()
    42
    """

    @functools.wraps(call)
    def meeting(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with barrier_after(Ranks.detect(kwargs.get("accelerator"))):
            return call(*args, **kwargs)

    return meeting


def verify_ranks(folder_or_digest: str | PathLike[str], *, accelerator: Any = None) -> str:
    """Compare a fitted folder over all processes, and return its digest.

    Every process has to call it, as with any collective. One whose folder is absent or broken
    takes part with its error, so none is left waiting.

    Parameters
    ----------
    folder_or_digest : str or path-like
        What `vlaprep.fit_fast_tokenizer` returned here; or a digest, 16 to 128 hexadecimal digits,
        to compare as it is.
    accelerator : optional
        An ``accelerate.Accelerator`` or a `Ranks`. Default: what
        `Ranks.detect` finds.

    Returns
    -------
    str
        SHA-256 over the signature of the fit and the digest of each of its files, the report
        included. It is the same in all processes.

    Raises
    ------
    RanksDisagreeError
        Processes differ, or one of them has no whole folder. It is raised in all of them, and
        names who differs in what.
    TokenizerFormatError
        The folder of this process is absent, or not what its fit wrote.

    Notes
    -----
    Nothing is compared where there is one process; nor where the ranks are known from environment
    variables alone (RANK is set, but no process group is initialised), of which a warning tells.

    The comparison is one ``all_gather_object``. For NCCL torch wants the device of each process set
    before (``torch.cuda.set_device``).

    Examples
    --------
    >>> verify_ranks("0123456789abcdef")  # one process
    '0123456789abcdef'
    """
    ranks = Ranks.detect(accelerator)
    mine: dict[str, Any] = {"host": socket.gethostname()}
    trouble: Exception | None = None
    try:
        mine |= _describe(folder_or_digest)
    except Exception as error:  # of any kind: the others wait for an answer
        mine["error"] = f"{type(error).__name__}: {error}"
        trouble = error
    everyone = ranks.gather(mine)
    if trouble is not None:
        raise trouble
    digest: str = mine["digest"]
    if everyone is None:
        logger.warning(
            "nothing was compared: the environment tells of %d processes, but no process group is "
            "initialised; call verify_ranks after torch.distributed.init_process_group, or compare "
            "the digest of each: %s",
            ranks.world_size,
            digest,
        )
    elif any(other.get("digest") != digest for other in everyone):
        raise RanksDisagreeError(_tell(everyone))
    return digest


def _describe(folder_or_digest: str | PathLike[str]) -> dict[str, Any]:
    """Return the digest of a folder and what it is made of; of a digest, itself."""
    text = os.fspath(folder_or_digest)
    folder = Path(text).expanduser()
    if isinstance(folder_or_digest, str) and _DIGEST.fullmatch(text) and not folder.exists():
        return {"digest": text, "contents": {"digest": text}}
    report = fit_report.read_report(folder)
    signature = report.get("signature")
    defect = fit_report.defect(folder, str(signature))
    if defect is not None:
        raise TokenizerFormatError(
            f"{folder} is no whole tokenizer: {defect}; remove the folder and fit again"
        )
    files = {**report["files"], **_digest_of_report(folder)}
    whole = json.dumps([signature, sorted(files.items())])
    digest = hashlib.sha256(whole.encode()).hexdigest()
    # The report tells why two folders differ, which their digests cannot.
    contents = {**_flatten({key: report[key] for key in report if key != "files"}), **files}
    return {"digest": digest, "contents": contents}


def _digest_of_report(folder: Path) -> dict[str, str]:
    content = (folder / fit_report.REPORT_NAME).read_bytes()
    return {fit_report.REPORT_NAME: hashlib.sha256(content).hexdigest()}


def _flatten(tree: Any, path: str = "") -> dict[str, Any]:
    """Turn nested mappings into one, of dotted names."""
    if not isinstance(tree, dict):
        return {path: tree}
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flatten(value, f"{path}.{key}" if path else key)
    return flat


def _tell(everyone: list[Mapping[str, Any]]) -> str:
    """Say which processes differ from most, and in what."""
    digests = [other.get("digest") for other in everyone]
    whole = Counter(digest for digest in digests if digest is not None)
    common, count = whole.most_common(1)[0]  # of equals, that of the lowest rank
    model = digests.index(common)
    odd = [rank for rank, digest in enumerate(digests) if digest != common]
    told = (
        f"rank {rank} on {everyone[rank]['host']} {_differs(everyone[rank], everyone[model])}"
        for rank in odd
    )
    more = f"; and {len(odd) - _MOST_TOLD} more" if len(odd) > _MOST_TOLD else ""
    return (
        f"{len(odd)} of {len(everyone)} processes do not hold the tokenizer that {count} hold "
        f"(rank {model} on {everyone[model]['host']} for one): "
        f"{'; '.join(islice(told, _MOST_TOLD))}{more}. Fit with the same arguments, data and "
        "versions everywhere, remove what is broken, or copy one folder to all nodes"
    )


def _differs(other: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    if "error" in other:
        return f"has none ({other['error']})"
    named = list(_differences(other["contents"], model["contents"]))
    # Arguments and data explain all that follows from them.
    named = [name for name in named if name.startswith("inputs.")] or named
    more = f" and {len(named) - _MOST_TOLD} more" if len(named) > _MOST_TOLD else ""
    return f"differs in {', '.join(named[:_MOST_TOLD])}{more}"


def _differences(other: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[str]:
    for name in {**model, **other}:
        if name not in other:
            yield f"{name} (absent)"
        elif name not in model:
            yield f"{name} (absent elsewhere)"
        elif other[name] != model[name]:
            pair = f"{other[name]} instead of {model[name]}"
            yield f"{name} ({pair})" if len(pair) <= 80 else name
