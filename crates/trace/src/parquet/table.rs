//! A Parquet file that is written row by row, a group at a time.

use crate::model::Run;
use crate::whole::Whole;
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::io::{BufWriter, Error};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows of a group: what is held in memory of each file.
const GROUP: usize = 1 << 16;

/// What a column holds until its group is written.
#[derive(Debug)]
enum Values {
    Long(Vec<i64>),
    Int(Vec<i32>),
    Real(Vec<f64>),
    Flag(Vec<bool>),
    Text(Vec<ByteArray>),
}

/// Of a column that may say nothing, which rows say something.
#[derive(Debug)]
struct Column {
    values: Values,
    defined: Option<Vec<i16>>,
}

/// A file of rows. Values are given in the order of its columns.
pub(super) struct Table {
    path: PathBuf,
    writer: SerializedFileWriter<BufWriter<Whole>>,
    columns: Vec<Column>,
    next: usize,
    rows: usize,
    failed: Option<Error>,
}

fn other(error: parquet::errors::ParquetError) -> Error {
    match error {
        parquet::errors::ParquetError::External(inner) => match inner.downcast::<Error>() {
            Ok(error) => *error,
            Err(inner) => Error::other(inner),
        },
        error => Error::other(error),
    }
}

impl Table {
    /// `fields`: name and type; types are `long`, `int`, `real`, `flag` and `text`, with `?` where nothing may stand.
    pub fn create(out: &Path, name: &str, run: &Run, fields: &[(&str, &str)]) -> Result<Table, Error> {
        let mut message = format!("message {name} {{");
        let mut columns = Vec::new();
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_max_row_group_row_count(None)
            .set_key_value_metadata(Some(vec![KeyValue::new("date_ns".into(), run.date.to_string())]));
        for (field, kind) in fields {
            let (kind, optional) = kind.strip_suffix('?').map_or((*kind, false), |kind| (kind, true));
            let (primitive, values) = match kind {
                "int" => ("int32", Values::Int(Vec::new())),
                "real" => ("double", Values::Real(Vec::new())),
                "flag" => ("boolean", Values::Flag(Vec::new())),
                "text" => ("binary", Values::Text(Vec::new())),
                _ => ("int64", Values::Long(Vec::new())),
            };
            if kind == "long" {
                let path = ColumnPath::from(*field);
                properties = properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
            }
            let repetition = if optional { "optional" } else { "required" };
            let logical = if kind == "text" { " (STRING)" } else { "" };
            message += &format!(" {repetition} {primitive} {field}{logical};");
            columns.push(Column { values, defined: optional.then(Vec::new) });
        }
        let schema = Arc::new(parse_message_type(&(message + " }")).map_err(other)?);
        let path = out.join(format!("{name}.parquet"));
        let file = BufWriter::new(Whole::create(&path)?);
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).map_err(other)?;
        Ok(Table { path, writer, columns, next: 0, rows: 0, failed: None })
    }

    fn column(&mut self, defined: bool) -> &mut Values {
        let column = &mut self.columns[self.next];
        self.next += 1;
        if let Some(rows) = &mut column.defined {
            rows.push(i16::from(defined));
        }
        &mut column.values
    }

    pub fn long(&mut self, value: u64) -> &mut Self {
        self.perhaps(Some(value))
    }

    pub fn perhaps(&mut self, value: Option<u64>) -> &mut Self {
        if let (Values::Long(values), Some(value)) = (self.column(value.is_some()), value) {
            values.push(i64::try_from(value).unwrap_or(i64::MAX));
        }
        self
    }

    pub fn int(&mut self, value: i64) -> &mut Self {
        if let Values::Int(values) = self.column(true) {
            values.push(value.clamp(i32::MIN.into(), i32::MAX.into()) as i32);
        }
        self
    }

    pub fn maybe(&mut self, value: Option<u32>) -> &mut Self {
        if let (Values::Int(values), Some(value)) = (self.column(value.is_some()), value) {
            values.push(i32::try_from(value).unwrap_or(i32::MAX));
        }
        self
    }

    pub fn status(&mut self, value: Option<i32>) -> &mut Self {
        if let (Values::Int(values), Some(value)) = (self.column(value.is_some()), value) {
            values.push(value);
        }
        self
    }

    pub fn real(&mut self, value: f64) -> &mut Self {
        if let Values::Real(values) = self.column(true) {
            values.push(value);
        }
        self
    }

    pub fn flag(&mut self, value: bool) -> &mut Self {
        if let Values::Flag(values) = self.column(true) {
            values.push(value);
        }
        self
    }

    /// A text that is shared, not copied.
    pub fn shared(&mut self, value: &ByteArray) -> &mut Self {
        if let Values::Text(values) = self.column(true) {
            values.push(value.clone());
        }
        self
    }

    pub fn text(&mut self, value: &str) -> &mut Self {
        if let Values::Text(values) = self.column(true) {
            values.push(ByteArray::from(value));
        }
        self
    }

    pub fn address(&mut self, value: Option<SocketAddr>) -> &mut Self {
        if let (Values::Text(values), Some(value)) = (self.column(value.is_some()), value) {
            values.push(ByteArray::from(value.to_string().as_str()));
        }
        self
    }

    /// Ends a row.
    pub fn end(&mut self) {
        self.next = 0;
        self.rows += 1;
        if self.rows == GROUP {
            self.flush();
        }
    }

    /// Writes the group. An error is kept until the end.
    fn flush(&mut self) {
        if self.rows > 0
            && self.failed.is_none()
            && let Err(error) = self.write()
        {
            self.failed = Some(other(error));
        }
        self.rows = 0;
        for column in &mut self.columns {
            column.defined.iter_mut().for_each(Vec::clear);
            match &mut column.values {
                Values::Long(values) => values.clear(),
                Values::Int(values) => values.clear(),
                Values::Real(values) => values.clear(),
                Values::Flag(values) => values.clear(),
                Values::Text(values) => values.clear(),
            }
        }
    }

    fn write(&mut self) -> parquet::errors::Result<()> {
        let mut group = self.writer.next_row_group()?;
        for column in &self.columns {
            let Some(mut writer) = group.next_column()? else { break };
            let defined = column.defined.as_deref();
            match &column.values {
                Values::Long(values) => writer.typed::<Int64Type>().write_batch(values, defined, None)?,
                Values::Int(values) => writer.typed::<Int32Type>().write_batch(values, defined, None)?,
                Values::Real(values) => writer.typed::<DoubleType>().write_batch(values, defined, None)?,
                Values::Flag(values) => writer.typed::<BoolType>().write_batch(values, defined, None)?,
                Values::Text(values) => writer.typed::<ByteArrayType>().write_batch(values, defined, None)?,
            };
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }

    pub fn finish(mut self) -> Result<PathBuf, Error> {
        self.flush();
        if let Some(error) = self.failed {
            return Err(error);
        }
        let file = self.writer.into_inner().map_err(other)?;
        file.into_inner().map_err(|error| error.into_error())?.finish()?;
        Ok(self.path)
    }
}
