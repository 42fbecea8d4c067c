from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__version__: str

def percentiles_by_task(
    lengths: ArrayLike, task_index: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.float64]]: ...
def bucketize(
    lengths: ArrayLike, task_index: ArrayLike, tasks: ArrayLike, boundaries: ArrayLike
) -> NDArray[np.int64]: ...
def quantile(x: ArrayLike, q: float) -> NDArray[Any]: ...
def dct_quantize(chunks: ArrayLike, scale: float) -> NDArray[np.int32]: ...
def gather_chunks(
    rows: ArrayLike, first_row: ArrayLike, chunk_size: int
) -> NDArray[np.float32]: ...
