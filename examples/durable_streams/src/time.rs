//! Times as in RFC 3339, in milliseconds of the Unix epoch.

const DAY: i64 = 24 * 60 * 60 * 1000;

/// Reads a time, for example `2030-01-02T03:04:05.678+01:00`.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, len: usize| -> Option<i64> {
        let digits = text.get(from..from + len)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let is = |at: usize, any: &[u8]| bytes.get(at).is_some_and(|byte| any.contains(byte));
    let marks = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !marks || !in_range || date(days(year, month, day)) != (year, month, day) {
        return None;
    }
    let mut at = 19;
    let mut millis = 0;
    if is(at, b".") {
        let digits = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        let kept = digits.min(3);
        millis = number(at + 1, kept)? * 10_i64.pow(3 - u32::try_from(kept).ok()?);
        at += 1 + digits;
    }
    let offset = match bytes.get(at)? {
        b'Z' | b'z' if bytes.len() == at + 1 => 0,
        sign @ (b'+' | b'-') if bytes.len() == at + 6 && is(at + 3, b":") => {
            let (hours, minutes) = (number(at + 1, 2)?, number(at + 4, 2)?);
            let offset = (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)?;
            if *sign == b'+' { offset } else { -offset }
        }
        _ => return None,
    };
    Some(days(year, month, day) * DAY + ((hour * 60 + minute - offset) * 60 + second) * 1000 + millis)
}

pub(crate) fn format(time: i64) -> String {
    let (year, month, day) = date(time.div_euclid(DAY));
    let rest = time.rem_euclid(DAY);
    let (hour, minute, second, milli) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March, so that a leap day is the
/// last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leaps + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Returns the date of a day.
fn date(day: i64) -> (i64, i64, i64) {
    // At most one year too late.
    let mut year = 1970 + day.div_euclid(365);
    while days(year, 1, 1) > day {
        year -= 1;
    }
    let month = (1..=12).rev().find(|&month| days(year, month, 1) <= day).unwrap_or(1);
    (year, month, day - days(year, month, 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, time) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2024-02-29T12:00:00.5Z", 1_709_208_000_500),
            ("2000-03-01T01:00:00+01:00", 951_868_800_000),
            ("2099-12-31t23:59:59.123456-00:30", 4_102_446_599_123),
        ] {
            assert_eq!(parse(text), Some(time), "{text}");
            assert_eq!(parse(&format(time)), Some(time), "{text}");
        }
        assert_eq!(format(1_709_208_000_500), "2024-02-29T12:00:00.500Z");
        for text in
            ["", "2023-02-29T00:00:00Z", "2024-01-01", "2024-01-01T00:00:00", "2024-01-01T24:00:00Z", "tomorrow"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
