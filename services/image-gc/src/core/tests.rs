use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::plan::{Disk, Policy, bytes_over, make_room, too_old};
use super::records::{Listed, Look, Records, observe};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("a time")
}

fn image(id: &str, size_bytes: u64) -> Listed {
    Listed {
        id: format!("sha256:{id}"),
        names: vec![format!("docker.io/library/{id}:1")],
        size_bytes,
        pinned: false,
    }
}

fn look(images: &[Listed], used: &[&str], wanted: &[&str]) -> Look {
    Look {
        images: images.to_vec(),
        used: used.iter().map(|s| (*s).to_owned()).collect(),
        wanted: wanted.iter().map(|s| (*s).to_owned()).collect(),
    }
}

const POLICY: Policy = Policy {
    high_percent: 85,
    low_percent: 80,
    minimum_age: Duration::from_secs(120),
    maximum_age: Duration::ZERO,
};

fn ids(removals: &[super::plan::Removal]) -> Vec<&str> {
    removals.iter().map(|r| r.id.as_str()).collect()
}

#[test]
fn room_is_made_from_the_high_threshold_down_to_the_low_one() {
    let disk = |available| Disk {
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
            bytes_over(&POLICY, disk(available)),
            expected,
            "available {available}"
        );
    }
    assert_eq!(bytes_over(&POLICY, Disk::default()), 0);
    let off = Policy {
        high_percent: 100,
        ..POLICY
    };
    assert_eq!(bytes_over(&off, disk(0)), 0);
    assert!(off.is_off());
}

#[test]
fn least_recently_used_goes_first_and_only_as_much_as_is_wanted() {
    let images = [image("a", 10), image("b", 10), image("c", 10)];
    // c was used first, then a; b never.
    let records = observe(&Records::new(), &look(&images, &["sha256:c"], &[]), at(0));
    let records = observe(&records, &look(&images, &["sha256:a"], &[]), at(10));
    let idle = look(&images, &[], &[]);
    let plan = make_room(&idle, &records, at(1000), POLICY.minimum_age, Some(11));
    assert_eq!(ids(&plan), ["sha256:b", "sha256:c"]);
    let all = make_room(&idle, &records, at(1000), POLICY.minimum_age, None);
    assert_eq!(ids(&all), ["sha256:b", "sha256:c", "sha256:a"]);
    assert!(make_room(&idle, &records, at(119), POLICY.minimum_age, None).is_empty());
    assert_eq!(
        make_room(&idle, &records, at(119), Duration::ZERO, None).len(),
        3
    );
}

#[test]
fn used_wanted_and_pinned_images_stay() {
    let mut pinned = image("pause", 10);
    pinned.pinned = true;
    let images = [
        image("used", 10),
        image("wanted", 10),
        image("free", 10),
        pinned,
    ];
    let look = look(&images, &["used"], &["docker.io/library/wanted:1"]);
    let records = observe(&Records::new(), &look, at(0));
    let plan = make_room(&look, &records, at(1000), Duration::ZERO, None);
    assert_eq!(ids(&plan), ["sha256:free"]);
}

#[test]
fn age_counts_from_the_last_use() {
    let policy = Policy {
        maximum_age: Duration::from_secs(100),
        ..POLICY
    };
    let images = [image("a", 1), image("b", 1)];
    let records = observe(&Records::new(), &look(&images, &[], &[]), at(0));
    let records = observe(&records, &look(&images, &["sha256:a"], &[]), at(50));
    let idle = look(&images, &[], &[]);
    assert_eq!(
        ids(&too_old(&policy, &idle, &records, at(101))),
        ["sha256:b"]
    );
    assert_eq!(too_old(&policy, &idle, &records, at(151)).len(), 2);
    assert!(too_old(&POLICY, &idle, &records, at(1_000_000)).is_empty());
}

proptest! {
    #[test]
    fn nothing_that_must_stay_ever_goes(
        flags in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), 0_u64..100), 0..12),
        wanted in prop::option::of(0_u64..500),
        later in 0_i64..100_000,
    ) {
        let mut images = Vec::new();
        let (mut used, mut named) = (Vec::new(), Vec::new());
        for (n, (is_used, is_named, pinned, size)) in flags.iter().enumerate() {
            let mut one = image(&format!("i{n}"), *size);
            one.pinned = *pinned;
            if *is_used { used.push(one.id.clone()); }
            if *is_named { named.push(one.names[0].clone()); }
            images.push(one);
        }
        let look = Look {
            images: images.clone(),
            used: used.iter().cloned().collect(),
            wanted: named.iter().cloned().collect(),
        };
        let records = observe(&Records::new(), &look, at(0));
        let plan = make_room(&look, &records, at(later), Duration::ZERO, wanted);
        for removal in &plan {
            let image = images.iter().find(|i| i.id == removal.id).expect("listed");
            prop_assert!(!image.pinned && !look.in_use(image) && !look.wanted(image));
        }
        // Removing what the plan says and looking again leaves nothing more to remove.
        let mut after = look.clone();
        after.images.retain(|i| !plan.iter().any(|r| r.id == i.id));
        let freed: u64 = plan.iter().map(|r| r.size_bytes).sum();
        let rest = wanted.map(|w| w.saturating_sub(freed));
        let again = make_room(&after, &records, at(later), Duration::ZERO, rest);
        prop_assert!(again.is_empty() || rest.is_some_and(|r| r > 0) || rest.is_none() && again.is_empty());
        // The order in which the runtime lists does not matter.
        let mut reversed = look.clone();
        reversed.images.reverse();
        prop_assert_eq!(plan, make_room(&reversed, &records, at(later), Duration::ZERO, wanted));
    }
}
