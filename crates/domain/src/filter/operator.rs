//! The operators of conditions, and which columns they suit.

use crate::column::ColumnType;

/// The operators of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the contract's and say what they do")]
pub enum Operator {
    Eq,
    Ne,
    Gt,
    Gte,
    Lt,
    Lte,
    Between,
    NotBetween,
    In,
    NotIn,
    Contains,
    NotContains,
    StartsWith,
    EndsWith,
    IsNull,
    IsNotNull,
    InLast,
    InNext,
    InCurrent,
    InPrevious,
}

impl Operator {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::Eq,
        Self::Ne,
        Self::Gt,
        Self::Gte,
        Self::Lt,
        Self::Lte,
        Self::Between,
        Self::NotBetween,
        Self::In,
        Self::NotIn,
        Self::Contains,
        Self::NotContains,
        Self::StartsWith,
        Self::EndsWith,
        Self::IsNull,
        Self::IsNotNull,
        Self::InLast,
        Self::InNext,
        Self::InCurrent,
        Self::InPrevious,
    ];

    /// The name in requests, e.g. `NOT_BETWEEN`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eq => "EQ",
            Self::Ne => "NE",
            Self::Gt => "GT",
            Self::Gte => "GTE",
            Self::Lt => "LT",
            Self::Lte => "LTE",
            Self::Between => "BETWEEN",
            Self::NotBetween => "NOT_BETWEEN",
            Self::In => "IN",
            Self::NotIn => "NOT_IN",
            Self::Contains => "CONTAINS",
            Self::NotContains => "NOT_CONTAINS",
            Self::StartsWith => "STARTS_WITH",
            Self::EndsWith => "ENDS_WITH",
            Self::IsNull => "IS_NULL",
            Self::IsNotNull => "IS_NOT_NULL",
            Self::InLast => "IN_LAST",
            Self::InNext => "IN_NEXT",
            Self::InCurrent => "IN_CURRENT",
            Self::InPrevious => "IN_PREVIOUS",
        }
    }

    /// Whether a column of this type may be tested so.
    pub const fn suits(self, column_type: ColumnType) -> bool {
        match self {
            Self::IsNull | Self::IsNotNull => true,
            Self::Eq | Self::Ne | Self::In | Self::NotIn => {
                !matches!(column_type, ColumnType::Json | ColumnType::Binary | ColumnType::Float)
            }
            Self::Gt | Self::Gte | Self::Lt | Self::Lte | Self::Between | Self::NotBetween => {
                !matches!(
                    column_type,
                    ColumnType::Json | ColumnType::Binary | ColumnType::Boolean | ColumnType::Uuid
                )
            }
            Self::InLast | Self::InNext | Self::InCurrent | Self::InPrevious => matches!(
                column_type,
                ColumnType::Date | ColumnType::LocalTimestamp | ColumnType::Timestamp
            ),
            Self::Contains | Self::NotContains | Self::StartsWith | Self::EndsWith => {
                matches!(column_type, ColumnType::Text)
            }
        }
    }

    /// Whether what it asks for depends on the moment of the request.
    pub(super) const fn is_relative(self) -> bool {
        matches!(self, Self::InLast | Self::InNext | Self::InCurrent | Self::InPrevious)
    }

    pub(super) const fn negated(self) -> bool {
        matches!(
            self,
            Self::Ne | Self::NotBetween | Self::NotIn | Self::NotContains | Self::IsNotNull
        )
    }
}
