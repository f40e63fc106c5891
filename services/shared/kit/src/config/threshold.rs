/// A threshold on what remains of a resource, below which eviction starts.
#[derive(Debug, Clone, PartialEq)]
pub struct EvictionThreshold {
    /// The signal, for example `memory.available`.
    pub signal: String,
    /// The amount that must remain.
    pub value: EvictionThresholdValue,
}

/// The value of a threshold.
#[derive(Debug, Clone, PartialEq)]
pub enum EvictionThresholdValue {
    /// A fraction of the capacity, between 0 and 1.
    Fraction(f64),
    /// A Kubernetes quantity, as written.
    Quantity(String),
}

/// Upstream's eviction signals.
pub(super) const SIGNALS: &[&str] = &[
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
];

/// Parses an entry of `evictionHard` and similar maps. `None` is a disabled threshold (`0%` and `100%`,
/// as upstream defines it).
pub fn parse_threshold(signal: &str, value: &str) -> Result<Option<EvictionThreshold>, String> {
    if !SIGNALS.contains(&signal) {
        return Err(format!(
            "no such signal; allowed are {}",
            SIGNALS.join(", ")
        ));
    }
    let threshold = |value| {
        Ok(Some(EvictionThreshold {
            signal: signal.to_owned(),
            value,
        }))
    };
    let Some(percent) = value.strip_suffix('%') else {
        return if is_positive_quantity(value) {
            threshold(EvictionThresholdValue::Quantity(value.to_owned()))
        } else {
            Err(format!(
                "{value:?} is neither a percentage nor a quantity above zero"
            ))
        };
    };
    match percent.parse::<f64>() {
        Ok(percent) if percent == 0.0 || percent == 100.0 => Ok(None),
        Ok(percent) if percent > 0.0 && percent < 100.0 => {
            threshold(EvictionThresholdValue::Fraction(percent / 100.0))
        }
        _ => Err(format!("{value:?} is not a percentage from 0% to 100%")),
    }
}

/// Whether `text` is a Kubernetes quantity above zero. Its value is computed by `polylet_model`.
pub(super) fn is_positive_quantity(text: &str) -> bool {
    is_quantity(text) && text.bytes().any(|b| (b'1'..=b'9').contains(&b)) && !text.starts_with('-')
}

pub(super) fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| c != '.' && !c.is_ascii_digit())
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let number_is = number.bytes().any(|b| b.is_ascii_digit())
        && number.bytes().filter(|b| *b == b'.').count() < 2;
    const SUFFIXES: &[&str] = &[
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
    ];
    let exponent = || {
        suffix
            .strip_prefix(['e', 'E'])
            .is_some_and(|power| power.parse::<i8>().is_ok())
    };
    number_is && (SUFFIXES.contains(&suffix) || exponent())
}
