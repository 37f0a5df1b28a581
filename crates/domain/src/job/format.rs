//! What a file is: its format, and how it is compressed.

/// The format of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Comma-separated values, RFC 4180.
    #[default]
    Csv,
    /// One JSON object a line.
    Ndjson,
    /// One JSON array of objects.
    Json,
    /// A workbook of one sheet, ECMA-376.
    Xlsx,
    /// Apache Parquet.
    Parquet,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Csv, Self::Ndjson, Self::Json, Self::Xlsx, Self::Parquet];

    /// The name on the wire, e.g. `CSV`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Csv => "CSV",
            Self::Ndjson => "NDJSON",
            Self::Json => "JSON",
            Self::Xlsx => "XLSX",
            Self::Parquet => "PARQUET",
        }
    }

    /// The format with this wire name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Of file names and object keys, e.g. `csv`.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
            Self::Json => "json",
            Self::Xlsx => "xlsx",
            Self::Parquet => "parquet",
        }
    }

    /// The media type, e.g. `text/csv`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv",
            Self::Ndjson => "application/x-ndjson",
            Self::Json => "application/json",
            Self::Xlsx => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }

    /// Whether a file may be compressed as a whole.
    pub const fn is_compressible(self) -> bool {
        matches!(self, Self::Csv | Self::Ndjson | Self::Json)
    }
}

/// How a file is compressed as a whole. The stored bytes are the compressed ones, and name and
/// media type say so; there is never a `Content-Encoding` (rule 22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Gzip, Self::Zstd];

    /// The name on the wire, e.g. `gzip`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// The compression with this wire name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|compression| compression.name() == name)
    }

    /// What follows the format's extension, e.g. `.gz`.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
        }
    }

    /// The extension of a file of this format, e.g. `csv.gz`.
    pub fn extension(self, format: Format) -> String {
        format!("{}{}", format.extension(), self.suffix())
    }

    /// The media type of a file of this format, e.g. `application/gzip`.
    pub const fn content_type(self, format: Format) -> &'static str {
        match self {
            Self::None => format.content_type(),
            Self::Gzip => "application/gzip",
            Self::Zstd => "application/zstd",
        }
    }
}
