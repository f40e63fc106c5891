use proptest::prelude::*;

use super::*;
use crate::test_support::summary;

const SANDBOX: (&str, &str) = ("sync-coordinator", "cri.RunPodSandbox");
const START: (&str, &str) = ("sync-coordinator", "sync.start");

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Two starts; the second one waited for nothing else than its sandbox.
fn two() -> [TraceSummary; 2] {
    let step = |(service, operation), millis| (service, operation, millis);
    [
        summary(1, 0, &[step(SANDBOX, 100), step(START, 20), ("", "", 30)]),
        summary(2, 0, &[step(SANDBOX, 250)]),
    ]
}

#[test]
fn quantiles_are_interpolated_as_by_numpy() {
    let times = [10, 20, 40, 80].map(ms).to_vec();
    let quantiles = TimeQuantiles::new(times);
    // numpy.quantile([10, 20, 40, 80], [.5, .95, .99]) = 30, 74, 78.8
    assert_eq!(quantiles.p50, ms(30));
    assert_eq!(quantiles.p95, ms(74));
    assert_eq!(quantiles.p99, Duration::from_micros(78_800));
    assert_eq!(quantiles.max, ms(80));
    assert_eq!(TimeQuantiles::new(Vec::new()), TimeQuantiles::default());
}

#[test]
fn groups_have_their_share_of_all_time() {
    for (by, expected) in [
        (
            StepGrouping::Step,
            &[
                ("sync-coordinator/cri.RunPodSandbox", "runtime", 2, 350, 250),
                ("(unattributed)", "", 1, 30, 30),
                ("sync-coordinator/sync.start", "polylet", 1, 20, 20),
            ][..],
        ),
        (
            StepGrouping::Service,
            &[
                ("sync-coordinator", "", 2, 370, 250),
                ("(unattributed)", "", 1, 30, 30),
            ],
        ),
        (
            StepGrouping::Owner,
            &[
                ("runtime", "runtime", 2, 350, 250),
                ("(unattributed)", "", 1, 30, 30),
                ("polylet", "polylet", 1, 20, 20),
            ],
        ),
    ] {
        let statistics = path_statistics(&two(), by);
        assert_eq!((statistics.traces, statistics.total.p50), (2, ms(200)));
        assert_eq!(statistics.groups.len(), expected.len(), "{by:?}");
        for (group, (label, owner, traces, sum, max)) in statistics.groups.iter().zip(expected) {
            assert_eq!((group.label.as_str(), group.owner), (*label, *owner));
            assert_eq!((group.traces, group.time.max), (*traces, ms(*max)));
            let share = f64::from(*sum) / 400.0;
            assert!((group.share - share).abs() < 1e-9, "{group:?}");
        }
    }
    let first = &path_statistics(&two(), StepGrouping::Step).groups[0];
    assert_eq!(first.slowest, [2; 16]);
    assert_eq!(path_statistics(&[], StepGrouping::Step).groups, []);
}

#[test]
fn a_change_saves_no_more_than_the_step_takes() {
    let after = |step: &str, is_faster, millis| {
        let change = StepChange {
            step: step.to_owned(),
            is_faster,
            by: ms(millis),
        };
        let effect = what_if(&two(), StepGrouping::Step, &change)?;
        Some((effect.traces, effect.after.max, effect.before.max))
    };
    assert_eq!(
        after("cri.RunPodSandbox", true, 50),
        Some((2, ms(200), ms(250)))
    );
    let named = "sync-coordinator/cri.RunPodSandbox";
    assert_eq!(after(named, true, 240), Some((2, ms(50), ms(250))));
    assert_eq!(after("sync.start", true, 50), Some((1, ms(250), ms(250))));
    assert_eq!(after("sync.start", false, 500), Some((1, ms(650), ms(250))));
    assert_eq!(after("sync.stop", true, 50), None);
}

proptest! {
    #[test]
    fn shares_of_groups_sum_up_to_one(
        times in prop::collection::vec(prop::collection::vec(1..1_000_u64, 1..5), 1..30),
    ) {
        let names = ["cri.A", "cri.B", "sync.c", "probe.d", "volume.e"];
        let traces: Vec<_> = times.iter().map(|times| {
            let steps: Vec<_> = times.iter().zip(names).map(|(time, name)| ("x", name, *time)).collect();
            summary(1, 0, &steps)
        }).collect();
        for by in [StepGrouping::Step, StepGrouping::Service, StepGrouping::Owner] {
            let statistics = path_statistics(&traces, by);
            let sum: f64 = statistics.groups.iter().map(|group| group.share).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{}", sum);
            for group in &statistics.groups {
                let TimeQuantiles { p50, p95, p99, max } = group.time;
                prop_assert!(p50 <= p95 && p95 <= p99 && p99 <= max);
                prop_assert!(group.traces <= statistics.traces);
            }
        }
    }
}

#[test]
fn whole_traces_are_grouped_by_shape_and_by_versions_that_vary() {
    let [first, mut second] = two();
    let labels = |traces: &[TraceSummary], by| -> Vec<String> {
        let statistics = path_statistics(traces, by);
        let share: f64 = statistics.groups.iter().map(|group| group.share).sum();
        assert!((share - 1.0).abs() < 1e-9);
        let groups = statistics.groups.into_iter();
        let label = |group: GroupStatistics| {
            let time = group.time.max.as_millis();
            format!("{}: {} of {time} ms", group.label, group.traces)
        };
        groups.map(label).collect()
    };
    let same = [first.clone(), second.clone()];
    let all = ["(all versions are the same): 2 of 250 ms"];
    assert_eq!(labels(&same, StepGrouping::Version), all);
    second.shape = "1 container, 1 init".to_owned();
    let runtime = |version: &str| ("containerd".to_owned(), version.to_owned());
    second.versions.extend([runtime("2.1.9")]);
    // It took no part in the first one.
    assert_eq!(
        labels(&[first.clone(), second.clone()], StepGrouping::Version),
        all
    );
    let mut third = first.clone();
    third.versions.extend([runtime("2.1.8")]);
    let three = [first.clone(), second.clone(), third];
    assert_eq!(
        labels(&three, StepGrouping::Version),
        [
            "containerd 2.1.9: 1 of 250 ms",
            "containerd 2.1.8: 1 of 150 ms",
            "containerd not seen: 1 of 150 ms"
        ]
    );
    let differ = [first, second];
    assert_eq!(
        labels(&differ, StepGrouping::Shape),
        [
            "1 container, 1 init: 1 of 250 ms",
            "1 container: 1 of 150 ms"
        ]
    );
}
