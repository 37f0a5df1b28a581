//! What makes parts an object; the same for every store.

use std::collections::BTreeMap;

use crate::ObjectError;

/// The size of the object that parts of these sizes, by number, make: numbered from 1 without a
/// gap, all but the last of one size. No part at all makes an empty object. S3 itself would
/// take a gap and cut rows out of a file.
pub(crate) fn total_bytes(sizes: &BTreeMap<u32, u64>) -> Result<u64, ObjectError> {
    let Some((&last, &last_size)) = sizes.last_key_value() else { return Ok(0) };
    let part_bytes = sizes.get(&1).copied().unwrap_or(0);
    let whole = !sizes.contains_key(&0)
        && sizes.len() == last as usize
        && sizes.range(..last).all(|(_, size)| *size == part_bytes)
        && last_size <= part_bytes;
    if whole {
        Ok(u64::from(last - 1) * part_bytes + last_size)
    } else {
        Err(invalid_part("a part is missing or of the wrong size"))
    }
}

/// A refusal of ours, in the word S3 has for it.
pub(crate) fn invalid_part(cause: &str) -> ObjectError {
    refused("InvalidPart", cause)
}

/// A refusal of ours.
pub(crate) fn refused(code: &str, cause: &str) -> ObjectError {
    ObjectError::Refused { code: code.to_owned(), cause: cause.into() }
}
