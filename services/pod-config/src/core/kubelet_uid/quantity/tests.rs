use serde_json::json;

use super::*;

fn quantity(value: &Value) -> GoQuantity {
    GoQuantity::from_json(value).expect("a quantity")
}

/// Value, scale, text and format of an amount in 64 bits.
fn scaled(quantity: &GoQuantity) -> (i64, i32, &str, &str) {
    match quantity.amount {
        GoAmount::Scaled { value, scale } => {
            (value, scale, quantity.text.as_str(), quantity.format.name())
        }
        GoAmount::Decimal { .. } => panic!("{quantity:?}"),
    }
}

#[test]
fn canonical_text_is_unchanged() {
    for (text, value, scale, kept, format) in [
        ("0", 0, 0, "0", "DecimalSI"),
        ("00", 0, 0, "", "DecimalSI"),
        ("100m", 100, -3, "100m", "DecimalSI"),
        ("1000m", 1000, -3, "", "DecimalSI"),
        ("1.5", 15, -1, "", "DecimalSI"),
        ("1.500", 1500, -3, "1.500", "DecimalSI"),
        ("-5k", -5, 3, "-5k", "DecimalSI"),
        ("12e6", 12, 6, "12e6", "DecimalExponent"),
        ("1E", 1, 18, "1E", "DecimalSI"),
        ("64Mi", 64 << 20, 0, "", "BinarySI"),
        ("100Mi", 100 << 20, 0, "100Mi", "BinarySI"),
    ] {
        let found = quantity(&json!(text));
        assert_eq!(scaled(&found), (value, scale, kept, format), "{text}");
    }
    assert_eq!(scaled(&quantity(&json!(2))), (2, 0, "2", "DecimalSI"));
    assert_eq!(scaled(&quantity(&json!(0.25))), (25, -2, "", "DecimalSI"));
    assert_eq!(scaled(&quantity(&Value::Null)), (0, 0, "", ""));
}

#[test]
fn large_and_fractional_amounts_are_decimals() {
    for (text, unscaled, scale, format) in [
        ("1.5Gi", 3 * (1_i128 << 29) * 1_000_000_000, 9, "BinarySI"),
        ("0.5Ki", 512 * 1_000_000_000, 9, "BinarySI"),
        ("0.0005Ki", 512_000_000, 9, "DecimalSI"),
        ("9Ei", i128::from(i64::MAX), 0, "BinarySI"),
        ("1e-10", 1, 9, "DecimalExponent"),
        ("-1.5Ki", -1536 * 1_000_000_000, 9, "BinarySI"),
        ("0.0Gi", 0, 1, "BinarySI"),
    ] {
        let found = quantity(&json!(text));
        let expected = GoAmount::Decimal { unscaled, scale };
        assert_eq!(
            (found.amount, found.format.name()),
            (expected, format),
            "{text}"
        );
    }
}

#[test]
fn no_quantity_and_one_that_is_too_large() {
    for text in [
        "",
        "a",
        "1e",
        "1Xi",
        "1Gi1",
        "1 Gi",
        "1..2",
        "--1",
        "1e99999999999",
        "1e40",
        "12345678901234567890e99",
    ] {
        let found = GoQuantity::from_json(&json!(text));
        assert!(found.is_none() || text == "1e40", "{text}: {found:?}");
    }
    assert_eq!(
        scaled(&quantity(&json!("1e40"))).1,
        40,
        "it is not computed"
    );
    for other in [json!(true), json!({}), json!([]), json!([true, 1, 2, 3, 4])] {
        assert_eq!(GoQuantity::from_json(&other), None);
    }
}

#[test]
fn rounding_clears_the_text_of_what_changes() {
    for (text, value, scale, kept) in [
        ("100m", 100, -3, "100m"),
        ("1.5", 15, -1, ""),
        ("250u", 1, -3, ""),
        ("-250u", -1, -3, ""),
        ("1001u", 2, -3, ""),
        ("1n", 1, -3, ""),
    ] {
        let mut found = quantity(&json!(text));
        found.round_up().expect("in range");
        let (rounded, at, text_left, _) = scaled(&found);
        assert_eq!((rounded, at, text_left), (value, scale, kept), "{text}");
    }
    let mut found = quantity(&json!("1.5Gi"));
    found.round_up().expect("in range");
    let unscaled = 3 * (1_i128 << 29) * 1000;
    assert_eq!(found.amount, GoAmount::Decimal { unscaled, scale: 3 });
}

#[test]
fn sums_have_the_smaller_scale_and_no_text() {
    let sum = |a: &str, b: &str| {
        let mut sum = quantity(&json!(a));
        sum.add(&quantity(&json!(b))).expect("in range");
        sum
    };
    assert_eq!(scaled(&sum("100m", "2")), (2100, -3, "", "DecimalSI"));
    assert_eq!(scaled(&sum("2", "100m")), (2100, -3, "", "DecimalSI"));
    assert_eq!(scaled(&sum("0", "3Mi")), (3 << 20, 0, "", "BinarySI"));
    assert_eq!(scaled(&sum("3Mi", "0")), (3 << 20, 0, "", "BinarySI"));
    let decimal = sum("1Mi", "0.5Mi");
    assert_eq!(
        decimal.amount,
        GoAmount::Decimal {
            unscaled: 3 * (1 << 19) * 1_000_000_000,
            scale: 9
        }
    );
    assert_eq!(
        quantity(&json!("1.5Mi")).compare(&decimal),
        Some(Ordering::Equal)
    );
    let mut compared = quantity(&json!("2k"));
    assert_eq!(
        compared.compare(&quantity(&json!("1k"))),
        Some(Ordering::Greater)
    );
    assert_eq!(scaled(&compared).0, 2, "in 64 bits as it was");
    assert_eq!(compared.compare(&decimal), Some(Ordering::Less));
    let as_decimal = GoAmount::Decimal {
        unscaled: 2,
        scale: -3,
    };
    assert_eq!(compared.amount, as_decimal, "as upstream leaves it");
}

#[test]
fn a_quantity_survives_its_json() {
    for text in ["100m", "1.5Gi", "-12345678901234567890", "0", "1e3"] {
        let found = quantity(&json!(text));
        assert_eq!(quantity(&found.to_json()), found, "{text}");
    }
}

#[test]
fn dump_shows_the_private_fields() {
    assert_eq!(
        quantity(&json!("100m")).dump(),
        "{i:(resource.int64Amount){value:(int64)100 scale:(resource.Scale)-3} \
         d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string)100m \
         Format:(resource.Format)DecimalSI}"
    );
    assert_eq!(
        quantity(&json!("-0.5Ei")).dump(),
        "{i:(resource.int64Amount){value:(int64)0 scale:(resource.Scale)0} \
         d:(resource.infDecAmount){Dec:(*inf.Dec){unscaled:(big.Int){neg:(bool)true \
         abs:(big.nat)[0 31250000]} scale:(inf.Scale)9}} s:(string) \
         Format:(resource.Format)BinarySI}"
    );
}
