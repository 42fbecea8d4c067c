"""The trainers' own code, in a Python that has them: ``interop_worker.py TASK ARGUMENT...``.

What a task found out goes to a ``.npz`` or JSON file that the arguments name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def load_and_encode(folder: str, chunks: str, out: str) -> None:
    """Ids and decoded chunks of what AutoProcessor makes of a folder."""
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(folder, trust_remote_code=True)
    ids = [list(map(int, tokens)) for tokens in processor(np.load(chunks))]
    Path(out).write_text(json.dumps({"ids": ids, "class": type(processor).__name__}))


def write_language_tokenizer(folder: str) -> None:
    """Save a small stand-in for PaliGemma's, which no registry of packages has: bytes, bos, eos."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    specials = ["<pad>", "<eos>", "<bos>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fillers = [f"<{number}>" for number in range(4096)]
    vocab = {token: number for number, token in enumerate([*specials, *alphabet, *fillers])}
    language = Tokenizer(models.BPE(vocab, []))
    language.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    language.decoder = decoders.ByteLevel()
    language.post_processor = processors.TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", 1)]
    )
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>"}
    PreTrainedTokenizerFast(tokenizer_object=language, **names).save_pretrained(folder)


def tokenize_actions(folder: str, language: str, chunks: str, out: str) -> None:
    """What LeRobot's ActionTokenizerProcessorStep makes of a batch."""
    import torch
    from lerobot.lerobot_types import TransitionKey
    from lerobot.processor.tokenizer_processor import ActionTokenizerProcessorStep
    from lerobot.utils.constants import ACTION_TOKEN_MASK, ACTION_TOKENS

    write_language_tokenizer(language)
    step = ActionTokenizerProcessorStep(
        action_tokenizer_name=folder, paligemma_tokenizer_name=language
    )
    transition: Any = {TransitionKey.ACTION: torch.from_numpy(np.load(chunks))}
    done = step(transition)[TransitionKey.COMPLEMENTARY_DATA]
    paligemma = step._paligemma_tokenizer
    np.savez(
        out,
        tokens=done[ACTION_TOKENS].numpy(),
        mask=done[ACTION_TOKEN_MASK].numpy(),
        skipped=step.fast_skip_tokens,
        vocabulary=paligemma.vocab_size,
        bos=paligemma.bos_token_id,
        before=paligemma.encode("Action: ", add_special_tokens=False),
        after=paligemma.encode("|"),
    )


def normalize_as_lerobot(chunks: str, stats: str, out: str) -> None:
    """The chunks, normalised and back, as training and as lerobot-train-tokenizer do it."""
    import torch
    from lerobot.configs import FeatureType, NormalizationMode, PolicyFeature
    from lerobot.lerobot_types import TransitionKey
    from lerobot.processor.normalize_processor import (
        NormalizerProcessorStep,
        UnnormalizerProcessorStep,
    )

    x = np.load(chunks)
    given = {name: np.array(values) for name, values in json.loads(Path(stats).read_text()).items()}
    feature = {"action": PolicyFeature(type=FeatureType.ACTION, shape=x.shape[-1:])}
    answers = {}
    for mode in NormalizationMode:
        options: Any = {
            "features": feature,
            "norm_map": {FeatureType.ACTION: mode},
            "stats": {"action": given},
        }
        transition: Any = {TransitionKey.ACTION: torch.from_numpy(x)}
        there = NormalizerProcessorStep(**options)(transition)
        back = UnnormalizerProcessorStep(**options)(there)
        answers[f"{mode.value}.there"] = there[TransitionKey.ACTION].numpy()
        answers[f"{mode.value}.back"] = back[TransitionKey.ACTION].numpy()
    try:
        from lerobot.scripts.lerobot_train_tokenizer import apply_normalization
    except ImportError:  # it wants the extra `dataset`
        pass
    else:
        for mode in NormalizationMode:
            answers[f"{mode.value}.tokenizer"] = apply_normalization(x, given, mode)
    np.savez(out, **answers)


def round_trip_as_opentau(folder: str, chunks: str, out: str) -> None:
    """OpenTau's own check of a saved folder, and its normalisation."""
    from opentau.scripts import fit_fast_tokenizer as script

    x = np.load(chunks)
    answer = script._verify_roundtrip(Path(folder), x)
    lo, hi = x.min(axis=(0, 1)).astype(np.float64), x.max(axis=(0, 1)).astype(np.float64)
    lo[0] = hi[0]  # a dim that never moved in the statistics
    normalized = script._normalize_chunks(x, lo, hi, True, script._normalize_eps_for(1))
    np.savez(out, lo=lo, hi=hi, normalized=normalized, **answer)


def label_speeds_as_opentau(lengths: str, root: str, out: str) -> None:
    """OpenTau's percentiles, file and labels for ``{episode: [length, task]}``."""
    from opentau.datasets import speed_percentiles as speed

    episodes = {int(k): v for k, v in json.loads(Path(lengths).read_text()).items()}
    length = {episode: pair[0] for episode, pair in episodes.items()}
    task = {episode: pair[1] for episode, pair in episodes.items()}
    (Path(root) / "meta").mkdir(parents=True)
    texts = {"stack the cups": 0, "open the drawer": 1, "wipe the table": 5}
    percentiles = speed.load_or_compute_speed_percentiles(Path(root), length, task, texts)
    labels = {e: speed.bucket_episode_length(length[e], percentiles[task[e]]) for e in length}
    Path(out).write_text(json.dumps({"percentiles": percentiles, "labels": labels}))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
