//! How errors of this crate are made; the type itself is part of the port.

use outport_domain::failure::{Disposition, FailureCode};

use crate::SourceError;

impl SourceError {
    /// An error with the code's own disposition.
    pub(crate) fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), disposition: code.disposition(), cause: None }
    }

    pub(crate) fn with_cause(
        self,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { cause: Some(cause.into()), ..self }
    }

    pub(crate) fn retried(self) -> Self {
        Self { disposition: Disposition::Retry, ..self }
    }

    pub(crate) fn abandoned(self) -> Self {
        Self { disposition: Disposition::Abandon, ..self }
    }

    /// The reader of rows is gone without a last word: it panicked, or its runtime stopped.
    pub(crate) fn reader_lost() -> Self {
        Self::new(FailureCode::Internal, "the reader of rows ended without saying why")
    }

    /// A row that would not fit into memory in good order.
    pub(crate) fn row_too_large() -> Self {
        Self::new(
            FailureCode::ValueNotEncodable,
            format!("a row is larger than {} MiB", crate::MOST_ROW_BYTES / (1024 * 1024)),
        )
    }
}
