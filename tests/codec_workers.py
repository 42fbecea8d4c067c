"""What worker processes do with a codec; a module that they can import by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from vlaprep import ActionCodec


class Batches:
    """What a data loader asks for an item; it is a batch of ids and a mask."""

    def __init__(self, codec: ActionCodec, chunks: np.ndarray) -> None:
        self.codec, self.chunks = codec, chunks

    def __len__(self) -> int:
        return len(self.chunks) // 8

    def __getitem__(self, item: int) -> tuple[np.ndarray, np.ndarray]:
        return self.codec.encode_padded(self.chunks[8 * item : 8 * item + 8], 40)


def round_trip(codec: ActionCodec, chunks: np.ndarray) -> tuple[np.ndarray, ...]:
    ids, offsets = codec.encode_batch(chunks)
    return (ids, offsets, *codec.decode_batch(ids, offsets))
