use proptest::prelude::*;

use super::*;

fn nanos(text: &str) -> i128 {
    Amount::parse(text)
        .unwrap_or_else(|e| panic!("{e}"))
        .nanos()
}

#[test]
fn forms_as_upstream() {
    for (text, expected) in [
        ("0", 0),
        ("1", NANO),
        ("100m", NANO / 10),
        ("1n", 1),
        ("1u", 1_000),
        ("1.5", 1_500_000_000),
        (".5", 500_000_000),
        ("5.", 5 * NANO),
        ("-1", -NANO),
        ("+1", NANO),
        ("1k", 1_000 * NANO),
        ("1M", 1_000_000 * NANO),
        ("1Ki", 1_024 * NANO),
        ("1.5Gi", 1_610_612_736 * NANO),
        ("0.1Ki", 102_400_000_000),
        ("1e3", 1_000 * NANO),
        ("1E3", 1_000 * NANO),
        ("1e-3", 1_000_000),
        ("1E", 1_000_000_000_000_000_000 * NANO),
        ("0.0000000001", 1),
        ("-0.0000000001", -1),
        ("1e-100", 1),
        ("9999999999999999999999999999", MAX),
        ("1e400", MAX),
        ("0e400", 0),
        ("8Ei", MAX),
        ("00012", 12 * NANO),
    ] {
        assert_eq!(nanos(text), expected, "{text}");
    }
}

#[test]
fn invalid_quantities_are_rejected() {
    for wrong in [
        "", "-", "+", ".", "m", "Ki", "1.1.1", "1 ", " 1", "1Kii", "1K", "1ki", "1mi", "1e", "1e+",
        "1ee3", "0x10", "é", "-é", "--1", "+-1", "-+1", "1_000",
    ] {
        assert!(Amount::parse(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn rounding_is_away_from_zero() {
    for (text, value, millis) in [
        ("100m", 1, 100),
        ("1.0001", 2, 1001),
        ("-100m", -1, -100),
        ("0", 0, 0),
        ("1500m", 2, 1500),
    ] {
        let amount = Amount::parse(text).unwrap();
        assert_eq!((amount.value(), amount.millis()), (value, millis), "{text}");
    }
}

#[test]
fn canonical_forms() {
    for (text, decimal, binary, stored) in [
        ("0", "0", "0", "0"),
        ("1000m", "1", "1", "1"),
        ("0.5", "500m", "500m", "500m"),
        ("1024", "1024", "1Ki", "1Ki"),
        ("1Gi", "1073741824", "1Gi", "1Gi"),
        ("1000000", "1M", "1000000", "1M"),
        ("1025000", "1025k", "1025000", "1025k"),
        ("97656250", "97656250", "97656250", "97656250"),
        ("1.5Mi", "1572864", "1536Ki", "1536Ki"),
        ("512", "512", "512", "512"),
        ("1000", "1k", "1k", "1k"),
    ] {
        let amount = Amount::parse(text).unwrap();
        let forms = [
            amount.to_decimal(),
            amount.to_binary(),
            amount.to_stored_binary(),
        ];
        assert_eq!(forms, [decimal, binary, stored], "{text}");
    }
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in ".{0,40}") {
        let _ = Amount::parse(&text);
    }
    #[test]
    fn arbitrary_numbers_never_panic(text in "[-+]?[0-9]{0,40}(\\.[0-9]{0,40})?(m|Ki|Ei|E|n|e-?[0-9]{1,12})?") {
        let _ = Amount::parse(&text);
    }
    #[test]
    fn canonical_forms_round_trip(nanos in any::<i64>()) {
        let amount = Amount(i128::from(nanos) * 7);
        prop_assert_eq!(Amount::parse(&amount.to_decimal()), Ok(amount));
        prop_assert_eq!(Amount::parse(&amount.to_binary()), Ok(amount));
        prop_assert_eq!(Amount::parse(&amount.to_stored_binary()), Ok(amount));
    }
}
