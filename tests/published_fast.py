"""The rules of the published FAST class, as a base of a fit: its alphabet, corpus and layout."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.fft
from tokenizers import Tokenizer

from baseline import fast_train

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass
class PublishedFast:
    """Fits, encodes, decodes and saves as the published class does; no largest coefficient."""

    bpe: Any
    scale: float
    vocab_size: int
    min_token: int

    @classmethod
    def fit(
        cls, action_data: list[np.ndarray], scale: float = 10, vocab_size: int = 1024
    ) -> PublishedFast:
        symbols = [np.around(scipy.fft.dct(a, axis=0, norm="ortho") * scale) for a in action_data]
        low, high = int(min(s.min() for s in symbols)), int(max(s.max() for s in symbols))
        assert high - low <= vocab_size
        texts = ["".join(map(chr, (s.ravel() - low).astype(int))) for s in symbols]
        return cls(fast_train(texts, high - low, vocab_size), scale, vocab_size, low)

    def __call__(self, chunks: np.ndarray) -> list[list[int]]:
        symbols = np.around(scipy.fft.dct(chunks, axis=1, norm="ortho") * self.scale)
        codes = np.maximum(symbols - self.min_token, 0).astype(int)
        return [self.bpe.encode("".join(map(chr, code.ravel()))).ids for code in codes]

    def decode(self, ids: Any, *, time_horizon: int, action_dim: int) -> np.ndarray:
        chunks = []
        for chunk in ids:
            codes = np.array([ord(c) for c in self.bpe.decode(chunk, skip_special_tokens=False)])
            if len(codes) != time_horizon * action_dim:
                codes = np.full(time_horizon * action_dim, -self.min_token)
            symbols = (codes + self.min_token).reshape(time_horizon, action_dim)
            chunks.append(scipy.fft.idct(symbols / self.scale, axis=0, norm="ortho"))
        return np.stack(chunks)

    def save_pretrained(self, folder: str) -> None:
        from pathlib import Path

        inner = Path(folder) / "bpe_tokenizer"
        inner.mkdir(parents=True)
        self.bpe.save(str(inner / "tokenizer.json"))
        fields = ("scale", "vocab_size", "min_token")
        config = {name: getattr(self, name) for name in fields}
        (Path(folder) / "processor_config.json").write_text(json.dumps(config))


class PublishedBase:
    """That class as `vlaprep.fit_base.open_base` gives it."""

    symbol_slack: ClassVar[int] = 1

    def identity(self) -> dict[str, Any]:
        return {"name": "published"}

    def fit(
        self, blocks: Iterable[np.ndarray], settings: Any, num_threads: int | None = None
    ) -> PublishedFast:
        chunks = [chunk for block in blocks for chunk in block]
        return PublishedFast.fit(chunks, settings["scale"], settings["vocab_size"])

    def load(self, folder: Path) -> PublishedFast:
        config = json.loads((folder / "processor_config.json").read_text())
        return PublishedFast(
            Tokenizer.from_file(str(folder / "bpe_tokenizer" / "tokenizer.json")), **config
        )
