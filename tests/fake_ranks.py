"""Ranks without processes, and process groups without torch."""

from __future__ import annotations

import pickle
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class Barrier:
    """An accelerator, or a process state, that counts how often all are waited for."""

    def __init__(self, num_processes: int, process_index: int) -> None:
        self.num_processes = num_processes
        self.process_index = process_index
        self.is_main_process = process_index == 0
        self.waits = 0

    def wait_for_everyone(self) -> None:
        self.waits += 1


class FileGroup:
    """What of ``torch.distributed`` is used here, between real processes, by files of one folder.

    Each collective is one file a process; who has written its own waits for those of the others.
    """

    def __init__(self, folder: Path, rank: int, world_size: int, patience_s: float = 60) -> None:
        self.folder, self.rank, self.world_size = folder, rank, world_size
        self.patience_s = patience_s
        self.collectives = 0

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def get_rank(self) -> int:
        return self.rank

    def get_world_size(self) -> int:
        return self.world_size

    def barrier(self) -> None:
        self._meet("barrier", None)

    def all_gather_object(self, answers: list[Any], thing: Any) -> None:
        answers[:] = self._meet("gather", thing)

    def _meet(self, kind: str, thing: Any) -> list[Any]:
        """Everybody's thing; an error when another process is in another collective."""
        number, self.collectives = self.collectives, self.collectives + 1
        path = self.folder / f"{number}-{self.rank}"
        path.with_suffix(".part").write_bytes(pickle.dumps((kind, thing)))
        path.with_suffix(".part").replace(path)
        paths = [self.folder / f"{number}-{rank}" for rank in range(self.world_size)]
        end = time.monotonic() + self.patience_s
        while not all(path.exists() for path in paths):
            if time.monotonic() > end:
                raise RuntimeError(f"{kind} {number}: connection closed by peer")
            time.sleep(0.005)
        kinds, things = zip(*(pickle.loads(path.read_bytes()) for path in paths), strict=True)
        if set(kinds) != {kind}:
            raise RuntimeError(f"collectives out of step: {kinds}")
        return list(things)
