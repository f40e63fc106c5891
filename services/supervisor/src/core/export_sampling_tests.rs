use polylet_kit::config::{KubeletConfiguration, Tracing};
use proptest::prelude::*;

use super::*;

const JOINED_FLAG: u32 = 0x80;

fn sampling(rate: i32, errors: bool, slowest: u8) -> ExportSampling {
    let config = KubeletConfiguration {
        tracing: Some(Tracing {
            endpoint: None,
            sampling_rate_per_million: Some(rate),
        }),
        ..KubeletConfiguration::default()
    };
    let (sampler, _) = TraceSampler::from_settings(&config, |_| None);
    ExportSampling::new(sampler, TailSampling { errors, slowest })
}

fn end(trace: u128, millis: u64, failed: bool) -> TraceEnd<'static> {
    TraceEnd {
        trace: trace.to_be_bytes(),
        root: "pod.start",
        duration: Duration::from_millis(millis),
        failed,
    }
}

#[test]
fn sampled_traces_are_exported_at_once_and_others_discarded() {
    let mut all = sampling(1_000_000, true, 5);
    assert_eq!(all.fate([7; 16], 0), SpanFate::Export);
    assert!(all.end(end(7, 1, false)));
    let mut none = sampling(0, false, 0);
    assert_eq!(none.fate([7; 16], 1), SpanFate::Discard);
    assert!(!none.end(end(7, 1, true)));
}

#[test]
fn traces_that_continue_a_sampled_one_are_exported_with_their_roots() {
    let mut none = sampling(0, false, 0);
    assert_eq!(none.fate([1; 16], JOINED_FLAG | 1), SpanFate::Export);
    assert_eq!(none.fate([2; 16], JOINED_FLAG), SpanFate::Discard);
    let ended = |trace: u8| TraceEnd {
        trace: [trace; 16],
        ..end(0, 1, false)
    };
    assert!(none.end(ended(1)) && !none.end(ended(2)));
    let mut all = sampling(1_000_000, false, 0);
    assert_eq!(all.fate([3; 16], JOINED_FLAG), SpanFate::Discard);
    assert!(!all.end(ended(3)), "its root neither");
    let mut failed = sampling(1_000_000, true, 0);
    assert_eq!(failed.fate([4; 16], JOINED_FLAG), SpanFate::Hold);
    assert!(!failed.end(ended(4)), "nothing failed");
}

#[test]
fn failed_traces_are_exported_at_their_end_with_what_comes_after_it() {
    let mut failed = sampling(0, true, 0);
    for (trace, is_failed, fate) in [
        (1_u128, true, SpanFate::Export),
        (2, false, SpanFate::Discard),
    ] {
        assert_eq!(failed.fate(trace.to_be_bytes(), 0), SpanFate::Hold);
        assert_eq!(failed.end(end(trace, 1, is_failed)), is_failed);
        assert_eq!(failed.fate(trace.to_be_bytes(), 0), fate);
    }
}

#[test]
fn the_slowest_of_a_kind_are_exported_once_there_are_others() {
    let mut slow = sampling(0, false, 10);
    for trace in 0..20 {
        assert!(!slow.end(end(trace, 100 + trace as u64, false)), "too few");
    }
    assert!(slow.end(end(50, 200, false)));
    assert!(!slow.end(end(51, 110, false)));
    let other = TraceEnd {
        root: "pod.delete",
        ..end(52, 900, false)
    };
    assert!(!slow.end(other), "another kind");
}

proptest! {
    #[test]
    fn held_spans_stay_within_their_bound(
        spans in prop::collection::vec((0_u8..6, 1_usize..400, any::<bool>()), 0..80),
    ) {
        let mut held = HeldSpans::new(1_000);
        let (mut added, mut gone) = (0, 0);
        for (trace, bytes, is_taken) in spans {
            added += 1;
            gone += held.hold([trace; 16], &vec![trace; bytes], 1);
            prop_assert!(held.bytes <= 1_000);
            if is_taken {
                let before = held.traces.get(&[trace; 16]).map_or(0, |held| held.spans);
                let taken = held.take([trace; 16]);
                prop_assert!(taken.iter().all(|byte| *byte == trace));
                gone += before;
            }
        }
        let left: u64 = held.traces.values().map(|held| held.spans).sum();
        prop_assert_eq!(left + gone, added);
        prop_assert_eq!(held.order.len(), held.traces.len());
        let bytes: usize = held.traces.values().map(|held| held.encoded.len()).sum();
        prop_assert_eq!(held.bytes, bytes);
    }
}
