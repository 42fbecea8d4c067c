"""A FAST tokenizer of your own data for LeRobot's ``--policy.action_tokenizer_name``.

What one learns:

- `vlaprep.fit_fast_tokenizer` needs a dataset folder and a cache folder; no network, no GPU, no
  video. Asked again for the same fit, it answers from the cache.
- The folder it returns is a transformers processor. Whoever trains loads it by
  ``AutoProcessor.from_pretrained(folder, trust_remote_code=True)``, with or without vlaprep; that
  is what LeRobot does with ``--policy.action_tokenizer_name``.
- The tokenizer wants actions normalised as in the fit; ``fit_report.json`` has the statistics.

Run it on any LeRobot folder: ``python examples/lerobot_action_tokenizer.py path/to/dataset``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from transformers import AutoProcessor

import vlaprep

RECORDED = Path(__file__).resolve().parent.parent / "tests" / "golden" / "lerobot_v30"
CHUNK_SIZE = 10

COMMAND = """lerobot-train \\
    --policy.type=pi0_fast \\
    --policy.action_tokenizer_name={tokenizer} \\
    --policy.chunk_size={chunk_size} \\
    --policy.n_action_steps={chunk_size} \\
    --dataset.repo_id=local --dataset.root={dataset}"""


def run(dataset: Path, cache_dir: Path) -> None:
    for how in ("fitted", "asked again, from the cache"):
        began = time.perf_counter()
        folder = vlaprep.fit_fast_tokenizer(
            dataset_root=dataset, cache_dir=cache_dir, chunk_size=CHUNK_SIZE
        )
        print(f"{how}: {folder} in {time.perf_counter() - began:.2f} s")
    command = COMMAND.format(tokenizer=folder, chunk_size=CHUNK_SIZE, dataset=dataset)
    print(f"train with it:\n\n{command}\n")

    # What LeRobot's ActionTokenizerProcessorStep does with the name, one chunk at a time.
    tokenizer = AutoProcessor.from_pretrained(folder, trust_remote_code=True)
    normalization = vlaprep.Normalization.from_pretrained(folder)
    rows = vlaprep.open_dataset(dataset)
    episode, start = vlaprep.sample_chunks(
        rows.episodes.episode_index,
        rows.episodes.length,
        chunk_size=CHUNK_SIZE,
        n_samples=256,
        seed=1,  # other chunks than the fit saw
    )
    actions = normalization.normalize(rows.read_chunks(episode, start, CHUNK_SIZE))
    ids = [tokenizer(actions[i : i + 1])[0] for i in range(len(actions))]
    decoded = tokenizer.decode(ids)
    tokens = sum(map(len, ids)) / len(ids)
    error = np.sqrt(np.mean((decoded - actions) ** 2))
    print(f"{len(ids)} chunks of {actions.shape[1:]}: {tokens:.1f} tokens each, for "
          f"{actions[0].size} numbers")  # fmt: skip
    print(f"the first: {ids[0]}")
    print(f"root mean square error of what comes back: {error:.4f} of the normalised range [-1, 1]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dataset", type=Path, nargs="?", default=RECORDED)
    parser.add_argument("--cache-dir", type=Path, help="keep the tokenizer here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(options.dataset, options.cache_dir or Path(folder))


if __name__ == "__main__":
    main()
