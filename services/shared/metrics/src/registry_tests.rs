use super::*;

#[test]
fn series_differ_by_the_values_of_their_labels() {
    static CALLS: Metric = Metric::counter("calls_total", "Calls.", &["method"]);
    assert!(CALLS.series().is_empty());
    CALLS.increment(&["a"]);
    CALLS.increment(&["b"]);
    CALLS.increment(&["a"]);
    let series = CALLS.series();
    let labels = |value: &str| vec![("method".to_owned(), value.to_owned())];
    assert_eq!(series.len(), 2);
    assert_eq!(series[0].labels, labels("a"));
    assert_eq!(series[0].value, SeriesValue::Number(2.0));
    CALLS.replace([(vec!["c"], 5.0), (vec!["c"], 1.0)]);
    let series = CALLS.series();
    assert_eq!(
        (series.len(), &series[0].value),
        (1, &SeriesValue::Number(6.0))
    );
}

#[test]
fn histograms_are_cumulative_and_exist_from_the_start() {
    static SECONDS: Metric = Metric::histogram("seconds", "Seconds.", &[], &[0.1, 1.0]);
    let value = |buckets: &[(f64, u64)], sum, count| {
        SeriesValue::Histogram(HistogramValue {
            buckets: buckets.to_vec(),
            sum,
            count,
            exemplars: Vec::new(),
        })
    };
    assert_eq!(
        SECONDS.series()[0].value,
        value(&[(0.1, 0), (1.0, 0)], 0.0, 0)
    );
    for number in [0.1, 0.5, 2.0] {
        SECONDS.observe(&[], number);
    }
    assert_eq!(
        SECONDS.series()[0].value,
        value(&[(0.1, 1), (1.0, 2)], 2.6, 3)
    );
}

#[test]
fn time_runs_out_without_being_set() {
    static LEFT: Metric = Metric::seconds_until("left_seconds", "Left.");
    let left = || match LEFT.series()[0].value {
        SeriesValue::Number(left) => left,
        SeriesValue::Histogram(_) => f64::NAN,
    };
    assert_eq!(left(), f64::INFINITY);
    LEFT.set_time(Some(now() as i64 + 1000));
    assert!((900.0..=1000.0).contains(&left()), "{}", left());
    LEFT.set_time(Some(1));
    assert!(left() < 0.0);
    LEFT.set_time(None);
    assert_eq!(left(), f64::INFINITY);
}

#[test]
fn a_family_is_registered_once() {
    static GAUGE: Metric = Metric::gauge("gauge", "A gauge.", &[]);
    register(&[&GAUGE]);
    register(&[&GAUGE]);
    let own = gather()
        .into_iter()
        .filter(|family| family.name() == "gauge");
    assert_eq!(own.count(), 1);
}

#[test]
fn exemplars_are_the_latest_of_their_buckets_until_their_traces_are_gone() {
    static STEPS: Metric = Metric::histogram("steps_seconds", "Steps.", &["step"], &[1.0]);
    for (number, trace) in [(0.5, "a"), (0.7, "b"), (3.0, "c")] {
        STEPS.observe_in_trace(&["pull"], number, trace, 1700.0);
    }
    STEPS.observe(&["pull"], 0.9);
    let exemplars = || match &STEPS.series()[0].value {
        SeriesValue::Histogram(histogram) => {
            let exemplars = histogram.exemplars.iter();
            exemplars
                .map(|exemplar| (exemplar.bucket, exemplar.value, exemplar.trace_id.clone()))
                .collect()
        }
        SeriesValue::Number(_) => Vec::new(),
    };
    let (b, c) = ((0, 0.7, "b".to_owned()), (1, 3.0, "c".to_owned()));
    assert_eq!(exemplars(), [b, c.clone()]);
    STEPS.retain_exemplars(|trace| trace == "c");
    assert_eq!(exemplars(), [c]);
}
