"""OpenTau's speed labels from vlaprep, by one changed import.

OpenTau's ``LeRobotDataset`` asks its module ``speed_percentiles`` three things: which task each
episode has, what the boundaries of each task are, and which label an episode gets. The same names
with the same arguments come from ``vlaprep.speed``, so only the import changes. What one learns:

- the call site, line by line as OpenTau has it, runs unchanged;
- ``meta/speed_percentiles.jsonl`` is written once and read from then on;
- `vlaprep.speed_labels` gives the same labels in one call, straight from the folder.

Run it on any LeRobot folder: ``python examples/opentau_swap.py path/to/dataset``. Nothing is
written to the dataset; the percentile file goes to a temporary folder.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import vlaprep

# Before: from opentau.datasets.speed_percentiles import (
from vlaprep.speed import (
    SPEED_PERCENTILES_PATH,
    bucket_episode_length,
    episode_to_task_index_from_hf_dataset,
    load_or_compute_speed_percentiles,
)

RECORDED = Path(__file__).resolve().parent.parent / "tests" / "golden" / "lerobot_v30"


class HFDataset:
    """Stands for ``datasets.Dataset``, one row a frame: what the call site uses of it."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def with_format(self, kind: str) -> HFDataset:
        """Hand out columns as Arrow arrays, which this stand-in always does."""
        assert kind == "arrow"
        return self

    def select(self, rows: list[int]) -> HFDataset:
        """Keep some rows."""
        return HFDataset(self.table.take(rows))

    def __getitem__(self, column: str) -> Any:
        return self.table[column]


class LeRobotDataset:
    """Stands for OpenTau's class, with the attributes that its call site has at hand."""

    def __init__(self, root: Path, percentiles_root: Path) -> None:
        dataset = vlaprep.open_dataset(root)
        self.root = percentiles_root
        self.hf_dataset = HFDataset(pa.table(dataset.read("task_index")))
        self.episodes = dataset.episodes.episode_index.tolist()
        lengths = dataset.episodes.length
        self.episode_lengths = dict(zip(self.episodes, lengths.tolist(), strict=True))
        self.episode_data_index = {"from": np.cumsum(lengths) - lengths}
        self.epi2idx = {episode: i for i, episode in enumerate(self.episodes)}
        self.tasks = dataset.tasks

        # From here on the lines are OpenTau's.
        self.episode_to_task_index = episode_to_task_index_from_hf_dataset(
            hf_dataset=self.hf_dataset,
            episodes=self.episodes,
            episode_data_index=self.episode_data_index,
            epi2idx=self.epi2idx,
            valid_task_indices=set(self.tasks),
        )
        self.speed_percentiles = load_or_compute_speed_percentiles(
            self.root,
            self.episode_lengths,
            self.episode_to_task_index,
            {task: index for index, task in self.tasks.items()},
        )

    def speed(self, episode: int) -> int:
        """Label of one episode, as OpenTau's ``__getitem__`` asks for it."""
        task = self.episode_to_task_index.get(episode)
        percentiles = None if task is None else self.speed_percentiles.get(task)
        return bucket_episode_length(self.episode_lengths[episode], percentiles)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dataset", type=Path, nargs="?", default=RECORDED)
    root = parser.parse_args().dataset

    with tempfile.TemporaryDirectory() as folder:
        first = LeRobotDataset(root, Path(folder))
        rows = (Path(folder) / SPEED_PERCENTILES_PATH).read_text(encoding="utf-8").splitlines()
        print(f"{SPEED_PERCENTILES_PATH}: {len(rows)} rows, the first:")
        print(f"  {rows[0][:96]}…")
        second = LeRobotDataset(root, Path(folder))  # reads that file

    labels = [first.speed(episode) for episode in first.episodes]
    assert labels == [second.speed(episode) for episode in second.episodes]
    for label, count in sorted(Counter(labels).items()):
        print(f"speed {label:3d}: {count:4d} episodes")

    direct = vlaprep.speed_labels(vlaprep.open_dataset(root))
    assert labels == direct.label.tolist()
    print(f"vlaprep.speed_labels gives the same {len(direct)} labels in one call")


if __name__ == "__main__":
    main()
