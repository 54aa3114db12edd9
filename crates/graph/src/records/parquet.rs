//! Batches of Arrow as a file of Parquet: row groups, compressed by Snappy, and a footer with their places.
//!
//! Rows wait in memory, encoded, until a row group has [`ROWS`] of them or [`BYTES`]. Without its footer a file cannot
//! be read, so a file is complete when it has been ended, and all of its rows are lost otherwise. Places and statistics
//! of the columns of a row group stay in memory until then; a file has at most [`GROUPS`] row groups. Pages have no
//! index, which would stay, too. Source: Apache Parquet format 2.12.

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use std::io::Write;

/// Most rows of a row group.
pub const ROWS: usize = 1 << 17;
/// Memory of the rows that wait for a row group, at which it is completed with fewer.
pub const BYTES: usize = 32 << 20;
/// Most row groups of a file.
pub const GROUPS: usize = 8_192;

/// A file of Parquet that is being written.
pub struct RowGroups<W: Write + Send> {
    writer: ArrowWriter<W>,
    most_groups: usize,
    is_ended: bool,
}

impl<W: Write + Send> RowGroups<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// If the beginning cannot be written, or a type of the schema has no form in Parquet.
    pub fn new(out: W, schema: &SchemaRef) -> Result<RowGroups<W>, ArrowError> {
        RowGroups::limited(out, schema, ROWS, GROUPS)
    }

    fn limited(
        out: W,
        schema: &SchemaRef,
        rows: usize,
        most_groups: usize,
    ) -> Result<RowGroups<W>, ArrowError> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(rows))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .build();
        let writer = ArrowWriter::try_new(out, SchemaRef::clone(schema), Some(properties))?;
        Ok(RowGroups { writer, most_groups, is_ended: false })
    }

    /// Adds a batch.
    ///
    /// # Errors
    /// If writing fails, or if the file has [`GROUPS`] row groups: it is ended then, with the rows before this batch.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        if self.writer.flushed_row_groups().len() >= self.most_groups {
            self.finish()?;
        }
        if self.is_ended {
            return Err(full(self.most_groups));
        }
        self.writer.write(batch)?;
        if self.writer.memory_size() >= BYTES {
            self.writer.flush()?;
        }
        // The crate has a buffer of its own for the bytes of a row group.
        self.writer.sync().map_err(|error| ParquetError::from(error).into())
    }

    /// Writes the last row group and the footer, once.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(&mut self) -> Result<(), ArrowError> {
        if !std::mem::replace(&mut self.is_ended, true) {
            self.writer.finish()?;
        }
        Ok(())
    }

    /// True if the file has its footer.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// The receiver of the bytes.
    pub fn get_mut(&mut self) -> &mut W {
        self.writer.inner_mut()
    }
}

fn full(groups: usize) -> ArrowError {
    let text = format!(
        "the file has {groups} row groups, the most that fyke writes to one, and is complete; write the rows after it \
         to another file, or as a stream of Arrow"
    );
    ArrowError::ParquetError(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Int64Array, StringArray};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::file::metadata::ParquetMetaData;
    use std::sync::Arc;

    fn batch(numbers: std::ops::Range<i64>, text_bytes: usize) -> RecordBatch {
        let text = |number: i64| -> String {
            let parts = (0..text_bytes as i64 / 16).map(|part| {
                let mixed = ((number << 16) + part + 1).wrapping_mul(-0x61c8_8646_80b5_83eb);
                format!("{:016x}", mixed ^ (mixed >> 29))
            });
            parts.collect()
        };
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(numbers.clone().map(text)));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        RecordBatch::try_from_iter([("number", numbers), ("text", texts)]).unwrap()
    }

    fn read(path: &std::path::Path) -> (Vec<i64>, Arc<ParquetMetaData>) {
        let file = std::fs::File::open(path).unwrap();
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let metadata = Arc::clone(builder.metadata());
        let numbers = builder.build().unwrap().flat_map(|batch| {
            let batch = batch.unwrap();
            batch.column(0).as_primitive::<Int64Type>().values().to_vec()
        });
        (numbers.collect(), metadata)
    }

    fn sizes(metadata: &ParquetMetaData) -> Vec<i64> {
        metadata.row_groups().iter().map(|group| group.num_rows()).collect()
    }

    #[test]
    fn a_full_file_is_complete_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.parquet");
        let out = std::fs::File::create(&path).unwrap();
        let mut file = RowGroups::limited(out, &batch(0..1, 1).schema(), 100, 3).unwrap();
        for at in 0..6 {
            file.write(&batch(at * 50..(at + 1) * 50, 1)).unwrap();
        }
        for _ in 0..2 {
            let error = file.write(&batch(300..301, 1)).unwrap_err().to_string();
            assert!(error.contains("3 row groups") && error.contains("is complete"), "{error}");
        }
        assert!(file.is_ended());
        file.finish().unwrap();
        let (numbers, metadata) = read(&path);
        assert_eq!(numbers, (0..300).collect::<Vec<_>>());
        assert_eq!(sizes(&metadata), [100, 100, 100]);
        let column = metadata.row_group(0).column(0);
        assert_eq!(column.compression(), Compression::SNAPPY);
        assert!(column.statistics().is_some() && column.offset_index_offset().is_none());
    }

    #[test]
    fn memory_bounds_a_row_group() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.parquet");
        let out = std::fs::File::create(&path).unwrap();
        let mut file = RowGroups::new(out, &batch(0..1, 1).schema()).unwrap();
        // Each text is another one, and does not become smaller.
        for at in 0..24 {
            file.write(&batch(at * 100..(at + 1) * 100, 30_000)).unwrap();
            assert!(file.writer.memory_size() < BYTES);
        }
        file.finish().unwrap();
        let (numbers, metadata) = read(&path);
        assert_eq!(numbers.len(), 2_400);
        assert!((2..24).contains(&sizes(&metadata).len()), "{:?}", sizes(&metadata));
    }
}
