//! Kubernetes quantities (`100m`, `1.5Gi`, `2e3`), exact to a billionth.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Sub};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// An invalid quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// No digits, an unknown suffix, or another invalid character.
    #[error(
        "\"{0}\" is not a quantity: expected a number with an optional suffix such as m, k, M, G, Ki, Mi, Gi"
    )]
    Format(String),
}

/// A parsed quantity, in billionths. Arithmetic saturates at the range of an API quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i128);

const NANO: i128 = 1_000_000_000;
/// The largest API quantity, 2^63-1, in billionths.
const MAX: i128 = (i64::MAX as i128) * NANO;

impl Amount {
    /// The zero quantity.
    pub const ZERO: Self = Self(0);

    /// An amount in whole units.
    pub const fn from_units(units: i64) -> Self {
        Self(units as i128 * NANO)
    }

    /// An amount in thousandths.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis as i128 * 1_000_000)
    }

    /// Parses a quantity. As upstream, values out of range saturate, and fractions of a billionth are
    /// rounded away from zero.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        parse(text).ok_or_else(|| QuantityError::Format(text.to_owned()))
    }

    /// The value in billionths.
    pub fn nanos(self) -> i128 {
        self.0
    }

    /// The value in whole units, rounded away from zero.
    pub fn value(self) -> i64 {
        clamp(div_away_from_zero(self.0, NANO))
    }

    /// The value in thousandths, rounded away from zero.
    pub fn millis(self) -> i64 {
        clamp(div_away_from_zero(self.0, 1_000_000))
    }

    /// The value in whole units, rounded away from zero; zero if negative.
    pub fn bytes(self) -> u64 {
        u64::try_from(self.value()).unwrap_or(0)
    }

    /// Whether the amount is zero.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether the amount is above zero.
    pub fn is_positive(self) -> bool {
        self.0 > 0
    }

    /// The amount rounded up to thousandths, as the API stores it.
    pub fn round_to_millis(self) -> Self {
        Self(div_away_from_zero(self.0, 1_000_000).saturating_mul(1_000_000))
    }

    /// The API's canonical form with decimal suffixes (m, k, M).
    pub fn to_decimal(self) -> String {
        let mut number = self.0;
        if number == 0 {
            return "0".to_owned();
        }
        // From billionths upwards.
        for suffix in ["n", "u", "m", "", "k", "M", "G", "T", "P"] {
            if number % 1000 != 0 {
                return format!("{number}{suffix}");
            }
            number /= 1000;
        }
        format!("{number}E")
    }

    /// The API's canonical form with binary suffixes (Ki, Mi) for whole numbers from 1024, and with
    /// decimal ones for others.
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

    /// [`Amount::to_binary`] as the API server returns it: there, numbers without a suffix are decimal.
    pub fn to_stored_binary(self) -> String {
        let text = self.to_binary();
        if text.ends_with('i') {
            text
        } else {
            self.to_decimal()
        }
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

/// One entry of a resource list; `None` if it is absent or invalid.
pub fn parse_entry(list: Option<&BTreeMap<String, Quantity>>, name: &str) -> Option<Amount> {
    Amount::parse(&list?.get(name)?.0).ok()
}

/// All valid entries of a resource list.
pub fn parse_list(list: Option<&BTreeMap<String, Quantity>>) -> BTreeMap<String, Amount> {
    let entries = list.into_iter().flatten();
    entries
        .filter_map(|(name, text)| Some((name.clone(), Amount::parse(&text.0).ok()?)))
        .collect()
}

/// A resource list in canonical form: CPU with decimal suffixes, all others with binary ones.
pub fn format_list(list: &BTreeMap<String, Amount>) -> BTreeMap<String, Quantity> {
    format_with(list, Amount::to_binary)
}

/// The same as the API server returns it.
pub fn format_stored_list(list: &BTreeMap<String, Amount>) -> BTreeMap<String, Quantity> {
    format_with(list, Amount::to_stored_binary)
}

fn format_with(
    list: &BTreeMap<String, Amount>,
    to_binary: fn(Amount) -> String,
) -> BTreeMap<String, Quantity> {
    let entries = list.iter().map(|(name, amount)| {
        let text = if name == "cpu" {
            amount.to_decimal()
        } else {
            to_binary(*amount)
        };
        (name.clone(), Quantity(text))
    });
    entries.collect()
}

fn parse(text: &str) -> Option<Amount> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
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

/// The base and exponent of a suffix.
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
            // More digits are out of any range.
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

/// The number in billionths; `None` if it is out of range.
fn scale(whole: &str, fraction: &str, base: u32, exponent: i32) -> Option<i128> {
    let is_zero = |text: &str| text.trim_start_matches('0').is_empty();
    if is_zero(whole) && is_zero(fraction) {
        return Some(0);
    }
    // Digits after the twentieth decimal place only determine whether to round up.
    let (exact, dropped) = fraction.split_at(fraction.len().min(20));
    let mut digits: i128 = 0;
    for digit in whole.trim_start_matches('0').bytes().chain(exact.bytes()) {
        digits = digits
            .checked_mul(10)?
            .checked_add(i128::from(digit - b'0'))?;
    }
    let mut denominator = 10_i128.checked_pow(u32::try_from(exact.len()).ok()?)?;
    if dropped.bytes().any(|digit| digit != b'0') {
        digits = digits.checked_mul(10)?.checked_add(1)?;
        denominator = denominator.checked_mul(10)?;
    }
    let (mut numerator, mut power) = (NANO, exponent.unsigned_abs());
    if base == 10 && exponent < 0 {
        // Smaller powers only round up to a billionth.
        power = power.min(30);
        denominator = match denominator.checked_mul(10_i128.checked_pow(power)?) {
            Some(product) => product,
            None => return Some(1),
        };
    } else {
        numerator = numerator.checked_mul(i128::from(base).checked_pow(power)?)?;
    }
    // Reduce before multiplying, so that exact inputs stay in range.
    let divisor = gcd(numerator, denominator);
    let (numerator, denominator) = (numerator / divisor, denominator / divisor);
    let divisor = gcd(digits, denominator);
    let (digits, denominator) = (digits / divisor, denominator / divisor);
    Some(div_away_from_zero(
        digits.checked_mul(numerator)?,
        denominator,
    ))
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

fn div_away_from_zero(number: i128, by: i128) -> i128 {
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
