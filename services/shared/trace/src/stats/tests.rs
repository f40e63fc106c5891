use fastrand::Rng;
use proptest::prelude::*;

use super::*;

fn sorted(values: &[i64]) -> Vec<i64> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values
}

/// Samples, U and p of scipy 1.17's `mannwhitneyu(b, a)`, and the median of numpy's differences.
type Reference = (&'static [i64], &'static [i64], f64, f64, f64);
const SCIPY: &[Reference] = &[
    // no ties, exact
    (
        &[944_904, 625_095, 684_179, 897_213, 578_292],
        &[
            775_685, 833_651, 225_207, 55531, 300_166, 285_067, 873_553, 912_623,
        ],
        13.0,
        0.3543123543123543,
        -223672.5,
    ),
    // one each
    (&[1], &[2], 1.0, 1.0, 1.0),
    // separated, exact
    (
        &[1, 2, 3, 4],
        &[5, 6, 7, 8, 9],
        20.0,
        0.015873015873015872,
        4.5,
    ),
    // sizes of 8 and 20, exact
    (
        &[24, 650, 643, 151, 192, 956, 970, 339],
        &[
            138, 216, 658, 322, 306, 313, 866, 502, 175, 462, 442, 410, 570, 890, 710, 932, 304,
            789, 45, 358,
        ],
        79.0,
        0.9801387018778324,
        -15.0,
    ),
    // without ties, asymptotic
    (
        &[
            204_196, 403_345, 859_959, 871_329, 387_568, 767_713, 620_784, 621_951, 35996, 172_980,
            843_433, 631_279,
        ],
        &[
            549_137, 369_952, 923_971, 534_687, 283_032, 809_433, 230_656, 358_998, 1_065_199,
            408_687, 1_028_173, 629_117, 535_596, 244_281, 508_892,
        ],
        92.0,
        0.9416529301610359,
        7749.5,
    ),
    // ties
    (
        &[0, 2, 4, 0, 3, 4, 0, 1, 4, 4],
        &[2, 1, 3, 1, 5, 5, 3, 2, 2, 3, 4, 5],
        75.0,
        0.33181971771072694,
        1.0,
    ),
    // zeros
    (
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 7],
        &[0, 0, 0, 0, 0, 0, 4, 9, 9, 30, 2],
        78.0,
        0.17685072139991842,
        0.0,
    ),
    // few with ties
    (&[1, 1, 2], &[2, 3, 3, 3], 11.5, 0.061368829139402156, 1.5),
    // all the same
    (
        &[3, 3, 3, 3, 3, 3, 3, 3, 3, 3],
        &[3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3],
        60.0,
        1.0,
        0.0,
    ),
    // 30 and 30
    (
        &[
            951, 1013, 957, 966, 1013, 973, 1028, 1088, 1034, 1024, 936, 979, 1018, 1089, 967,
            1021, 997, 1018, 945, 1016, 1069, 921, 1075, 995, 967, 945, 1047, 1045, 979, 1035,
        ],
        &[
            1078, 955, 1024, 1054, 1042, 1039, 993, 1087, 1011, 1045, 1100, 1030, 1011, 1013, 1016,
            1029, 1011, 1059, 1054, 1078, 1027, 1039, 1025, 1041, 1085, 1093, 1129, 1039, 988,
            1114,
        ],
        663.5,
        0.0016326948225564646,
        41.0,
    ),
];

#[test]
fn results_are_those_of_scipy() {
    for (a, b, u, p, shift) in SCIPY {
        let test = mann_whitney(a, b).unwrap();
        assert!((test.u - u).abs() < 1e-9, "{a:?} {b:?}: {test:?}");
        assert!((test.p - p).abs() < 1e-12, "{a:?} {b:?}: {test:?}, not {p}");
        let estimate = hodges_lehmann(&sorted(a), &sorted(b)).unwrap().estimate;
        assert!((estimate - shift).abs() < 1e-9, "{a:?} {b:?}: {estimate}");
    }
}

#[test]
fn quantiles_are_those_of_numpy() {
    let sample = [1, 2, 4, 8, 16];
    for (q, expected) in [
        (0.0, 1.0),
        (0.5, 4.0),
        (0.95, 14.4),
        (0.6, 5.6),
        (1.0, 16.0),
    ] {
        let found = quantile(&sample, q);
        assert!((found - expected).abs() < 1e-9, "{q}: {found}");
    }
    assert_eq!((quantile(&[], 0.5), quantile(&[7], 0.95)), (0.0, 7.0));
}

#[test]
fn holm_steps_down() {
    let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
    for (found, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
        assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
    }
    assert_eq!(holm(&[]), [0.0; 0]);
    assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
}

#[test]
fn an_empty_sample_has_no_result() {
    assert_eq!(mann_whitney(&[], &[1]), None);
    assert_eq!(hodges_lehmann(&[1], &[]), None);
    assert_eq!(bootstrap_shift(&[1; 99], &[2; 200], 0.95, 1), None);
}

#[test]
fn a_large_sample_beside_a_small_one_is_exact() {
    let a: Vec<i64> = (0..4000).map(|value| value * 2).collect();
    let b: Vec<i64> = (0..8).map(|value| 7001 + value * 2).collect();
    let p = mann_whitney(&a, &b).unwrap().p;
    assert!(p > 0.0 && p < 1e-4, "{p}");
    // Beyond what is exact, the normal distribution is close.
    let more: Vec<i64> = (0..4097).map(|value| value * 2).collect();
    let close = mann_whitney(&more, &b).unwrap().p;
    assert!(
        close > p / 3.0 && close < p * 3.0 + 1e-3,
        "{close}, not {p}"
    );
}

fn noise(rng: &mut Rng) -> i64 {
    100_000 - (rng.f64().max(1e-9).ln() * 20_000.0) as i64
}

/// Intervals contain the true shift as often as they say.
#[test]
fn intervals_cover_the_shift() {
    let mut rng = Rng::with_seed(11);
    let (mut of_shift, mut of_p95) = (0, 0);
    for seed in 0..400 {
        let a: Vec<i64> = (0..120).map(|_| noise(&mut rng)).collect();
        let b: Vec<i64> = (0..120).map(|_| noise(&mut rng) + 5000).collect();
        let (a, b) = (sorted(&a), sorted(&b));
        let covers = |interval: Interval| (interval.low..=interval.high).contains(&5000.0);
        of_shift += u32::from(covers(hodges_lehmann(&a, &b).unwrap()));
        of_p95 += u32::from(covers(bootstrap_shift(&a, &b, 0.95, seed).unwrap()));
    }
    assert!((370..=392).contains(&of_shift), "{of_shift} of 400");
    assert!((360..=396).contains(&of_p95), "{of_p95} of 400");
}

#[test]
fn a_seed_repeats_the_bootstrap() {
    let a: Vec<i64> = (0..150).collect();
    let b: Vec<i64> = (0..150).map(|value| value * 3).collect();
    let shift = |seed| bootstrap_shift(&a, &b, 0.95, seed).unwrap();
    assert_eq!(shift(1), shift(1));
    assert_ne!(shift(1), shift(2));
    assert!(shift(1).low > 0.0 && shift(1).estimate > 250.0);
}

fn sample() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(prop_oneof![0..20_i64, 0..1_000_000_i64], 1..40)
}

proptest! {
    #[test]
    fn exchanging_the_samples_turns_the_result_round(a in sample(), b in sample()) {
        let (one, other) = (mann_whitney(&a, &b).unwrap(), mann_whitney(&b, &a).unwrap());
        prop_assert!((one.p - other.p).abs() < 1e-12);
        let pairs = (a.len() * b.len()) as f64;
        prop_assert!((one.u + other.u - pairs).abs() < 1e-9);
        let (a, b) = (sorted(&a), sorted(&b));
        let (one, other) = (hodges_lehmann(&a, &b).unwrap(), hodges_lehmann(&b, &a).unwrap());
        prop_assert_eq!(one.estimate, -other.estimate);
        prop_assert_eq!((one.low, one.high), (-other.high, -other.low));
    }

    #[test]
    fn shifts_are_order_statistics_of_the_differences(a in sample(), b in sample(), by in -50..50_i64) {
        let (a, b) = (sorted(&a), sorted(&b));
        let all = b.iter().flat_map(|of_b| a.iter().map(move |of_a| of_b - of_a));
        let all = sorted(&all.collect::<Vec<_>>());
        let shift = hodges_lehmann(&a, &b).unwrap();
        prop_assert_eq!(shift.estimate, median(&all));
        prop_assert!(shift.low <= shift.estimate && shift.estimate <= shift.high);
        prop_assert!(all.contains(&(shift.low as i64)) && all.contains(&(shift.high as i64)));
        let moved: Vec<i64> = b.iter().map(|value| value + by).collect();
        let further = hodges_lehmann(&a, &moved).unwrap();
        prop_assert_eq!(further.estimate, shift.estimate + by as f64);
    }

    #[test]
    fn p_values_are_probabilities(a in sample(), b in sample()) {
        let p = mann_whitney(&a, &b).unwrap().p;
        prop_assert!((0.0..=1.0).contains(&p), "{}", p);
    }

    #[test]
    fn holm_keeps_the_order_and_never_lowers(p in prop::collection::vec(0.0..1.0_f64, 0..20)) {
        let adjusted = holm(&p);
        for (at, value) in p.iter().enumerate() {
            prop_assert!(adjusted[at] >= *value && adjusted[at] <= 1.0);
            for (other, larger) in p.iter().enumerate() {
                prop_assert!(value > larger || adjusted[at] <= adjusted[other]);
            }
        }
    }
}
