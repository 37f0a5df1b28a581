//! One byte range of a file, RFC 9110 §14.

use std::ops::Range;

/// What a `Range` header asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing that can be served as a part: no header, another unit, several ranges, or not
    /// well-formed. The whole file is the answer.
    Whole,
    /// One part, within the file, end exclusive.
    Part(Range<u64>),
    /// A part that starts after the end.
    Outside,
}

/// Reads a `Range` header for a file of `length` bytes.
pub fn asked(header: Option<&str>, length: u64) -> Asked {
    let Some(spec) = header.and_then(|text| text.trim().strip_prefix("bytes=")) else {
        return Asked::Whole;
    };
    let Some((first, last)) = spec.split_once('-') else { return Asked::Whole };
    let (first, last) = (first.trim(), last.trim());
    if first.is_empty() {
        return match number(last) {
            None => Asked::Whole,
            Some(0) => Asked::Outside,
            Some(_) if length == 0 => Asked::Outside,
            Some(suffix) => Asked::Part(length.saturating_sub(suffix)..length),
        };
    }
    let Some(first) = number(first) else { return Asked::Whole };
    let end = if last.is_empty() {
        length
    } else {
        match number(last) {
            Some(last) if last >= first => last.saturating_add(1).min(length),
            _ => return Asked::Whole,
        }
    };
    if first >= length { Asked::Outside } else { Asked::Part(first..end) }
}

/// Digits alone; a number beyond 64 bits is as good as the largest.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_a_part_and_everything_odd_is_the_whole() {
        let cases = [
            (Some("bytes=0-4"), Asked::Part(0..5)),
            (Some("bytes=5-"), Asked::Part(5..10)),
            (Some("bytes=-3"), Asked::Part(7..10)),
            (Some("bytes=-30"), Asked::Part(0..10)),
            (Some("bytes=8-99999999999999999999999"), Asked::Part(8..10)),
            (Some("bytes=10-"), Asked::Outside),
            (Some("bytes=99999999999999999999999-"), Asked::Outside),
            (Some("bytes=-0"), Asked::Outside),
            (Some("bytes=4-2"), Asked::Whole),
            (Some("bytes=0-1,3-4"), Asked::Whole),
            (Some("bytes=a-b"), Asked::Whole),
            (Some("bytes=+1-2"), Asked::Whole),
            (Some("bytes=-"), Asked::Whole),
            (Some("rows=0-4"), Asked::Whole),
            (None, Asked::Whole),
        ];
        for (header, expected) in cases {
            assert_eq!(asked(header, 10), expected, "{header:?}");
        }
        assert_eq!(asked(Some("bytes=0-"), 0), Asked::Outside);
        assert_eq!(asked(Some("bytes=-1"), 0), Asked::Outside);
    }
}
