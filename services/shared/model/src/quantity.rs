//! Kubernetes quantities (`100m`, `1.5Gi`, `2e3`), exact to a billionth.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Sub};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Why a text is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// No digits, an unknown suffix, or something else that is not allowed.
    #[error(
        "\"{0}\" is not a quantity: expected a number with an optional suffix such as m, k, M, G, Ki, Mi, Gi"
    )]
    Format(String),
}

/// An amount of something, in billionths. Arithmetic stops at the ends of the
/// range, which lie far beyond what the API can hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i128);

const NANO: i128 = 1_000_000_000;
/// What an API quantity can hold: 2^63-1, in billionths.
const MAX: i128 = (i64::MAX as i128) * NANO;

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// So many whole units.
    pub const fn from_units(units: i64) -> Self {
        Self(units as i128 * NANO)
    }

    /// So many thousandths.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis as i128 * 1_000_000)
    }

    /// Reads a quantity. What lies beyond the range or below a billionth is
    /// rounded as upstream rounds it: to the range's end, and away from zero.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        parse(text).ok_or_else(|| QuantityError::Format(text.to_owned()))
    }

    /// In billionths.
    pub fn nanos(self) -> i128 {
        self.0
    }

    /// In whole units, rounded away from zero.
    pub fn value(self) -> i64 {
        clamp(div_away(self.0, NANO))
    }

    /// In thousandths, rounded away from zero.
    pub fn millis(self) -> i64 {
        clamp(div_away(self.0, 1_000_000))
    }

    /// In whole units, rounded away from zero; nothing when below zero.
    pub fn bytes(self) -> u64 {
        u64::try_from(self.value()).unwrap_or(0)
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether it is more than nothing.
    pub fn is_positive(self) -> bool {
        self.0 > 0
    }

    /// Rounded up to thousandths, as the API stores it.
    pub fn round_to_millis(self) -> Self {
        Self(div_away(self.0, 1_000_000).saturating_mul(1_000_000))
    }

    /// In the API's canonical form, with decimal suffixes (m, k, M).
    pub fn to_decimal(self) -> String {
        let mut number = self.0;
        if number == 0 {
            return "0".to_owned();
        }
        // Suffixes from billionths upwards.
        for suffix in ["n", "u", "m", "", "k", "M", "G", "T", "P"] {
            if number % 1000 != 0 {
                return format!("{number}{suffix}");
            }
            number /= 1000;
        }
        format!("{number}E")
    }

    /// In the API's canonical form, with binary suffixes (Ki, Mi) where it is
    /// a whole number of 1024 or more, and decimal ones elsewhere.
    pub fn to_binary(self) -> String {
        if self.0 % NANO != 0 || self.0.abs() < 1024 * NANO {
            return self.to_decimal();
        }
        let mut number = self.0 / NANO;
        for suffix in ["", "Ki", "Mi", "Gi", "Ti", "Pi"] {
            if number % 1024 != 0 {
                return format!("{number}{suffix}");
            }
            number /= 1024;
        }
        format!("{number}Ei")
    }
}

impl Add for Amount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0).clamp(-MAX, MAX))
    }
}

impl Sub for Amount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0).clamp(-MAX, MAX))
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_decimal())
    }
}

/// One entry of a list of resources; `None` when it is absent or unreadable.
pub fn get(list: Option<&BTreeMap<String, Quantity>>, name: &str) -> Option<Amount> {
    Amount::parse(&list?.get(name)?.0).ok()
}

/// All readable entries of a list of resources.
pub fn read(list: Option<&BTreeMap<String, Quantity>>) -> BTreeMap<String, Amount> {
    let entries = list.into_iter().flatten();
    entries
        .filter_map(|(name, text)| Some((name.clone(), Amount::parse(&text.0).ok()?)))
        .collect()
}

/// A list of resources in canonical form: CPU in decimal, all else in binary suffixes.
pub fn write(list: &BTreeMap<String, Amount>) -> BTreeMap<String, Quantity> {
    let entries = list.iter().map(|(name, amount)| {
        let text = if name == "cpu" {
            amount.to_decimal()
        } else {
            amount.to_binary()
        };
        (name.clone(), Quantity(text))
    });
    entries.collect()
}

fn parse(text: &str) -> Option<Amount> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let whole_end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (whole, rest) = rest.split_at(whole_end);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(
            rest.find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len()),
        ),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (base, exponent) = suffix_of(suffix)?;
    let nanos = scale(whole, fraction, base, exponent)
        .unwrap_or(MAX)
        .min(MAX);
    Some(Amount(if negative { -nanos } else { nanos }))
}

/// The base and exponent that a suffix stands for.
fn suffix_of(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "" => (10, 0),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // A number of more digits than this is out of any range.
            let size = digits
                .parse::<i32>()
                .unwrap_or(i32::MAX / 2)
                .min(i32::MAX / 2);
            (
                10,
                if exponent.starts_with('-') {
                    -size
                } else {
                    size
                },
            )
        }
    })
}

/// The number in billionths; `None` past the range.
fn scale(whole: &str, fraction: &str, base: u32, exponent: i32) -> Option<i128> {
    let significant = |text: &str| text.trim_start_matches('0').is_empty();
    if significant(whole) && significant(fraction) {
        return Some(0);
    }
    // Digits past the twentieth of a fraction only say whether to round up.
    let (kept, dropped) = fraction.split_at(fraction.len().min(20));
    let mut digits: i128 = 0;
    for digit in whole.trim_start_matches('0').bytes().chain(kept.bytes()) {
        digits = digits
            .checked_mul(10)?
            .checked_add(i128::from(digit - b'0'))?;
    }
    let mut below = 10_i128.checked_pow(u32::try_from(kept.len()).ok()?)?;
    if dropped.bytes().any(|digit| digit != b'0') {
        digits = digits.checked_mul(10)?.checked_add(1)?;
        below = below.checked_mul(10)?;
    }
    let (mut above, mut power) = (NANO, exponent.unsigned_abs());
    if base == 10 && exponent < 0 {
        // Below a billionth of the smallest digit there is only rounding left.
        power = power.min(30);
        let (quotient, shrunk) = match below.checked_mul(10_i128.checked_pow(power)?) {
            Some(more) => (above, more),
            None => return Some(1),
        };
        (above, below) = (quotient, shrunk);
    } else {
        above = above.checked_mul(i128::from(base).checked_pow(power)?)?;
    }
    // Shorten before multiplying, so that exact inputs stay in range.
    let shared = gcd(above, below);
    let (above, below) = (above / shared, below / shared);
    let shared = gcd(digits, below);
    let (digits, below) = (digits / shared, below / shared);
    Some(div_away(digits.checked_mul(above)?, below))
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

fn div_away(number: i128, by: i128) -> i128 {
    let quotient = number / by;
    if number % by == 0 {
        quotient
    } else {
        quotient + number.signum()
    }
}

fn clamp(number: i128) -> i64 {
    i64::try_from(number.clamp(i128::from(i64::MIN), i128::from(i64::MAX))).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
