//! The reader.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::thread::available_parallelism;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatchIterator, RecordBatchReader};
use numpy::{PyArray1, PyArrayDyn};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use vlaprep_core::dataset::{Column, Dataset, Engine, EpisodeTable, Matrix, Span, Value};

use crate::arrays::{Input, column as column_of, output};
use crate::gate;

/// An open data set on local disk.
///
/// What `vlaprep.dataset.Dataset` stands on; it holds footers and the episode table, no rows.
///
/// Parameters
/// ----------
/// root : path
///     The folder that holds ``meta`` and ``data``.
/// episodes : array_like of int64, optional
///     Ids to keep.
/// num_threads : int, default 0
///     Upper bound; 0 is what the machine or container allows.
#[pyclass(frozen, module = "vlaprep._native")]
pub(crate) struct Reader {
    dataset: Dataset,
    threads: usize,
}

type Ids<'py> = Bound<'py, PyArray1<i64>>;
type Columns<'py> = (
    Ids<'py>,
    Ids<'py>,
    Ids<'py>,
    Ids<'py>,
    Ids<'py>,
    Ids<'py>,
    Ids<'py>,
);

/// Rows; min, max, mean and std; quantiles.
type Stats<'py> = (
    usize,
    Floats<'py>,
    Floats<'py>,
    Floats<'py>,
    Floats<'py>,
    Bound<'py, PyArrayDyn<f64>>,
);
type Floats<'py> = Bound<'py, PyArray1<f64>>;

/// dtype, shape and names.
type Feature<'a> = (&'a str, &'a [u64], Option<&'a [String]>);

#[pymethods]
impl Reader {
    #[new]
    #[allow(clippy::needless_pass_by_value, reason = "a path is extracted owned")]
    #[pyo3(signature = (root, episodes=None, num_threads=0, engine="pages"))]
    fn new(
        py: Python<'_>,
        root: PathBuf,
        episodes: Option<&Bound<'_, PyAny>>,
        num_threads: usize,
        engine: &str,
    ) -> PyResult<Self> {
        let engine = match engine {
            "pages" => Engine::Pages,
            "arrow" => Engine::Arrow,
            other => {
                let message = format!("engine must be 'pages' or 'arrow', got {other:?}");
                return Err(PyValueError::new_err(message));
            }
        };
        let threads = match num_threads {
            0 => available_parallelism().map_or(1, NonZero::get),
            some => some,
        };
        let ids = episodes
            .map(|ids| Input::<i64>::new("episodes", ids, 1))
            .transpose()?;
        let ids = ids.as_ref().map(Input::values).transpose()?;
        let dataset = gate::run(py, |interrupt| {
            Dataset::open_with(engine, &root, ids, threads, interrupt)
        })?;
        Ok(Self { dataset, threads })
    }

    /// The version as ``meta/info.json`` writes it.
    #[getter]
    fn codebase_version(&self) -> &str {
        &self.dataset.info().codebase_version
    }

    /// Frames per second, or None.
    #[getter]
    fn fps(&self) -> Option<f64> {
        self.dataset.info().fps
    }

    /// The counter of episodes as written, or None.
    #[getter]
    fn total_episodes(&self) -> Option<u64> {
        self.dataset.info().total_episodes
    }

    /// The counter of frames as written, or None.
    #[getter]
    fn total_frames(&self) -> Option<u64> {
        self.dataset.info().total_frames
    }

    /// ``{column: (dtype, shape, names or None)}`` as written.
    #[getter]
    fn features(&self) -> BTreeMap<&str, Feature<'_>> {
        let features = self.dataset.info().features.iter();
        features
            .map(|(name, f)| {
                (
                    name.as_str(),
                    (f.dtype.as_str(), &f.shape[..], f.names.as_deref()),
                )
            })
            .collect()
    }

    /// ``{task_index: text}``.
    #[getter]
    fn tasks(&self) -> BTreeMap<i64, &str> {
        self.dataset
            .tasks()
            .iter()
            .map(|(&index, text)| (index, text.as_str()))
            .collect()
    }

    /// Data files relative to the root, by the numbers in their names.
    #[getter]
    fn files(&self) -> Vec<&str> {
        self.dataset.files().collect()
    }

    /// Columns of the data files.
    #[getter]
    fn columns(&self) -> Vec<&str> {
        self.dataset.columns()
    }

    /// ``(kind, message, is_warning)`` of every finding.
    #[getter]
    fn findings(&self) -> Vec<(&'static str, &str, bool)> {
        let findings = self.dataset.findings().iter();
        findings
            .map(|f| (f.kind.name(), f.message.as_str(), f.kind.is_warning()))
            .collect()
    }

    /// The episode table as int64 columns: episode_index, length, task_index, span_offsets, and
    /// file, first_row and rows of the spans.
    fn episodes<'py>(&self, py: Python<'py>) -> Columns<'py> {
        let table = self.dataset.episodes();
        let spans = |value: fn(&Span) -> usize| {
            column_of(
                py,
                table.spans.iter().map(|span| value(span) as i64).collect(),
            )
        };
        (
            column_of(py, table.episode_index.clone()),
            column_of(py, table.length.clone()),
            column_of(py, table.task_index.clone()),
            column_of(
                py,
                table
                    .span_offsets
                    .iter()
                    .map(|&offset| offset as i64)
                    .collect(),
            ),
            spans(|span| span.file),
            spans(|span| span.first_row),
            spans(|span| span.rows),
        )
    }

    /// Read columns of the episodes at `positions` of the table, one episode after the other.
    ///
    /// Returns
    /// -------
    /// list of array
    ///     For each column int64, shape (N,), where it holds integers; float32, shape (N,), for single
    ///     floats and (N, D) for vectors. A null vector or value is NaN.
    #[allow(clippy::needless_pass_by_value, reason = "names are extracted owned")]
    fn read<'py>(
        &self,
        py: Python<'py>,
        columns: Vec<String>,
        positions: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let positions = self.positions(positions)?;
        let (dataset, threads) = (&self.dataset, self.threads);
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        let read = gate::run(py, |interrupt| {
            dataset.read(&names, &positions, threads, interrupt)
        })?;
        let arrays = names.iter().zip(read).map(|(name, column)| match column {
            Column::Integers(values) => Ok(column_of(py, values).into_any()),
            Column::Floats(Matrix { values, width }) => {
                let value = dataset.value(name).map_err(|error| gate::raise(&error))?;
                let rows = values.len() / width.max(1);
                let vectors = [rows, width];
                let shape = if value == Value::Scalar {
                    &vectors[..1]
                } else {
                    &vectors
                };
                Ok(output(py, values, shape)?.into_any())
            }
        });
        arrays.collect()
    }

    /// Take statistics of columns over the episodes at `positions`.
    ///
    /// Returns
    /// -------
    /// list of tuple
    ///     For each column the rows, then float64 arrays of shape (D,): least, greatest, mean, standard
    ///     deviation; then one of shape (len(q), D) with the quantiles.
    #[allow(clippy::needless_pass_by_value, reason = "extracted owned")]
    fn stats<'py>(
        &self,
        py: Python<'py>,
        columns: Vec<String>,
        positions: &Bound<'py, PyAny>,
        q: Vec<f64>,
    ) -> PyResult<Vec<Stats<'py>>> {
        let positions = self.positions(positions)?;
        let (dataset, threads) = (&self.dataset, self.threads);
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        let stats = gate::run(py, |interrupt| {
            dataset.stats(&names, &positions, &q, threads, interrupt)
        })?;
        let arrays = stats.into_iter().map(|stats| {
            let shape = [q.len(), stats.min.len()];
            let [min, max, mean, std] =
                [stats.min, stats.max, stats.mean, stats.std].map(|values| column_of(py, values));
            let quantiles = output(py, stats.quantiles.concat(), &shape)?;
            Ok((stats.count, min, max, mean, std, quantiles))
        });
        arrays.collect()
    }

    /// Read action chunks; see `vlaprep.dataset.Dataset.read_chunks`.
    fn read_chunks<'py>(
        &self,
        py: Python<'py>,
        column: &str,
        episode_index: &Bound<'py, PyAny>,
        start: &Bound<'py, PyAny>,
        chunk_size: usize,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let episode_index = Input::<i64>::new("episode_index", episode_index, 1)?;
        let start = Input::<i64>::new("start", start, 1)?;
        let (episodes, starts) = (episode_index.values()?, start.values()?);
        let (dataset, threads) = (&self.dataset, self.threads);
        let matrix = gate::run(py, |interrupt| {
            dataset.read_chunks(column, episodes, starts, chunk_size, threads, interrupt)
        })?;
        output(py, matrix.values, &[starts.len(), chunk_size, matrix.width])
    }
}

impl Reader {
    fn positions(&self, positions: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        let positions = Input::<i64>::new("positions", positions, 1)?;
        let count = self.dataset.episodes().len();
        let inside = |&position: &i64| usize::try_from(position).ok().filter(|&p| p < count);
        positions
            .values()?
            .iter()
            .map(inside)
            .collect::<Option<_>>()
            .ok_or_else(|| PyIndexError::new_err(format!("positions must lie in 0 ... {count}")))
    }
}

/// Offer an episode table as an Arrow stream.
///
/// Parameters
/// ----------
/// episode_index, length, task_index : int64 arrays, shape (E,)
///     One entry an episode; a task_index of -1 becomes null.
/// span_offsets : int64 array, shape (E + 1,)
///     Where the spans of each episode begin.
/// span_file, span_first_row, span_rows : int64 arrays, shape (S,)
///     The spans.
///
/// Returns
/// -------
/// capsule
///     An ``arrow_array_stream`` of the Arrow PyCapsule interface, with one record batch.
///
/// Raises
/// ------
/// ValueError
///     If the columns do not pair up.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "the columns of one table")]
pub(crate) fn episode_stream<'py>(
    py: Python<'py>,
    episode_index: &Bound<'py, PyAny>,
    length: &Bound<'py, PyAny>,
    task_index: &Bound<'py, PyAny>,
    span_offsets: &Bound<'py, PyAny>,
    span_file: &Bound<'py, PyAny>,
    span_first_row: &Bound<'py, PyAny>,
    span_rows: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let ids = |name: &str, value| -> PyResult<Vec<i64>> {
        Ok(Input::<i64>::new(name, value, 1)?.values()?.to_vec())
    };
    let sizes = |name: &str, value| -> PyResult<Vec<usize>> {
        Ok(ids(name, value)?.into_iter().map(|v| v as usize).collect())
    };
    let (file, first_row) = (
        sizes("span_file", span_file)?,
        sizes("span_first_row", span_first_row)?,
    );
    let rows = sizes("span_rows", span_rows)?;
    let spans = file.into_iter().zip(first_row).zip(rows);
    let table = EpisodeTable {
        episode_index: ids("episode_index", episode_index)?,
        length: ids("length", length)?,
        task_index: ids("task_index", task_index)?,
        span_offsets: sizes("span_offsets", span_offsets)?,
        spans: spans
            .map(|((file, row), rows)| Span::new(file, row, rows))
            .collect(),
    };
    let batch = gate::run(py, |_| table.to_arrow())?;
    let schema = batch.schema();
    let batches: Box<dyn RecordBatchReader + Send> =
        Box::new(RecordBatchIterator::new([Ok(batch)], schema));
    let stream = FFI_ArrowArrayStream::new(batches);
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}
