"""One process of several that fit and compare; run by torchrun or by hand, by any Python.

    python rank_worker.py WORK STEP... [--files RANK WORLD_SIZE]

It takes the steps in turn, in one process group: of ``torch.distributed``, or by files. After each
step all gather how it ended, so a step that leaves the processes in different collectives shows in
the next. The answers of rank r are in ``WORK/answers-r.json``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vlaprep
import vlaprep.fit
from vlaprep.ranks import Ranks

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = {"n_samples": 40, "chunk_size": 5}


class Worker:
    """What one process does in each step."""

    def __init__(self, work: Path, accelerator: Any = None) -> None:
        self.work, self.accelerator = work, accelerator
        self.rank = Ranks.detect(accelerator).rank

    def fit(self, cache: str, **options: Any) -> str:
        fitted: str = vlaprep.fit_fast_tokenizer(
            cache_dir=self.work / cache,
            accelerator=self.accelerator,
            **{"dataset_root": self.work / "data", **SMALL, **options},
        )
        return fitted

    def verify(self, folder: str) -> str:
        return vlaprep.verify_ranks(folder, accelerator=self.accelerator)

    def step_shared(self) -> Any:
        """One cache for all."""
        folder = self.fit("shared")
        return folder, self.verify(folder)

    def step_local(self) -> Any:
        """A cache for each, as on nodes that share no disk."""
        folder = self.fit(f"local-{self.rank}")
        return folder, self.verify(folder)

    def step_tampered(self) -> Any:
        """As above, and one of them has been changed."""
        folder = self.fit(f"local-{self.rank}")
        if self.rank == 1:
            with (Path(folder) / "tokenizer.json").open("a") as file:
                file.write(" ")
        return folder, self.verify(folder)

    def step_absent(self) -> Any:
        """One of them has no folder at all."""
        folder = self.fit("shared")
        return folder, self.verify(folder if self.rank != 1 else f"{folder}-gone")

    def step_seed(self) -> Any:
        """One of them fits with other arguments."""
        folder = self.fit("shared", seed=7 if self.rank == 1 else 42)
        return folder, self.verify(folder)

    def step_raises(self) -> Any:
        """One of them has no dataset, another gives an argument that makes no sense."""
        wrong = {1: {"dataset_root": self.work / "nowhere"}, 2: {"chunk_size": 0}}
        return self.fit("shared", **wrong.get(self.rank, {})), None

    def step_digests(self) -> Any:
        """Digests are compared as they are."""
        digest = "0123456789abcdef"
        return digest, self.verify(digest if self.rank != 1 else digest[::-1])

    def step_killed(self) -> Any:
        """The one that fits is killed, once; the others wait for it."""
        began = self.work / "began"
        if self.rank == 1 and not began.exists():
            vlaprep.fit.build_tokenizer = self.die
        while not began.exists() and self.rank != 1:
            time.sleep(0.01)
        return self.fit("killed"), None

    def die(self, folder: Path, *args: Any, **kwargs: Any) -> None:
        (folder / "tokenizer.json").write_text("{}")
        (self.work / "began").touch()
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)


def answer_of(step: Callable[[], Any]) -> dict[str, Any]:
    began = time.monotonic()
    try:
        folder, digest = step()
    except Exception as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    else:
        answer = {"folder": folder, "digest": digest}
    return answer | {"seconds": time.monotonic() - began}


def join(files: list[str], work: Path) -> None:
    """Become a member of a process group."""
    if files:
        from fake_ranks import FileGroup

        (work / "group").mkdir(exist_ok=True)
        group: Any = FileGroup(work / "group", *map(int, files))
        sys.modules["torch.distributed"] = group
    else:
        import torch.distributed

        torch.distributed.init_process_group("gloo")


def main() -> None:
    arguments, _, files = " ".join(sys.argv[1:]).partition(" --files ")
    work, *steps = arguments.split()
    accelerator = None
    if steps[0] == "accelerate":
        import accelerate

        accelerator = accelerate.Accelerator(cpu=True)
    else:
        join(files.split(), Path(work))
    worker = Worker(Path(work), accelerator)
    answers: dict[str, Any] = {}
    for step in steps:
        if step == "accelerate":
            continue
        answer = answer_of(getattr(worker, f"step_{step}"))
        if step != "killed":  # then one is missing
            together = Ranks.detect(accelerator).gather((step, "folder" in answer))
            answer["together"] = together
        answers[step] = answer
    path = worker.work / f"answers-{worker.rank}.json"
    path.write_text(json.dumps(answers), encoding="utf-8")
    if not files:
        sys.stdout.flush()
        os._exit(0)  # no farewell, since whoever was killed does not take part in it


if __name__ == "__main__":
    main()
