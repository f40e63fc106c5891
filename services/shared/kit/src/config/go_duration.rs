use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de};

/// Reads Go's duration syntax: `300ms`, `-1.5h`, `2h45m`, `0`.
/// A negative duration, which no field of the configuration allows, is refused.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as \"1m30s\", \"500ms\" or \"0s\"");
    if text.starts_with('-') {
        return Err(format!("{text:?} is negative"));
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| c != '.' && !c.is_ascii_digit())
            .ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let letters = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit = unit_nanos(unit).ok_or_else(wrong)?;
        nanos = nanos
            .checked_add(times(number, unit).ok_or_else(wrong)?)
            .ok_or_else(wrong)?;
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

/// `number`, with at most one point, times `unit`; what is below a nanosecond is cut off.
fn times(number: &str, unit: u128) -> Option<u128> {
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
    // More digits than nanoseconds in an hour say nothing.
    let fraction = &fraction[..fraction.len().min(15)];
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    value(whole)?
        .checked_mul(unit)?
        .checked_add(value(fraction)? * unit / scale)
}

/// Writes a duration as Go does, for `configz`.
pub(super) fn write(duration: Duration) -> String {
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
        return format!(
            "{}{name}",
            fraction(u64::from(below / unit), below % unit, unit)
        );
    }
    let (h, m, s) = (secs / 3600, secs / 60 % 60, secs % 60);
    let s = fraction(s, below, 1_000_000_000);
    match (h, m) {
        (0, 0) => format!("{s}s"),
        (0, m) => format!("{m}m{s}s"),
        (h, m) => format!("{h}h{m}m{s}s"),
    }
}

fn fraction(whole: u64, rest: u32, unit: u32) -> String {
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    format!(
        "{whole}.{}",
        format!("{rest:0width$}").trim_end_matches('0')
    )
}

struct Text;

impl de::Visitor<'_> for Text {
    type Value = Duration;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a duration such as \"1m30s\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        parse(text).map_err(E::custom)
    }
}

/// For `#[serde(with = …)]`.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    from.deserialize_str(Text)
}

/// For `#[serde(with = …)]`.
pub(super) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&write(*duration))
}

/// The same for optional fields.
pub(super) mod option {
    use super::*;

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        #[derive(Deserialize)]
        struct Wrapped(#[serde(with = "super")] Duration);
        Ok(Option::<Wrapped>::deserialize(from)?.map(|wrapped| wrapped.0))
    }

    pub(in super::super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, to),
            None => to.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gos_syntax() {
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
        for bad in [
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
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn written_as_go_writes() {
        for text in ["0s", "1m30s", "1h0m0s", "500ms", "1.5s", "2m0.25s", "7ns"] {
            assert_eq!(write(parse(text).unwrap()), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(nanos in 0..i64::MAX as u64) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&write(duration)), Ok(duration));
        }

        #[test]
        fn junk_never_panics(text in "[-+0-9.hmnsuµx]{0,24}") {
            let _ = parse(&text);
        }
    }
}
