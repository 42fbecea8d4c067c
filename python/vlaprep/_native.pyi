from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Codec",
    "Reader",
    "__build__",
    "__version__",
    "block_moments",
    "block_quantiles",
    "bucketize",
    "dct_quantize",
    "episode_stream",
    "fit_bpe",
    "gather_chunks",
    "integers_of_lists",
    "percentiles_by_task",
    "quantile",
    "sweep_windows",
    "train_bpe",
]

__build__: str
__version__: str

def percentiles_by_task(
    lengths: ArrayLike, task_index: ArrayLike, *, num_threads: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]: ...
def bucketize(
    lengths: ArrayLike,
    task_index: ArrayLike,
    tasks: ArrayLike,
    boundaries: ArrayLike,
    *,
    num_threads: int | None = None,
) -> NDArray[np.int64]: ...
def quantile(x: ArrayLike, q: ArrayLike, *, num_threads: int | None = None) -> NDArray[Any]: ...
def block_quantiles(
    blocks: Iterable[ArrayLike], q: ArrayLike, *, num_threads: int | None = None
) -> NDArray[Any]: ...
def block_moments(
    blocks: Iterable[ArrayLike],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]: ...
def dct_quantize(chunks: ArrayLike, scale: float) -> NDArray[np.int32]: ...

@final
class Codec:
    def __new__(
        cls,
        tokenizer: str | None,
        scale: float,
        min_token: int,
        max_token: int | None = None,
        time_horizon: int | None = None,
    ) -> Codec: ...
    def __getnewargs__(self) -> tuple[str | None, float, int, int | None, int | None]: ...
    @property
    def max_token(self) -> int: ...
    def spells(self) -> NDArray[np.bool_]: ...
    def encode(
        self, actions: ArrayLike, on_range: str = "clamp", num_threads: int = 1
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], list[str]]: ...
    def encode_padded(
        self,
        actions: ArrayLike,
        max_length: int,
        pad_id: int = 0,
        on_range: str = "clamp",
        num_threads: int = 1,
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_], int, list[str]]: ...
    def decode(
        self,
        ids: ArrayLike,
        offsets: ArrayLike,
        time_horizon: int,
        action_dim: int,
        on_range: str = "clamp",
        pad: bool = False,
    ) -> tuple[NDArray[np.float64], NDArray[np.uint8]]: ...

def train_bpe(
    words: Sequence[str],
    counts: Sequence[int],
    *,
    vocab_size: int,
    min_frequency: int = 2,
    max_token_length: int = 10_000,
    initial_alphabet: str = "",
) -> tuple[list[str], list[tuple[str, str]]]: ...
def fit_bpe(
    blocks: Iterable[ArrayLike],
    scale: float,
    vocab_size: int,
    *,
    min_frequency: int = 2,
    max_token_length: int = 10_000,
    alphabet: str = "bytes",
    compatible: bool = False,
    num_threads: int | None = None,
) -> tuple[int, int, list[str], list[tuple[str, str]]]: ...
def gather_chunks(
    rows: ArrayLike, first_row: ArrayLike, chunk_size: int, *, num_threads: int | None = None
) -> NDArray[np.float32]: ...
def sweep_windows(
    rows: ArrayLike,
    lengths: ArrayLike,
    chunk_size: int,
    scale: float,
    first_symbol: int = 0,
    known: ArrayLike | None = None,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    *,
    num_threads: int | None = None,
) -> tuple[
    int,
    int,
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.int64],
    float,
]: ...
def integers_of_lists(
    lists: list[Any],
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None: ...
def episode_stream(
    episode_index: ArrayLike,
    length: ArrayLike,
    task_index: ArrayLike,
    span_offsets: ArrayLike,
    span_file: ArrayLike,
    span_first_row: ArrayLike,
    span_rows: ArrayLike,
) -> object: ...

@final
class Reader:
    def __new__(
        cls,
        root: str | PathLike[str],
        episodes: Sequence[int] | NDArray[np.int64] | None = None,
        num_threads: int = 0,
        engine: Literal["pages", "arrow"] = "pages",
    ) -> Reader: ...
    @property
    def codebase_version(self) -> str: ...
    @property
    def fps(self) -> float | None: ...
    @property
    def total_episodes(self) -> int | None: ...
    @property
    def total_frames(self) -> int | None: ...
    @property
    def features(self) -> dict[str, tuple[str, list[int], list[str] | None]]: ...
    @property
    def tasks(self) -> dict[int, str]: ...
    @property
    def files(self) -> list[str]: ...
    @property
    def columns(self) -> list[str]: ...
    @property
    def findings(self) -> list[tuple[str, str, bool]]: ...
    def episodes(self) -> tuple[NDArray[np.int64], ...]: ...
    def read(self, columns: Sequence[str], positions: ArrayLike) -> list[NDArray[Any]]: ...
    def stats(
        self, columns: Sequence[str], positions: ArrayLike, q: Sequence[float]
    ) -> list[
        tuple[
            int,
            NDArray[np.float64],
            NDArray[np.float64],
            NDArray[np.float64],
            NDArray[np.float64],
            NDArray[np.float64],
        ]
    ]: ...
    def read_chunks(
        self, column: str, episode_index: ArrayLike, start: ArrayLike, chunk_size: int
    ) -> NDArray[np.float32]: ...
