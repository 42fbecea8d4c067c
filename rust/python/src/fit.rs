//! Fitting a FAST tokenizer.

use numpy::Element;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use vlaprep_core::Result;
use vlaprep_core::fast::{Alphabet, Chunks, Counting, Fit, Measuring, Trained, Trainer, Words};
use vlaprep_core::parallel::Interrupt;

use crate::arrays::{self, FloatInput, Input};
use crate::{gate, threads};

/// Texts of all tokens by id, and the texts of the two parts of each merge, in order.
type Vocabulary = (Vec<String>, Vec<(String, String)>);

/// Smallest and largest coefficient, tokens and merges.
type FittedParts = (i64, i64, Vec<String>, Vec<(String, String)>);

/// Learn the merges of a byte-pair encoding from words.
///
/// Parameters
/// ----------
/// words : list of str
///     Words, cut already; no merge crosses from one to the next.
/// counts : list of int
///     How often each occurs; the same word may come several times.
/// vocab_size : int
///     Most entries of the vocabulary, which never has fewer than the alphabet.
/// min_frequency : int
///     Least number of times that a pair must occur to be merged.
/// max_token_length : int
///     A merge that makes an entry of so many characters or more is not taken up.
/// initial_alphabet : str
///     Characters that the vocabulary has whether they occur or not.
///
/// Returns
/// -------
/// tokens : list of str
///     Entries by their ids: the alphabet by code points, then one of each merge.
/// merges : list of (str, str)
///
/// Raises
/// ------
/// ValueError
///     If there are not as many counts as words, or too many different words.
///
/// Notes
/// -----
/// Tokens, merges and their order are those of ``tokenizers.trainers.BpeTrainer``, while its counts
/// fit into 32 bits.
///
/// Examples
/// --------
/// >>> from vlaprep.kernels import train_bpe
/// >>> tokens, merges = train_bpe("aab ab".split(), [2, 1], vocab_size=4)
/// >>> " ".join(tokens), len(merges)
/// ('a b ab aab', 2)
#[pyfunction]
#[pyo3(signature = (
    words, counts, *, vocab_size, min_frequency=2, max_token_length=10_000, initial_alphabet=""
))]
#[allow(clippy::needless_pass_by_value, reason = "they are copies of Python's")]
pub(crate) fn train_bpe(
    py: Python<'_>,
    words: Vec<String>,
    counts: Vec<u64>,
    vocab_size: usize,
    min_frequency: u64,
    max_token_length: usize,
    initial_alphabet: &str,
) -> PyResult<Vocabulary> {
    let trainer = Trainer {
        vocab_size,
        min_frequency,
        max_token_length,
    };
    let learnt = gate::run(py, |interrupt| {
        let words = Words::of_texts(&words, &counts, initial_alphabet)?;
        trainer.train(words, interrupt)
    })?;
    Ok(vocabulary(learnt))
}

/// Fit a FAST tokenizer on action chunks.
///
/// Parameters
/// ----------
/// blocks : iterable of array_like of float32 or float64, shape (N, H, D)
///     Normalised action chunks; N, H and D may differ from block to block. They pass by twice, so a
///     list or an object of one's own whose ``__iter__`` begins anew; the answer is that of all chunks
///     in one block. float16 is widened to float32, integers to float64.
/// scale : float
///     Steps per unit of a coefficient.
/// vocab_size, min_frequency, max_token_length
///     As in `train_bpe`.
/// alphabet : {"bytes", "symbols"}
///     The published format: a byte-level vocabulary over words as GPT-2's pattern cuts them; or one
///     of the symbols themselves, over whole chunks.
/// compatible : bool
///     Accept a vocabulary of more than `vocab_size` entries where the alphabet alone has more.
/// num_threads : int, optional
///     Bound on threads; the answer is the same.
///
/// Returns
/// -------
/// min_token, max_token : int
///     Smallest and largest coefficient.
/// tokens : list of str
/// merges : list of (str, str)
///     As `train_bpe` gives them.
///
/// Raises
/// ------
/// TypeError
///     If `blocks` can be iterated only once, as a generator.
/// ValueError
///     For NaN, infinity (with chunk, step and dim), no chunk at all, or where the second pass gives
///     another number of chunks, or coefficients beyond those of the first.
/// VocabularyError
///     If the range of coefficients, or the alphabet made of it, does not fit into `vocab_size`.
///
/// Examples
/// --------
/// >>> import numpy as np
/// >>> from vlaprep.kernels import fit_bpe
/// >>> low, high, tokens, merges = fit_bpe([np.ones((3, 4, 1))], scale=10, vocab_size=64)
/// >>> low, high, len(tokens), len(merges)
/// (0, 20, 26, 3)
#[pyfunction]
#[pyo3(signature = (
    blocks, scale, vocab_size, *, min_frequency=2, max_token_length=10_000, alphabet="bytes",
    compatible=false, num_threads=None
))]
#[allow(clippy::too_many_arguments, reason = "Python names them")]
pub(crate) fn fit_bpe(
    py: Python<'_>,
    blocks: &Bound<'_, PyAny>,
    scale: f64,
    vocab_size: usize,
    min_frequency: u64,
    max_token_length: usize,
    alphabet: &str,
    compatible: bool,
    num_threads: Option<usize>,
) -> PyResult<FittedParts> {
    let trainer = Trainer {
        vocab_size,
        min_frequency,
        max_token_length,
    };
    let alphabet = match alphabet {
        "bytes" => Alphabet::Bytes,
        "symbols" => Alphabet::Symbols,
        _ => {
            let message = format!("alphabet must be one of bytes, symbols, not {alphabet:?}");
            return Err(PyValueError::new_err(message));
        }
    };
    let fit = Fit {
        scale,
        trainer,
        alphabet,
        compatible,
    };
    let mut measuring = fit.start().map_err(|error| gate::raise(&error))?;
    pass(blocks, &mut measuring, num_threads)?;
    let mut counting = measuring.finish().map_err(|error| gate::raise(&error))?;
    pass(blocks, &mut counting, num_threads)?;
    let fitted = gate::run(py, |interrupt| counting.train(interrupt))?;
    let (tokens, merges) = vocabulary(fitted.trained);
    Ok((fitted.min_token, fitted.max_token, tokens, merges))
}

/// What looks at all blocks.
trait Pass: Send {
    fn add<T: Copy + Into<f64> + Sync>(
        &mut self,
        block: Chunks<'_, T>,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<()>;
}

impl Pass for Measuring {
    fn add<T: Copy + Into<f64> + Sync>(
        &mut self,
        block: Chunks<'_, T>,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<()> {
        self.add(block, threads, interrupt)
    }
}

impl Pass for Counting {
    fn add<T: Copy + Into<f64> + Sync>(
        &mut self,
        block: Chunks<'_, T>,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<()> {
        self.add(block, threads, interrupt)
    }
}

fn pass(blocks: &Bound<'_, PyAny>, to: &mut impl Pass, num_threads: Option<usize>) -> PyResult<()> {
    for block in arrays::blocks(blocks)? {
        match FloatInput::new("blocks", &block?, 3)? {
            FloatInput::Single(block) => add(blocks.py(), &block, to, num_threads)?,
            FloatInput::Double(block) => add(blocks.py(), &block, to, num_threads)?,
        }
    }
    Ok(())
}

fn add<T: Copy + Into<f64> + Sync + Element>(
    py: Python<'_>,
    block: &Input<'_, T>,
    to: &mut impl Pass,
    num_threads: Option<usize>,
) -> PyResult<()> {
    let block = Chunks {
        values: block.values()?,
        horizon: block.shape()[1],
        dims: block.shape()[2],
    };
    let threads = threads::bound(num_threads, block.values.len())?;
    gate::run(py, |interrupt| to.add(block, threads, interrupt))
}

fn vocabulary(Trained { tokens, merges }: Trained) -> Vocabulary {
    let text = |id: u32| tokens[id as usize].clone();
    let merges = merges
        .into_iter()
        .map(|(left, right)| (text(left), text(right)))
        .collect();
    (tokens, merges)
}
