use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::plan::{
    ImageFsUsage, ImageGcPolicy, ImageRemoval, bytes_over_threshold, exceeding_maximum_age,
    free_space,
};
use super::records::{ImageRecords, ImageSnapshot, ListedImage, update};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("a time")
}

fn image(id: &str, size_bytes: u64) -> ListedImage {
    ListedImage {
        id: format!("sha256:{id}"),
        names: vec![format!("docker.io/library/{id}:1")],
        size_bytes,
        pinned: false,
    }
}

fn snapshot(images: &[ListedImage], used: &[&str], referenced: &[&str]) -> ImageSnapshot {
    ImageSnapshot {
        images: images.to_vec(),
        container_references: used.iter().map(|s| (*s).to_owned()).collect(),
        pod_references: referenced.iter().map(|s| (*s).to_owned()).collect(),
    }
}

const POLICY: ImageGcPolicy = ImageGcPolicy {
    high_threshold_percent: 85,
    low_threshold_percent: 80,
    minimum_age: Duration::from_secs(120),
    maximum_age: Duration::ZERO,
};

fn ids(removals: &[ImageRemoval]) -> Vec<&str> {
    removals.iter().map(|r| r.id.as_str()).collect()
}

#[test]
fn space_is_freed_from_the_high_threshold_down_to_the_low_one() {
    let usage = |available| ImageFsUsage {
        capacity: 1000,
        available,
    };
    for (available, expected) in [
        (1000, 0),
        (160, 0),
        (159, 41),
        (150, 50),
        (100, 100),
        (0, 200),
    ] {
        assert_eq!(
            bytes_over_threshold(&POLICY, usage(available)),
            expected,
            "available {available}"
        );
    }
    assert_eq!(bytes_over_threshold(&POLICY, ImageFsUsage::default()), 0);
    let disabled = ImageGcPolicy {
        high_threshold_percent: 100,
        ..POLICY
    };
    assert_eq!(bytes_over_threshold(&disabled, usage(0)), 0);
    assert!(disabled.is_disabled());
}

#[test]
fn least_recently_used_is_removed_first_and_no_more_than_needed() {
    let images = [image("a", 10), image("b", 10), image("c", 10)];
    // c was used first, then a; b never.
    let records = update(
        &ImageRecords::new(),
        &snapshot(&images, &["sha256:c"], &[]),
        at(0),
    );
    let records = update(&records, &snapshot(&images, &["sha256:a"], &[]), at(10));
    let idle = snapshot(&images, &[], &[]);
    let plan = free_space(&idle, &records, at(1000), POLICY.minimum_age, Some(11));
    assert_eq!(ids(&plan), ["sha256:b", "sha256:c"]);
    let all = free_space(&idle, &records, at(1000), POLICY.minimum_age, None);
    assert_eq!(ids(&all), ["sha256:b", "sha256:c", "sha256:a"]);
    assert!(free_space(&idle, &records, at(119), POLICY.minimum_age, None).is_empty());
    assert_eq!(
        free_space(&idle, &records, at(119), Duration::ZERO, None).len(),
        3
    );
}

#[test]
fn used_referenced_and_pinned_images_are_not_removed() {
    let mut pinned = image("pause", 10);
    pinned.pinned = true;
    let images = [
        image("used", 10),
        image("referenced", 10),
        image("free", 10),
        pinned,
    ];
    let snapshot = snapshot(&images, &["used"], &["docker.io/library/referenced:1"]);
    let records = update(&ImageRecords::new(), &snapshot, at(0));
    let plan = free_space(&snapshot, &records, at(1000), Duration::ZERO, None);
    assert_eq!(ids(&plan), ["sha256:free"]);
}

#[test]
fn images_are_matched_by_id_name_and_digest() {
    let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let (own, other) = (digest("a"), digest("b"));
    let image = ListedImage {
        id: "sha256:1234".to_owned(),
        names: vec![
            "docker.io/library/app:2".to_owned(),
            format!("r.example:5000/x@{own}"),
        ],
        ..ListedImage::default()
    };
    for (reference, expected) in [
        ("sha256:1234", true),
        ("1234", true),
        ("docker.io/library/app:2", true),
        ("docker.io/library/app:1", false),
        (&format!("r.example:5000/x@{own}"), true),
        // Listed without the tag.
        (&format!("r.example:5000/x:1@{own}"), true),
        (&format!("r.example:5000/x:1@{other}"), false),
        (&format!("r.example:5000/y:1@{own}"), false),
        (&format!("r.example/x:1@{own}"), false),
        ("r.example:5000/x:1", false),
        (&format!("r.example:5000/x:@{own}"), false),
    ] {
        assert_eq!(image.matches(reference), expected, "{reference}");
    }
    let images = [image];
    let reference = format!("r.example:5000/x:1@{own}");
    let by_digest = snapshot(&images, &[], &[&reference]);
    let records = update(&ImageRecords::new(), &by_digest, at(0));
    let plan = free_space(&by_digest, &records, at(1000), Duration::ZERO, None);
    assert_eq!(ids(&plan), [""; 0]);
}

#[test]
fn age_is_measured_from_the_last_use() {
    let policy = ImageGcPolicy {
        maximum_age: Duration::from_secs(100),
        ..POLICY
    };
    let images = [image("a", 1), image("b", 1)];
    let records = update(&ImageRecords::new(), &snapshot(&images, &[], &[]), at(0));
    let records = update(&records, &snapshot(&images, &["sha256:a"], &[]), at(50));
    let idle = snapshot(&images, &[], &[]);
    assert_eq!(
        ids(&exceeding_maximum_age(&policy, &idle, &records, at(101))),
        ["sha256:b"]
    );
    assert_eq!(
        exceeding_maximum_age(&policy, &idle, &records, at(151)).len(),
        2
    );
    assert!(exceeding_maximum_age(&POLICY, &idle, &records, at(1_000_000)).is_empty());
}

proptest! {
    #[test]
    fn protected_images_are_never_removed(
        flags in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), 0_u64..100), 0..12),
        bytes in prop::option::of(0_u64..500),
        later in 0_i64..100_000,
    ) {
        let mut images = Vec::new();
        let (mut used, mut referenced) = (Vec::new(), Vec::new());
        for (n, (is_used, is_referenced, pinned, size)) in flags.iter().enumerate() {
            let mut one = image(&format!("i{n}"), *size);
            one.pinned = *pinned;
            if *is_used { used.push(one.id.clone()); }
            if *is_referenced { referenced.push(one.names[0].clone()); }
            images.push(one);
        }
        let snapshot = ImageSnapshot {
            images: images.clone(),
            container_references: used.iter().cloned().collect(),
            pod_references: referenced.iter().cloned().collect(),
        };
        let records = update(&ImageRecords::new(), &snapshot, at(0));
        let plan = free_space(&snapshot, &records, at(later), Duration::ZERO, bytes);
        for removal in &plan {
            let image = images.iter().find(|i| i.id == removal.id).expect("listed");
            prop_assert!(!image.pinned && !snapshot.in_use(image) && !snapshot.is_referenced(image));
        }
        // After the removals there is nothing more to remove.
        let mut after = snapshot.clone();
        after.images.retain(|i| !plan.iter().any(|r| r.id == i.id));
        let freed: u64 = plan.iter().map(|r| r.size_bytes).sum();
        let rest = bytes.map(|bytes| bytes.saturating_sub(freed));
        let again = free_space(&after, &records, at(later), Duration::ZERO, rest);
        prop_assert!(again.is_empty() || rest.is_some_and(|r| r > 0) || rest.is_none() && again.is_empty());
        // The order of the runtime's list does not matter.
        let mut reversed = snapshot.clone();
        reversed.images.reverse();
        prop_assert_eq!(plan, free_space(&reversed, &records, at(later), Duration::ZERO, bytes));
    }
}
