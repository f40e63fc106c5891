use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn any_summary() -> impl Strategy<Value = TraceSummary> {
    let texts = prop::collection::vec("\\PC{0,20}", 6);
    let steps = prop::collection::btree_map(("[a-c]{0,2}", "[a-c.]{0,3}"), any::<u64>(), 0..9);
    let versions = prop::collection::btree_map("[a-z]{0,9}", "[0-9.+]{0,9}", 0..5);
    let times = (0..i64::MAX, any::<u64>());
    (any::<[u8; 16]>(), texts, times, steps, versions).prop_map(
        |(id, texts, (start, duration), steps, versions)| {
            let step = |((service, operation), time)| {
                (StepName { service, operation }, Duration::from_nanos(time))
            };
            TraceSummary {
                id,
                root: texts[0].clone(),
                uid: texts[1].clone(),
                namespace: texts[2].clone(),
                name: texts[3].clone(),
                shape: texts[4].clone(),
                outcome: texts[5].clone(),
                start: Timestamp::from_nanosecond(start.into()).unwrap(),
                duration: Duration::from_nanos(duration),
                steps: steps.into_iter().map(step).collect(),
                versions,
            }
        },
    )
}

proptest! {
    #[test]
    fn encoding_is_lossless_and_released_without_rest(
        summaries in prop::collection::vec(any_summary(), 1..5),
    ) {
        let mut strings = StringTable::default();
        let mut blocks = ByteBlocks::default();
        let encoded: Vec<_> = summaries
            .iter()
            .map(|summary| EncodedSummary::new(summary, &mut strings, &mut blocks))
            .collect();
        for (encoded, summary) in encoded.iter().zip(&summaries) {
            let decoded = encoded.decode(&strings);
            prop_assert_eq!(decoded.as_ref(), Some(summary));
        }
        for encoded in encoded {
            encoded.release(&mut strings);
        }
        prop_assert_eq!(strings.bytes(), 0);
    }
}

#[test]
fn the_separator_of_shared_strings_is_replaced_in_names() {
    let step = StepName {
        service: "a\0b".to_owned(),
        operation: "\0".to_owned(),
    };
    let summary = TraceSummary {
        id: [1; 16],
        root: "r\0".to_owned(),
        uid: String::new(),
        namespace: String::new(),
        name: String::new(),
        shape: String::new(),
        outcome: String::new(),
        start: Timestamp::UNIX_EPOCH,
        duration: Duration::ZERO,
        steps: BTreeMap::from([(step, Duration::ZERO)]),
        versions: BTreeMap::from([("\0".to_owned(), "1\0.2".to_owned())]),
    };
    let mut strings = StringTable::default();
    let encoded = EncodedSummary::new(&summary, &mut strings, &mut ByteBlocks::default());
    let decoded = encoded.decode(&strings).unwrap();
    let step = decoded.steps.keys().next().unwrap();
    assert_eq!(
        (step.service.as_str(), step.operation.as_str()),
        ("a\u{fffd}b", "\u{fffd}")
    );
    let versions: Vec<_> = decoded.versions.into_iter().collect();
    assert_eq!(
        versions,
        [("\u{fffd}".to_owned(), "1\u{fffd}.2".to_owned())]
    );
    assert_eq!(decoded.root, "r\0");
}

#[test]
fn hostile_summaries_are_cut_and_keep_their_sum() {
    let step = |n: u64| {
        let name = StepName {
            service: "s".to_owned(),
            operation: format!("{n}{}", "ä".repeat(9_999)),
        };
        (name, Duration::from_nanos(n))
    };
    let steps: BTreeMap<_, _> = (0..2_000).map(step).collect();
    let summary = TraceSummary {
        id: [1; 16],
        root: String::new(),
        uid: "u".repeat(10 << 20),
        namespace: String::new(),
        name: String::new(),
        shape: String::new(),
        outcome: String::new(),
        start: Timestamp::MIN,
        duration: steps.values().sum(),
        versions: (0..999).map(|n| (n.to_string(), String::new())).collect(),
        steps,
    };
    let mut strings = StringTable::default();
    let encoded = EncodedSummary::new(&summary, &mut strings, &mut ByteBlocks::default());
    let decoded = encoded.decode(&strings).unwrap();
    assert_eq!(decoded.steps.values().sum::<Duration>(), summary.duration);
    assert!(decoded.steps.contains_key(&StepName::unattributed()));
    assert_eq!(
        (decoded.steps.len(), decoded.versions.len()),
        (MAX_STEPS, MAX_VERSIONS)
    );
    assert_eq!(
        (decoded.uid.len(), decoded.start),
        (MAX_TEXT, Timestamp::UNIX_EPOCH)
    );
    assert!(encoded.size() + strings.bytes() < 200_000);
}
