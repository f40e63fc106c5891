//! Durations as Go reads and prints them: in the kubelet's configuration, events and statuses.

use std::time::Duration;

/// Parses Go's duration syntax: `300ms`, `1.5h`, `2h45m`, `0`. Negative durations are rejected: no
/// field of the kubelet's configuration allows one.
pub fn parse(text: &str) -> Result<Duration, String> {
    let invalid = || format!("{text:?} is not a duration such as \"1m30s\", \"500ms\" or \"0s\"");
    if text.starts_with('-') {
        return Err(format!("{text:?} is negative"));
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| c != '.' && !c.is_ascii_digit())
            .ok_or_else(invalid)?;
        let (number, after) = rest.split_at(digits);
        let letters = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit = unit_nanos(unit).ok_or_else(invalid)?;
        nanos = nanos
            .checked_add(multiply(number, unit).ok_or_else(invalid)?)
            .ok_or_else(invalid)?;
        rest = after;
    }
    // Go counts nanoseconds in an i64.
    match u64::try_from(nanos) {
        Ok(nanos) if nanos <= i64::MAX as u64 => Ok(Duration::from_nanos(nanos)),
        _ => Err(format!("{text:?} is longer than a duration can be")),
    }
}

fn unit_nanos(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3_600 * 1_000_000_000,
        _ => return None,
    })
}

/// `number`, with at most one decimal point, times `unit`, rounded down to nanoseconds.
fn multiply(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let value = |digits: &str| -> Option<u128> {
        if digits.is_empty() {
            Some(0)
        } else {
            digits.parse::<u64>().ok().map(u128::from)
        }
    };
    // An hour has fewer nanoseconds than 10^15: further digits make no difference.
    let fraction = fraction.get(..15).unwrap_or(fraction);
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    value(whole)?
        .checked_mul(unit)?
        .checked_add(value(fraction)? * unit / scale)
}

/// Formats a duration as Go's `Duration.String` does: `1m30s`, `1.5s`, `0s`.
pub fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let (secs, below) = (duration.as_secs(), duration.subsec_nanos());
    if secs == 0 {
        let (unit, name) = match below {
            n if n >= 1_000_000 => (1_000_000_u32, "ms"),
            n if n >= 1_000 => (1_000, "\u{b5}s"),
            _ => (1, "ns"),
        };
        let number = decimal(u64::from(below / unit), below % unit, unit);
        return format!("{number}{name}");
    }
    let (h, m, s) = (secs / 3600, secs / 60 % 60, secs % 60);
    let s = decimal(s, below, 1_000_000_000);
    match (h, m) {
        (0, 0) => format!("{s}s"),
        (0, m) => format!("{m}m{s}s"),
        (h, m) => format!("{h}h{m}m{s}s"),
    }
}

/// `whole` and `rest` as a decimal number, `unit` being the value of one whole.
fn decimal(whole: u64, rest: u32, unit: u32) -> String {
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    format!(
        "{whole}.{}",
        format!("{rest:0width$}").trim_end_matches('0')
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parses_the_syntax_of_go() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("1m30s", 90_000),
            ("+5s", 5_000),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("300ms", 300),
            ("2h45m", 9_900_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for invalid in [
            "",
            "1",
            "s",
            ".s",
            "-1s",
            "1x",
            "1.1.1s",
            "99999999999999h",
            "1 s",
            "+",
            "é",
        ] {
            assert!(parse(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn formats_as_go_does() {
        for text in ["0s", "1m30s", "1h0m0s", "500ms", "1.5s", "2m0.25s", "7ns"] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
    }

    proptest! {
        #[test]
        fn formatted_durations_parse_to_the_same_value(nanos in 0..i64::MAX as u64) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn arbitrary_text_never_panics(text in "[-+0-9.hmnsuµx]{0,24}") {
            let _ = parse(&text);
        }
    }
}
