use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::format::tests::{any_trace, hostile, pod_start};

/// Checks that each track has its descriptor, that slices begin and end in the order of time and nest, and that flows
/// have both ends. Returns the numbers of slices and flows.
fn check(traces: &[Trace]) -> (usize, usize) {
    let mut bytes = Vec::new();
    write(traces, &mut bytes).unwrap();
    let trace = PerfettoTrace::decode(&*bytes).unwrap();
    let mut parents: HashMap<u64, Option<u64>> = HashMap::new();
    let mut open: HashMap<u64, (u64, usize)> = HashMap::new();
    let mut flows: HashMap<u64, [usize; 2]> = HashMap::new();
    let mut slices = 0;
    for packet in &trace.packet {
        assert_eq!(packet.trusted_packet_sequence_id, Some(SEQUENCE));
        if let Some(track) = &packet.track_descriptor {
            let known = track
                .parent_uuid
                .is_none_or(|parent| parents.contains_key(&parent));
            assert!(known && track.uuid != Some(0));
            assert_eq!(parents.insert(track.uuid.unwrap(), track.parent_uuid), None);
        }
        let Some(event) = &packet.track_event else {
            continue;
        };
        let track = event.track_uuid.unwrap();
        assert!(matches!(parents.get(&track), Some(Some(_))));
        let at = packet.timestamp.unwrap();
        let (last, depth) = open.entry(track).or_insert((0, 0));
        assert!(*last <= at);
        *last = at;
        match event.r#type() {
            TrackEventType::SliceBegin => {
                slices += 1;
                *depth += 1;
            }
            TrackEventType::SliceEnd => *depth -= 1,
            TrackEventType::Unspecified => panic!("{event:?}"),
        }
        for (end, ids) in [&event.flow_ids, &event.terminating_flow_ids]
            .into_iter()
            .enumerate()
        {
            for id in ids {
                flows.entry(*id).or_default()[end] += 1;
            }
        }
    }
    assert!(open.values().all(|(_, depth)| *depth == 0));
    assert!(flows.values().all(|ends| *ends == [1, 1]), "{flows:?}");
    (slices, flows.len())
}

#[test]
fn slices_nest_and_flows_have_both_ends() {
    let trace = pod_start();
    let segments = trace.critical_path().len();
    assert_eq!(
        check(std::slice::from_ref(&trace)),
        (trace.spans.len() + segments + 1, 2)
    );
    let (slices, flows) = check(&[hostile(), pod_start()]);
    assert!(slices > 2 * trace.spans.len() && flows == 4);
    assert_eq!(check(&[]), (0, 0));
}

proptest! {
    #[test]
    fn any_trace_can_be_shown(trace in any_trace()) {
        check(&[trace]);
    }
}
