//! What a column holds: the declared type decides its filter operators and how it is guarded.

/// The declared type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// Any text, enums included.
    Text,
    /// A whole number of any size.
    Integer,
    /// An exact decimal of any precision.
    Decimal,
    /// A binary floating-point number.
    Float,
    /// True or false.
    Boolean,
    /// A calendar day.
    Date,
    /// A day and a time of day without a zone, printed as stored.
    LocalTimestamp,
    /// An instant; printed in the job's time zone.
    Timestamp,
    /// A time of day.
    Time,
    /// A UUID.
    Uuid,
    /// A JSON document; arrays and composites are declared so too.
    Json,
    /// Bytes.
    Binary,
}

/// How many digits a decimal has at most, where that is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digits {
    /// In all, 1 to 38.
    pub precision: u8,
    /// After the point, at most as many.
    pub scale: u8,
}

impl ColumnType {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Text,
        Self::Integer,
        Self::Decimal,
        Self::Float,
        Self::Boolean,
        Self::Date,
        Self::LocalTimestamp,
        Self::Timestamp,
        Self::Time,
        Self::Uuid,
        Self::Json,
        Self::Binary,
    ];

    /// The name in resource files, e.g. `localTimestamp`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Decimal => "decimal",
            Self::Float => "float",
            Self::Boolean => "boolean",
            Self::Date => "date",
            Self::LocalTimestamp => "localTimestamp",
            Self::Timestamp => "timestamp",
            Self::Time => "time",
            Self::Uuid => "uuid",
            Self::Json => "json",
            Self::Binary => "binary",
        }
    }

    /// The type with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column_type| column_type.name() == name)
    }

    /// Whether cells are numbers, so that a leading sign is no formula.
    pub const fn is_numeric(self) -> bool {
        matches!(self, Self::Integer | Self::Decimal | Self::Float)
    }

    /// Whether cells are days, times or instants.
    pub const fn is_temporal(self) -> bool {
        matches!(self, Self::Date | Self::LocalTimestamp | Self::Timestamp | Self::Time)
    }
}
