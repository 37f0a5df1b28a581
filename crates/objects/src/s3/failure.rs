//! What the client's errors mean to us.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::{
    config::http::HttpResponse,
    error::{ProvideErrorMetadata, SdkError},
    primitives::ByteStreamError,
};

use crate::{Cause, ObjectError};

/// The longest error code that is passed on.
const MAX_CODE_CHARS: usize = 64;

/// An error of the client as one of the port; the original becomes the cause.
pub(super) fn of_sdk<E>(error: SdkError<E, HttpResponse>) -> ObjectError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    match &error {
        SdkError::ServiceError(answer) => {
            let status = answer.raw().status().as_u16();
            let code = answer.err().meta().code().map_or_else(|| code_of(status), code_text);
            of_answer(code, status, error.into())
        }
        _ if has_credentials_error(&error) => {
            ObjectError::Refused { code: "NoCredentials".to_owned(), cause: error.into() }
        }
        SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => {
            ObjectError::Unreachable(error.into())
        }
        _ => ObjectError::Failed(error.into()),
    }
}

/// An error in the middle of a download.
pub(super) fn of_body(error: ByteStreamError) -> ObjectError {
    ObjectError::Unreachable(error.into())
}

/// Whether a refusal is of the moment: the store is busy or broke down, and would answer later.
pub(super) fn is_passing(code: &str) -> bool {
    const CODES: [&str; 5] =
        ["InternalError", "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown"];
    CODES.contains(&code) || (code.starts_with("HTTP5") && code != "HTTP501")
}

fn of_answer(code: String, status: u16, cause: Cause) -> ObjectError {
    match (code.as_str(), status) {
        // `NotFound` is what the client calls a 404 without a body, the answer to HEAD.
        ("NoSuchKey" | "NotFound", _) => ObjectError::NotFound,
        ("XMinioStorageFull" | "InsufficientStorage" | "QuotaExceeded", _) | (_, 507) => {
            ObjectError::Full(cause)
        }
        _ => ObjectError::Refused { code, cause },
    }
}

/// A code for an answer that names none, such as any answer to HEAD.
fn code_of(status: u16) -> String {
    match status {
        403 => "AccessDenied".to_owned(),
        404 => "NotFound".to_owned(),
        status => format!("HTTP{status}"),
    }
}

/// The store's code, if it looks like one: it is shown outside.
fn code_text(code: &str) -> String {
    let code: String =
        code.chars().filter(char::is_ascii_alphanumeric).take(MAX_CODE_CHARS).collect();
    if code.is_empty() { "Unknown".to_owned() } else { code }
}

fn has_credentials_error(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<CredentialsError>() {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_without_room_is_full() {
        for (code, status) in
            [("XMinioStorageFull", 507), ("Anything", 507), ("QuotaExceeded", 403)]
        {
            let error = of_answer(code.to_owned(), status, "cause".into());
            assert!(matches!(error, ObjectError::Full(_)), "{code}");
        }
    }

    #[test]
    fn a_code_is_letters_and_digits_or_unknown() {
        assert_eq!(code_text("AccessDenied"), "AccessDenied");
        assert_eq!(code_text("a: http://10.0.0.7/"), "ahttp10007");
        assert_eq!(code_text("…"), "Unknown");
    }
}
