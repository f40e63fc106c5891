use jiff::Timestamp;

/// A time stamp as the wire carries it.
pub fn to_wire(at: Timestamp) -> prost_types::Timestamp {
    // The wire wants nanoseconds counted upwards even before 1970.
    let nanos = at.as_nanosecond();
    let per_second = 1_000_000_000;
    prost_types::Timestamp {
        seconds: nanos.div_euclid(per_second) as i64,
        nanos: nanos.rem_euclid(per_second) as i32,
    }
}

/// A time stamp off the wire; `None` when it is outside the years that can be written.
pub fn from_wire(at: &prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(at.seconds, at.nanos).ok()
}

/// Like [`from_wire`], for optional fields.
pub fn from_wire_opt(at: Option<&prost_types::Timestamp>) -> Option<Timestamp> {
    at.and_then(from_wire)
}

/// Nanoseconds since 1970, as CRI counts them; zero means never.
pub fn from_nanos(nanos: i64) -> Option<Timestamp> {
    if nanos == 0 {
        return None;
    }
    Timestamp::from_nanosecond(i128::from(nanos)).ok()
}

/// The present moment in the wire's form.
pub fn now() -> prost_types::Timestamp {
    to_wire(Timestamp::now())
}
