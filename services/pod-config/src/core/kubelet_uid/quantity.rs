//! `resource.Quantity` as Go holds it. The dump shows its private fields, so that the way by which a
//! quantity came to be counts, not only its value: `1Gi` and `1024Mi` differ, and so do a parsed and a
//! computed `1500m`.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::error::DumpError;

mod parse;

/// Go's `resource.Quantity`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GoQuantity {
    amount: GoAmount,
    /// The canonical text, if the quantity was parsed from it.
    text: String,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum GoAmount {
    /// `int64Amount`: `value * 10^scale`.
    Scaled { value: i64, scale: i32 },
    /// `infDecAmount`: `unscaled * 10^-scale`. Go has no limit here; beyond 38 digits is an error.
    Decimal { unscaled: i128, scale: i32 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Unset,
    DecimalExponent,
    BinarySi,
    DecimalSi,
}

const FORMATS: [(Format, &str); 4] = [
    (Format::Unset, ""),
    (Format::DecimalExponent, "DecimalExponent"),
    (Format::BinarySi, "BinarySI"),
    (Format::DecimalSi, "DecimalSI"),
];

/// The scale of thousandths.
const MILLI: i32 = -3;

impl GoQuantity {
    /// From a manifest, or from [`GoQuantity::to_json`]; `None` if it is no quantity.
    pub(super) fn from_json(value: &Value) -> Option<GoQuantity> {
        match value {
            Value::Null => Some(GoQuantity {
                amount: GoAmount::Scaled { value: 0, scale: 0 },
                text: String::new(),
                format: Format::Unset,
            }),
            Value::String(text) => parse::quantity(text.trim()),
            Value::Number(number) => parse::quantity(&parse::go_number(number)),
            Value::Array(fields) => {
                let [decimal, number, scale, text, format] = fields.as_slice() else {
                    return None;
                };
                let scale = i32::try_from(scale.as_i64()?).ok()?;
                let amount = if decimal.as_bool()? {
                    let unscaled = number.as_str()?.parse().ok()?;
                    GoAmount::Decimal { unscaled, scale }
                } else {
                    let value = number.as_str()?.parse().ok()?;
                    GoAmount::Scaled { value, scale }
                };
                let format = format.as_str()?;
                let known = FORMATS.iter().find(|(_, name)| *name == format)?;
                Some(GoQuantity {
                    amount,
                    text: text.as_str()?.to_owned(),
                    format: known.0,
                })
            }
            Value::Bool(_) | Value::Object(_) => None,
        }
    }

    /// The error of a value that is no quantity, or is beyond what is held here.
    pub(super) fn invalid() -> DumpError {
        DumpError::Value {
            go_type: "resource.Quantity".to_owned(),
        }
    }

    /// All fields, in the place of the text in a manifest. The API has no quantities of this form.
    pub(super) fn to_json(&self) -> Value {
        let (decimal, number, scale) = match self.amount {
            GoAmount::Scaled { value, scale } => (false, value.to_string(), scale),
            GoAmount::Decimal { unscaled, scale } => (true, unscaled.to_string(), scale),
        };
        json!([decimal, number, scale, self.text, self.format.name()])
    }

    /// Go's dump, without the type.
    pub(super) fn dump(&self) -> String {
        let (value, scale, decimal) = match self.amount {
            GoAmount::Scaled { value, scale } => (value, scale, "<nil>".to_owned()),
            GoAmount::Decimal { unscaled, scale } => (0, 0, dump_decimal(unscaled, scale)),
        };
        format!(
            "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
             d:(resource.infDecAmount){{Dec:(*inf.Dec){decimal}}} s:(string){} \
             Format:(resource.Format){}}}",
            self.text,
            self.format.name()
        )
    }

    /// `RoundUp` to thousandths, away from zero.
    pub(super) fn round_up(&mut self) -> Option<()> {
        match &mut self.amount {
            GoAmount::Decimal { unscaled, scale } => {
                *unscaled = rescale(*unscaled, *scale, -MILLI)?;
                *scale = -MILLI;
            }
            GoAmount::Scaled { scale, .. } if *scale >= MILLI => return Some(()),
            GoAmount::Scaled { value, scale } => {
                let rounded = rescale(i128::from(*value), -*scale, -MILLI)?;
                *value = i64::try_from(rounded).ok()?;
                *scale = MILLI;
            }
        }
        self.text.clear();
        Some(())
    }

    /// `Add`. `None` if the sum is beyond what is held here.
    pub(super) fn add(&mut self, other: &GoQuantity) -> Option<()> {
        self.text.clear();
        if self.is_zero() {
            self.format = other.format;
        }
        if let (
            GoAmount::Scaled { value, scale },
            GoAmount::Scaled {
                value: b,
                scale: other,
            },
        ) = (&mut self.amount, &other.amount)
            && let Some(sum) = add_scaled((*value, *scale), (*b, *other))
        {
            (*value, *scale) = sum;
            return Some(());
        }
        let (a, b, scale) = aligned(self.amount.decimal(), other.amount.decimal())?;
        let unscaled = a.checked_add(b)?;
        self.amount = GoAmount::Decimal { unscaled, scale };
        Some(())
    }

    /// `Cmp`, which leaves a decimal if either is one.
    pub(super) fn compare(&mut self, other: &GoQuantity) -> Option<Ordering> {
        let is_decimal =
            |quantity: &GoQuantity| matches!(quantity.amount, GoAmount::Decimal { .. });
        if is_decimal(self) || is_decimal(other) {
            let (unscaled, scale) = self.amount.decimal();
            self.amount = GoAmount::Decimal { unscaled, scale };
        }
        let (a, b, _) = aligned(self.amount.decimal(), other.amount.decimal())?;
        Some(a.cmp(&b))
    }

    fn is_zero(&self) -> bool {
        matches!(
            self.amount,
            GoAmount::Scaled { value: 0, .. } | GoAmount::Decimal { unscaled: 0, .. }
        )
    }
}

impl GoAmount {
    /// Unscaled value and scale of the `inf.Dec`.
    fn decimal(self) -> (i128, i32) {
        match self {
            GoAmount::Scaled { value, scale } => (i128::from(value), scale.saturating_neg()),
            GoAmount::Decimal { unscaled, scale } => (unscaled, scale),
        }
    }
}

impl Format {
    fn name(self) -> &'static str {
        let known = FORMATS.iter().find(|(format, _)| *format == self);
        known.map_or("", |(_, name)| name)
    }
}

/// `int64Amount.Add`; `None` on overflow.
fn add_scaled(a: (i64, i32), b: (i64, i32)) -> Option<(i64, i32)> {
    if b.0 == 0 {
        return Some(a);
    }
    if a.0 == 0 {
        return Some(b);
    }
    let scale = a.1.min(b.1);
    let at_scale = |(value, own): (i64, i32)| {
        let power = u32::try_from(own.checked_sub(scale)?).ok()?;
        value.checked_mul(10_i64.checked_pow(power)?)
    };
    Some((at_scale(a)?.checked_add(at_scale(b)?)?, scale))
}

/// Both unscaled values at the larger scale.
fn aligned(a: (i128, i32), b: (i128, i32)) -> Option<(i128, i128, i32)> {
    let scale = a.1.max(b.1);
    Some((rescale(a.0, a.1, scale)?, rescale(b.0, b.1, scale)?, scale))
}

/// The unscaled value at another scale, rounded away from zero.
fn rescale(unscaled: i128, from: i32, to: i32) -> Option<i128> {
    let power = to.checked_sub(from)?;
    let factor = 10_i128.checked_pow(power.unsigned_abs());
    if unscaled == 0 {
        return Some(0);
    }
    if power >= 0 {
        return unscaled.checked_mul(factor?);
    }
    // Any value is less than a factor that is too large.
    let Some(factor) = factor else {
        return Some(unscaled.signum());
    };
    let remainder = unscaled % factor;
    Some(unscaled / factor + remainder.signum())
}

/// `inf.Dec`, whose unscaled value has words of 64 bits, the lowest first.
fn dump_decimal(unscaled: i128, scale: i32) -> String {
    let magnitude = unscaled.unsigned_abs();
    let words = [magnitude & u128::from(u64::MAX), magnitude >> 64];
    let words = match words {
        [0, 0] => "<nil>".to_owned(),
        [low, 0] => format!("[{low}]"),
        [low, high] => format!("[{low} {high}]"),
    };
    let negative = unscaled < 0;
    format!(
        "{{unscaled:(big.Int){{neg:(bool){negative} abs:(big.nat){words}}} scale:(inf.Scale){scale}}}"
    )
}

#[cfg(test)]
mod tests;
