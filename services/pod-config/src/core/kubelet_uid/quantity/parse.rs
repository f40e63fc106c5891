//! `resource.ParseQuantity`, and what of a text is left in the quantity.

use serde_json::Number;

use super::{Format, GoAmount, GoQuantity, rescale};

/// Digits that surely fit in 64 bits.
const MAX_DIGITS: i32 = 18;
/// The scale of the smallest amounts; lesser ones are rounded up to it.
const NANO: i32 = -9;

/// The parts of a quantity's text.
struct Parts<'a> {
    positive: bool,
    /// The number with its sign, leading zeros and point.
    number: &'a str,
    /// Digits before the point, without leading zeros.
    integer: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

/// Parses a quantity; `None` if it is none, or larger than what is held here.
pub(super) fn quantity(text: &str) -> Option<GoQuantity> {
    if text == "0" {
        return Some(GoQuantity {
            amount: GoAmount::Scaled { value: 0, scale: 0 },
            text: text.to_owned(),
            format: Format::DecimalSi,
        });
    }
    let parts = parts(text)?;
    let suffix = suffix(parts.suffix)?;
    match scaled(&parts, &suffix) {
        Some((amount, canonical)) => Some(GoQuantity {
            amount,
            text: if canonical { text } else { "" }.to_owned(),
            format: suffix.format,
        }),
        None => decimal(&parts, &suffix),
    }
}

/// A JSON number as Go writes it. Only of YAML: the text of a number in a JSON manifest is not known.
pub(super) fn go_number(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    if float != 0.0 && !(1e-6..1e21).contains(&float.abs()) {
        let text = format!("{float:e}");
        return match text.split_once('e') {
            Some((digits, power)) if !power.starts_with('-') => format!("{digits}e+{power}"),
            _ => text,
        };
    }
    format!("{float}")
}

/// `parseQuantityString`.
fn parts(text: &str) -> Option<Parts<'_>> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let positive = !text.starts_with('-');
    let digits = unsigned.trim_start_matches('0');
    if digits.is_empty() {
        // Also for a sign alone, and for nothing at all, which Go checks before.
        return (!text.is_empty()).then_some(Parts {
            positive,
            number: "0",
            integer: "0",
            fraction: "",
            suffix: "",
        });
    }
    let (integer, rest) = split_digits(digits);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => split_digits(rest),
        None => ("", rest),
    };
    let number = text.strip_suffix(rest)?;
    let letters = rest.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let exponent = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    exponent
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(Parts {
            positive,
            number,
            integer: if integer.is_empty() { "0" } else { integer },
            fraction,
            suffix: rest,
        })
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

struct Suffix {
    base: i32,
    exponent: i32,
    format: Format,
}

/// `suffixer.interpret`.
fn suffix(text: &str) -> Option<Suffix> {
    let decimal = |exponent| Suffix {
        base: 10,
        exponent,
        format: Format::DecimalSi,
    };
    let binary = |exponent| Suffix {
        base: 2,
        exponent,
        format: Format::BinarySi,
    };
    Some(match text {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => Suffix {
            base: 10,
            exponent: text.strip_prefix(['e', 'E'])?.parse().ok()?,
            format: Format::DecimalExponent,
        },
    })
}

/// The amount in 64 bits, if it fits, and whether the text is canonical.
fn scaled(parts: &Parts<'_>, suffix: &Suffix) -> Option<(GoAmount, bool)> {
    let length = |text: &str| i32::try_from(text.len()).ok();
    let (integer, fraction) = (length(parts.integer)?, length(parts.fraction)?);
    let (precision, scale, factor) = match suffix.format {
        Format::BinarySi if fraction == 0 => {
            let power = u32::try_from(suffix.exponent).ok()?;
            let digits = suffix.exponent.checked_mul(3)? / 10;
            (15 - integer - digits - 1, 0, 1_i64.checked_shl(power)?)
        }
        Format::BinarySi => return None,
        _ => (
            MAX_DIGITS.checked_sub(integer.checked_add(fraction)?)?,
            suffix.exponent,
            1,
        ),
    };
    let scale = scale.checked_sub(fraction)?;
    if precision < 0 || scale < NANO {
        return None;
    }
    let digits = format!("{}{}", parts.integer, parts.fraction);
    let number: i64 = digits.parse().ok()?;
    let value = number.checked_mul(factor)?;
    let canonical = match suffix.format {
        Format::BinarySi => suffix.exponent % 10 == 0 && number & 7 != 0,
        _ => scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0'),
    };
    let value = if parts.positive { value } else { -value };
    Some((GoAmount::Scaled { value, scale }, canonical))
}

/// The amount as a decimal of any size.
fn decimal(parts: &Parts<'_>, suffix: &Suffix) -> Option<GoQuantity> {
    let mut scale = i32::try_from(parts.fraction.len()).ok()?;
    let digits: String = parts.number.chars().filter(char::is_ascii_digit).collect();
    let mut unscaled: i128 = digits.parse().ok()?;
    if suffix.base == 10 {
        scale = scale.checked_sub(suffix.exponent)?;
    } else {
        unscaled = unscaled.checked_mul(1_i128.checked_shl(suffix.exponent.unsigned_abs())?)?;
    }
    if unscaled != 0 {
        unscaled = rescale(unscaled, scale, -NANO)?;
        scale = -NANO;
    }
    let mut format = suffix.format;
    if format == Format::BinarySi {
        // Of values beyond 64 bits the limit is left, and what is less than one has no binary suffix.
        let one = 10_i128.checked_pow(scale.unsigned_abs())?;
        if unscaled > i128::from(i64::MAX).checked_mul(one)? {
            (unscaled, scale) = (i128::from(i64::MAX), 0);
        } else if (1..one).contains(&unscaled) {
            format = Format::DecimalSi;
        }
    }
    if !parts.positive {
        unscaled = -unscaled;
    }
    Some(GoQuantity {
        amount: GoAmount::Decimal { unscaled, scale },
        text: String::new(),
        format,
    })
}
