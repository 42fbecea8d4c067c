//! Arrow columns to plain numbers.
//!
//! Identifiers are integers of any width; vectors are lists of any kind, or scalars, of any numeric
//! type, and come out as rows of float32. A null is a null for an identifier and NaN in a vector:
//! never 0, and never a shift of the rows behind it.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, OffsetSizeTrait};
use arrow_schema::DataType;

/// Why a column cannot be used; the caller adds file and column.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// The type of the column.
    Type(String),
    /// One row, counted from the start of the array.
    Row(usize, String),
}

/// Calls `$body` with `$array` downcast to the primitive type of each `DataType`.
macro_rules! for_number {
    ($data_type:expr, [$($variant:ident => $type:ty),*], |$T:ident| $body:expr, else $other:expr) => {
        match $data_type {
            $(DataType::$variant => { type $T = $type; $body })*
            _ => $other,
        }
    };
}

/// The values of an integer column; null where there is none.
#[allow(
    clippy::unnecessary_fallible_conversions,
    clippy::useless_conversion,
    reason = "one body serves every width, and only u64 may not fit"
)]
pub(super) fn integers(array: &dyn Array) -> Result<Vec<Option<i64>>, Unusable> {
    match array.data_type() {
        DataType::Null => return Ok(vec![None; array.len()]),
        DataType::Float64 => return whole_floats(array.as_primitive::<Float64Type>().iter()),
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().iter();
            return whole_floats(values.map(|value| value.map(f64::from)));
        }
        _ => {}
    }
    for_number!(array.data_type(), [
        Int8 => Int8Type, Int16 => Int16Type, Int32 => Int32Type, Int64 => Int64Type,
        UInt8 => UInt8Type, UInt16 => UInt16Type, UInt32 => UInt32Type, UInt64 => UInt64Type
    ], |T| {
        let values = array.as_primitive::<T>();
        values.iter().enumerate().map(|(row, value)| {
            value.map(|value| i64::try_from(value).map_err(|_| {
                Unusable::Row(row, format!("{value} does not fit into 64 signed bits"))
            })).transpose()
        }).collect()
    }, else Err(Unusable::Type(format!("it holds {}, not integers", array.data_type()))))
}

/// Integers that an editor of tables has turned into floats, null into NaN.
fn whole_floats(values: impl Iterator<Item = Option<f64>>) -> Result<Vec<Option<i64>>, Unusable> {
    // Up to here every float is the integer it was made from.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let value = |(row, value): (usize, Option<f64>)| match value {
        Some(float) if float.is_nan() => Ok(None),
        Some(float) if float.fract() != 0.0 || float.abs() > EXACT => {
            Err(Unusable::Row(row, format!("{float} is no integer")))
        }
        whole => Ok(whole.map(|float| float as i64)),
    };
    values.enumerate().map(value).collect()
}

/// The values of a numeric column that only cross-checks: null where null, NaN or out of range.
pub(super) fn loose_integers(array: &dyn Array) -> Vec<Option<i64>> {
    match array.data_type() {
        DataType::Float64 => array
            .as_primitive::<Float64Type>()
            .iter()
            .map(|value| {
                value
                    .filter(|v| v.fract() == 0.0 && v.abs() < 9e15)
                    .map(|v| v as i64)
            })
            .collect(),
        _ => integers(array).unwrap_or_else(|_| vec![None; array.len()]),
    }
}

/// Whether `data_type` holds one number a row or a list of numbers.
pub(super) fn vector_type(data_type: &DataType) -> Result<(), Unusable> {
    let value = match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            item.data_type()
        }
        scalar => scalar,
    };
    if value.is_numeric() && !value.is_decimal() || value == &DataType::Null {
        return Ok(());
    }
    let what = if value.is_nested() {
        "its rows are nested, not vectors of numbers; store them flattened to one list a row"
    } else {
        "its rows are not vectors of numbers"
    };
    Err(Unusable::Type(format!("{what} (type {data_type})")))
}

/// Width of every row; `None` where it is null.
pub(super) fn widths(array: &dyn Array) -> Vec<Option<usize>> {
    fn of_list<O: OffsetSizeTrait>(array: &dyn Array) -> Vec<Option<usize>> {
        let list = array.as_list::<O>();
        (0..list.len())
            .map(|row| {
                list.is_valid(row)
                    .then(|| list.value_length(row).as_usize())
            })
            .collect()
    }
    match array.data_type() {
        DataType::List(_) => of_list::<i32>(array),
        DataType::LargeList(_) => of_list::<i64>(array),
        DataType::FixedSizeList(_, width) => (0..array.len())
            .map(|row| array.is_valid(row).then_some(*width as usize))
            .collect(),
        DataType::Null => vec![None; array.len()],
        _ => vec![Some(1); array.len()],
    }
}

/// Appends every row of `array` to `rows` as `width` float32 values.
pub(super) fn append_vectors(
    array: &ArrayRef,
    width: usize,
    rows: &mut Vec<f32>,
) -> Result<(), Unusable> {
    vector_type(array.data_type())?;
    match array.data_type() {
        DataType::List(_) => append_list::<i32>(array, width, rows),
        DataType::LargeList(_) => append_list::<i64>(array, width, rows),
        DataType::FixedSizeList(_, _) => {
            let list = array.as_fixed_size_list();
            let size = list.value_length() as usize;
            let spans = (0..list.len()).map(|row| list.is_valid(row).then_some((row * size, size)));
            append_spans(spans, list.values(), width, rows)
        }
        DataType::Null => {
            rows.extend(std::iter::repeat_n(f32::NAN, array.len() * width));
            Ok(())
        }
        _ => append_spans(
            (0..array.len()).map(|row| Some((row, 1))),
            array,
            width,
            rows,
        ),
    }
}

fn append_list<O: OffsetSizeTrait>(
    array: &ArrayRef,
    width: usize,
    rows: &mut Vec<f32>,
) -> Result<(), Unusable> {
    let list = array.as_list::<O>();
    let offsets = list.value_offsets();
    let spans = (0..list.len()).map(|row| {
        let (begin, end) = (offsets[row].as_usize(), offsets[row + 1].as_usize());
        list.is_valid(row).then_some((begin, end - begin))
    });
    append_spans(spans, list.values(), width, rows)
}

/// Appends the `(first, length)` span of `values` that each row owns; NaN where a row is null.
fn append_spans(
    spans: impl Iterator<Item = Option<(usize, usize)>>,
    values: &ArrayRef,
    width: usize,
    rows: &mut Vec<f32>,
) -> Result<(), Unusable> {
    let mut flat = Vec::with_capacity(values.len());
    append_floats(values, &mut flat)?;
    for (row, span) in spans.enumerate() {
        match span {
            Some((first, length)) if length == width => {
                rows.extend_from_slice(&flat[first..first + length]);
            }
            Some((_, length)) => {
                return Err(Unusable::Row(
                    row,
                    format!("it has {length} values where the rows of this column have {width}"),
                ));
            }
            None => rows.extend(std::iter::repeat_n(f32::NAN, width)),
        }
    }
    Ok(())
}

/// Appends every value as float32; NaN where it is null.
#[allow(
    clippy::cast_lossless,
    reason = "one body serves every width; wide integers round as NumPy's do"
)]
fn append_floats(values: &ArrayRef, out: &mut Vec<f32>) -> Result<(), Unusable> {
    fn append<T: ArrowPrimitiveType>(
        values: &ArrayRef,
        out: &mut Vec<f32>,
        single: impl Fn(T::Native) -> f32,
    ) {
        let values = values.as_primitive::<T>();
        if values.null_count() == 0 {
            out.extend(values.values().iter().map(|&value| single(value)));
        } else {
            out.extend(values.iter().map(|value| value.map_or(f32::NAN, &single)));
        }
    }
    match values.data_type() {
        DataType::Float32 => append::<Float32Type>(values, out, |v| v),
        DataType::Float64 => append::<Float64Type>(values, out, |v| v as f32),
        DataType::Float16 => append::<Float16Type>(values, out, half::f16::to_f32),
        DataType::Null => out.extend(std::iter::repeat_n(f32::NAN, values.len())),
        integer => for_number!(integer, [
            Int8 => Int8Type, Int16 => Int16Type, Int32 => Int32Type, Int64 => Int64Type,
            UInt8 => UInt8Type, UInt16 => UInt16Type, UInt32 => UInt32Type, UInt64 => UInt64Type
        ], |T| append::<T>(values, out, |v| v as f32),
        else return Err(Unusable::Type(format!("its values are {integer}, not numbers")))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type as I32;
    use arrow_array::{
        BooleanArray, Float32Array, Int64Array, ListArray, NullArray, UInt8Array, UInt64Array,
    };

    use super::*;

    #[test]
    fn integers_of_every_width_and_their_nulls() {
        let small: ArrayRef = Arc::new(UInt8Array::from(vec![Some(200), None]));
        assert_eq!(integers(&small).unwrap(), [Some(200), None]);
        assert_eq!(integers(&NullArray::new(2)).unwrap(), [None, None]);
        assert!(matches!(
            integers(&UInt64Array::from(vec![u64::MAX])),
            Err(Unusable::Row(0, _))
        ));
        let edited = Float32Array::from(vec![Some(3.0), Some(f32::NAN), None]);
        assert_eq!(integers(&edited).unwrap(), [Some(3), None, None]);
        assert!(matches!(
            integers(&Float32Array::from(vec![1.0, 0.5])),
            Err(Unusable::Row(1, _))
        ));
        assert!(matches!(
            integers(&BooleanArray::from(vec![true])),
            Err(Unusable::Type(_))
        ));
    }

    #[test]
    fn null_rows_and_elements_are_nan_and_shift_nothing() {
        let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<I32, _, _>([
            Some(vec![Some(1), Some(2)]),
            None,
            Some(vec![None, Some(4)]),
        ]));
        let mut rows = Vec::new();
        append_vectors(&list, 2, &mut rows).unwrap();
        assert_eq!(rows[..2], [1.0, 2.0]);
        assert!(rows[2].is_nan() && rows[3].is_nan() && rows[4].is_nan());
        assert_eq!(rows[5].to_bits(), 4.0f32.to_bits());
        assert_eq!(widths(&list), [Some(2), None, Some(2)]);
    }

    #[test]
    fn rows_of_another_width_are_named() {
        let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<I32, _, _>([
            Some(vec![Some(1), Some(2)]),
            Some(vec![Some(1)]),
        ]));
        assert!(matches!(
            append_vectors(&list, 2, &mut Vec::new()),
            Err(Unusable::Row(1, _))
        ));
    }

    #[test]
    fn scalars_are_vectors_of_one_and_booleans_are_none() {
        let scalar: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None]));
        let mut rows = Vec::new();
        append_vectors(&scalar, 1, &mut rows).unwrap();
        assert!(rows[0].to_bits() == 7.0f32.to_bits() && rows[1].is_nan());
        let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
        assert!(append_vectors(&flags, 1, &mut rows).is_err());
    }
}
