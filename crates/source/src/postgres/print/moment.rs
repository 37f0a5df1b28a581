//! Days, times and instants.

use super::{TWO, four, short::Short};

const DAY_MICROSECONDS: i64 = 86_400_000_000;

/// Days since 2000-01-01.
pub(super) fn date(days: i32, out: &mut Vec<u8>) {
    match days {
        i32::MAX => out.extend_from_slice(b"infinity"),
        i32::MIN => out.extend_from_slice(b"-infinity"),
        _ => {
            let mut text = Short::new();
            let day = Date::of(i64::from(days));
            day.print(&mut text);
            day.print_era(&mut text);
            text.end(out);
        }
    }
}

/// Microseconds since 2000-01-01, in UTC when there is a zone.
pub(super) fn timestamp(microseconds: i64, has_zone: bool, out: &mut Vec<u8>) {
    match microseconds {
        i64::MAX => out.extend_from_slice(b"infinity"),
        i64::MIN => out.extend_from_slice(b"-infinity"),
        _ => {
            let mut text = Short::new();
            let day = Date::of(microseconds.div_euclid(DAY_MICROSECONDS));
            day.print(&mut text);
            text.push(*b" ");
            time(microseconds.rem_euclid(DAY_MICROSECONDS).cast_unsigned(), &mut text);
            if has_zone {
                text.push(*b"+00");
            }
            day.print_era(&mut text);
            text.end(out);
        }
    }
}

/// A day of the Gregorian calendar for all time; the year 0 is 1 BC.
struct Date {
    year: i64,
    month: u32,
    day: u32,
}

impl Date {
    /// By days since 2000-01-01.
    ///
    /// After C. Neri and L. Schneider, "Euclidean affine functions and their application to
    /// calendar algorithms" (2022): multiplications where the plain way divides thrice as often.
    fn of(days: i64) -> Self {
        // Eras of 400 years begin on the first of March of the year 0.
        let day = days + 730_425;
        let era = day.div_euclid(146_097);
        let in_quarters = 4 * day.rem_euclid(146_097) as u32 + 3;
        let century = in_quarters / 146_097;
        let in_quarters = (in_quarters % 146_097) | 3;
        let product = 2_939_745 * u64::from(in_quarters);
        let year_of_century = (product >> 32) as u32;
        let day_of_year = product as u32 / 2_939_745 / 4;
        let in_shares = 2_141 * day_of_year + 197_913;
        let (month, day) = (in_shares >> 16, (in_shares & 0xFFFF) / 2_141 + 1);
        // The year began with March, as its month 3.
        let is_next_year = day_of_year >= 306;
        Self {
            year: 400 * era + i64::from(100 * century + year_of_century + u32::from(is_next_year)),
            month: if is_next_year { month - 12 } else { month },
            day,
        }
    }

    fn print(&self, text: &mut Short) {
        let year = if self.year <= 0 { 1 - self.year } else { self.year }.cast_unsigned();
        if let Ok(Ok(digits)) = u16::try_from(year).map(four) {
            text.push(digits);
        } else {
            itoa::Buffer::new().format(year).bytes().for_each(|digit| text.push([digit]));
        }
        let ([m1, m2], [d1, d2]) = (TWO[self.month as usize], TWO[self.day as usize]);
        text.push([b'-', m1, m2, b'-', d1, d2]);
    }

    fn print_era(&self, text: &mut Short) {
        if self.year <= 0 {
            text.push(*b" BC");
        }
    }
}

/// Microseconds since midnight, a whole day at most.
pub(super) fn time(microseconds: u64, text: &mut Short) {
    let seconds = (microseconds / 1_000_000) as u32;
    let fraction = (microseconds % 1_000_000) as u32;
    let two = |number: u32| TWO[(number % 100) as usize];
    let ([h1, h2], [m1, m2], [s1, s2]) =
        (two(seconds / 3_600), two(seconds / 60 % 60), two(seconds % 60));
    text.push([h1, h2, b':', m1, m2, b':', s1, s2]);
    if fraction > 0 {
        let ([f1, f2], [f3, f4], [f5, f6]) =
            (two(fraction / 10_000), two(fraction / 100), two(fraction));
        text.push([b'.', f1, f2, f3, f4, f5, f6]);
        while text.last() == b'0' {
            text.take_back(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::{Datelike, NaiveDate};

    use super::{
        super::{Form, NoValue, print},
        DAY_MICROSECONDS,
    };

    fn printed(form: Form, value: &[u8]) -> Result<String, NoValue> {
        let mut out = Vec::new();
        print(form, value, &mut out)?;
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn days_are_counted_as_the_server_counts_them() {
        let days = |days: i32| printed(Form::Date, &days.to_be_bytes()).expect("a day");
        assert_eq!(days(0), "2000-01-01");
        assert_eq!(days(59), "2000-02-29");
        assert_eq!(days(-1), "1999-12-31");
        assert_eq!(days(-730_119), "0001-01-01");
        assert_eq!(days(-730_120), "0001-12-31 BC");
        assert_eq!(days(i32::MAX), "infinity");
        assert_eq!(days(i32::MIN), "-infinity");
    }

    #[test]
    fn every_day_is_the_calendars_own() {
        let first = NaiveDate::from_ymd_opt(-400, 1, 1).expect("a day");
        let last = NaiveDate::from_ymd_opt(10_001, 12, 31).expect("a day");
        let origin = NaiveDate::from_ymd_opt(2000, 1, 1).expect("a day");
        for day in first.iter_days().take_while(|day| *day <= last) {
            let days = day.signed_duration_since(origin).num_days() as i32;
            let (before_christ, year) = day.year_ce();
            let expected = format!(
                "{year:04}-{:02}-{:02}{}",
                day.month(),
                day.day(),
                if before_christ { "" } else { " BC" }
            );
            assert_eq!(printed(Form::Date, &days.to_be_bytes()).as_deref(), Ok(&*expected));
        }
    }

    #[test]
    fn any_bytes_are_a_moment_or_none() {
        for edge in [i64::MIN, i64::MIN + 1, -1, 0, 1, DAY_MICROSECONDS, i64::MAX - 1, i64::MAX] {
            for form in [Form::Time, Form::LocalTimestamp, Form::Timestamp] {
                let text = printed(form, &edge.to_be_bytes());
                assert!(text.is_ok() || form == Form::Time, "{form:?} of {edge}");
            }
        }
        for edge in [i32::MIN + 1, i32::MAX - 1] {
            assert!(printed(Form::Date, &edge.to_be_bytes()).is_ok(), "{edge}");
        }
    }
}
