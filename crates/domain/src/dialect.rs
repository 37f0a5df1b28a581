//! The CSV dialect of a request: RFC 4180 with the choices that spreadsheets force on people.

/// How one CSV file is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvDialect {
    /// Between cells.
    pub delimiter: Delimiter,
    /// Whether the file starts with a UTF-8 byte order mark.
    pub bom: bool,
    /// When cells are quoted.
    pub quote: QuotePolicy,
    /// Between records, the last one included.
    pub line_ending: LineEnding,
    /// What NULL is written as; empty by default. Empty text is then `""`.
    pub null_text: String,
}

/// Between cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delimiter {
    /// `,`
    #[default]
    Comma,
    /// `;`, for spreadsheets where the comma is decimal.
    Semicolon,
    /// A tab.
    Tab,
    /// `|`
    Pipe,
}

impl Delimiter {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Comma, Self::Semicolon, Self::Tab, Self::Pipe];

    /// The byte itself; a request names the delimiter by it.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Comma => b',',
            Self::Semicolon => b';',
            Self::Tab => b'\t',
            Self::Pipe => b'|',
        }
    }
}

/// When cells are quoted. A cell that must be quoted to be read back always is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotePolicy {
    /// Only when they must be.
    #[default]
    Necessary,
    /// All but NULL.
    All,
    /// All but NULL and cells of numeric columns.
    NonNumeric,
}

impl QuotePolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Necessary, Self::All, Self::NonNumeric];

    /// The name in requests, e.g. `non_numeric`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Necessary => "necessary",
            Self::All => "all",
            Self::NonNumeric => "non_numeric",
        }
    }
}

/// Between records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineEnding {
    /// One line feed.
    #[default]
    Lf,
    /// Carriage return and line feed.
    CrLf,
}

impl LineEnding {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Lf, Self::CrLf];

    /// The name in requests: `LF` or `CRLF`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lf => "LF",
            Self::CrLf => "CRLF",
        }
    }

    /// The bytes themselves.
    pub const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Lf => b"\n",
            Self::CrLf => b"\r\n",
        }
    }
}

/// What to do about cells that a spreadsheet would run as a formula (rule 16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FormulaGuard {
    /// Guard text cells and headers with a leading apostrophe, and count it.
    #[default]
    Text,
    /// Leave everything as it is.
    Off,
}

/// What to do about bytes that are no valid UTF-8, and NUL (rule 10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InvalidText {
    /// Replace them, and count it.
    #[default]
    Replace,
    /// Fail the job.
    Fail,
}
