"""One cell of the transformers matrix: fit and save, or load, where vlaprep is not installed.

    python worker.py save SOURCE ARRAYS FOLDER    fit with the file SOURCE alone and save to FOLDER
    python worker.py load FOLDER ARRAYS COPY      load FOLDER through AutoProcessor, save to COPY

ARRAYS is a golden ``arrays.npz``. The last line of stdout is a JSON object with the ids of its
``probe`` and what else the caller compares. Needs NumPy and transformers only.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib.util
import io
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import transformers

sys.modules["vlaprep"] = None  # type: ignore[assignment]  # hidden, should it be installed


def save(source: str, arrays: Any, folder: str) -> Any:
    spec = importlib.util.spec_from_file_location("processing_action_tokenizer", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    processor = module.FastActionProcessor.fit(arrays["fit_chunks"], scale=10, vocab_size=512)
    processor.save_pretrained(folder)
    return processor


def load(folder: str, arrays: Any, copied: str) -> Any:
    processor = transformers.AutoProcessor.from_pretrained(folder, trust_remote_code=True)
    assert type(processor).__name__ == "FastActionProcessor"
    assert type(processor).__module__.startswith("transformers_modules.")
    ids = processor(arrays["probe"])
    for twin in (pickle.loads(pickle.dumps(processor)), copy.deepcopy(processor)):
        assert twin(arrays["probe"]) == ids
    # The inner tokenizer alone, as a policy that only needs its size or ids would load it.
    plain = transformers.AutoTokenizer.from_pretrained(folder)
    assert plain.get_vocab() == processor.bpe_tokenizer.get_vocab()
    text = plain.decode(ids[0])
    assert plain(text)["input_ids"] == ids[0] == processor.bpe_tokenizer(text)["input_ids"]
    assert processor.bpe_tokenizer.clean_up_tokenization_spaces is False
    assert '"scale": 10.0' in repr(processor)
    processor.save_pretrained(copied)
    return processor


def digest(folder: str) -> dict[str, str]:
    files = sorted(Path(folder).iterdir())
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def main() -> None:
    action, first, npz, second = sys.argv[1:]
    arrays = np.load(npz)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        processor = {"save": save, "load": load}[action](first, arrays, second)
        ids = processor(arrays["probe"])
        decoded = processor.decode(ids)
        processor.decode([[]])
    result = {
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
        "ids": ids,
        "vocab": processor.bpe_tokenizer.get_vocab(),
        "decode_error": float(np.abs(decoded - arrays["decoded"]).max()),
        "files": digest(second),
        "printed": printed.getvalue(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
