"""What any installed vlaprep can do, in one short script: run by the tests of the wheel.

    python smoke.py GOLDEN        where GOLDEN is the folder tests/golden

Needs nothing but vlaprep and what it depends on. Ends with one line of JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import vlaprep
from vlaprep import kernels

HEAVY = ("transformers", "pyarrow", "huggingface_hub")

loaded_at_import = [name for name in HEAVY if name in sys.modules]
golden = Path(sys.argv[1])

# The kernels, against NumPy.
lengths = np.arange(40, 80)
tasks, boundaries = kernels.percentiles_by_task(lengths, np.zeros(40, np.int64))
assert tasks.tolist() == [0]
np.testing.assert_array_equal(boundaries[0], np.percentile(lengths, np.arange(5, 100, 10)))

# Both jobs, on a recorded data set.
dataset = vlaprep.open_dataset(golden / "lerobot_v30")
labels = vlaprep.speed_labels(dataset)
assert len(labels.label) == len(dataset.episodes) > 0

with tempfile.TemporaryDirectory() as cache:
    folder = vlaprep.fit_fast_tokenizer(
        dataset_root=dataset.root, cache_dir=cache, n_samples=64, chunk_size=10, vocab_size=512
    )
    processor = vlaprep.FastActionProcessor.from_pretrained(folder)

chunks = np.sin(np.linspace(0, 6, 600)).reshape(10, 10, 6)
actions, status = processor.decode_batch(processor(chunks), time_horizon=10, action_dim=6)
round_trip = float(np.abs(actions - chunks).max())
assert status.tolist() == [0] * 10
# Each of the 10 coefficients of a dim is off by at most half a step of 1 / scale.
assert round_trip <= 0.05 * 10**0.5

answer = {
    "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    "version": vlaprep.__version__,
    "loaded_at_import": loaded_at_import,
    "round_trip": round_trip,
    "home": str(Path(vlaprep.__file__).parent),
}
print(json.dumps(answer))
