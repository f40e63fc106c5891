//! Which images go, in which order.
//!
//! Upstream's rules: images in use or pinned never go; the least recently used goes first, then the
//! longest known; images younger than the minimum age stay; from the high threshold on, room is made
//! down to the low one; with a maximum age, all that has been unused for longer goes. Beyond
//! upstream, an image that an accepted pod names stays too: it would be pulled again at once.

use std::time::Duration;

use jiff::Timestamp;

use super::records::{Listed, Look, Records};

/// The limits, from the kubelet's configuration.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Percent of the image file system from which on room is made; 100 switches it off.
    pub high_percent: u8,
    /// Percent down to which room is made.
    pub low_percent: u8,
    /// Younger ones stay.
    pub minimum_age: Duration,
    /// Zero switches removal by age off.
    pub maximum_age: Duration,
}

impl Policy {
    /// Whether a periodic pass could ever remove anything.
    pub fn is_off(&self) -> bool {
        self.high_percent >= 100 && self.maximum_age.is_zero()
    }
}

/// The image file system, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk {
    /// In all.
    pub capacity: u64,
    /// Free for everybody.
    pub available: u64,
}

/// One image to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The runtime's id.
    pub id: String,
    /// What that frees.
    pub size_bytes: u64,
}

/// How many bytes must be freed to come down to the low threshold; zero below the high one.
pub fn bytes_over(policy: &Policy, disk: Disk) -> u64 {
    if disk.capacity == 0 || policy.high_percent >= 100 {
        return 0;
    }
    let percent_free = u128::from(disk.available) * 100 / u128::from(disk.capacity);
    let used_percent = 100_u128.saturating_sub(percent_free);
    if used_percent < u128::from(policy.high_percent) {
        return 0;
    }
    let keep_free = u128::from(disk.capacity) * u128::from(100 - policy.low_percent.min(100)) / 100;
    u64::try_from(keep_free.saturating_sub(u128::from(disk.available))).unwrap_or(u64::MAX)
}

/// Images that have been unused for longer than the maximum age.
pub fn too_old(policy: &Policy, look: &Look, records: &Records, now: Timestamp) -> Vec<Removal> {
    if policy.maximum_age.is_zero() {
        return Vec::new();
    }
    removable(look, records)
        .into_iter()
        .filter(|(_, since, first)| age(since.unwrap_or(*first), now) > policy.maximum_age)
        .map(|(image, ..)| removal(image))
        .collect()
}

/// The images to remove, in order, until `wanted` bytes are freed; all that may go when `wanted` is
/// `None`.
pub fn make_room(
    look: &Look,
    records: &Records,
    now: Timestamp,
    minimum_age: Duration,
    wanted: Option<u64>,
) -> Vec<Removal> {
    let mut freed: u64 = 0;
    let mut chosen = Vec::new();
    for (image, _, first) in removable(look, records) {
        if wanted.is_some_and(|wanted| freed >= wanted) {
            break;
        }
        if age(first, now) < minimum_age {
            continue;
        }
        freed = freed.saturating_add(image.size_bytes);
        chosen.push(removal(image));
    }
    chosen
}

type Candidate<'a> = (&'a Listed, Option<Timestamp>, Timestamp);

/// What may go at all, least recently used first. An image without a record has not been looked at
/// long enough and stays.
fn removable<'a>(look: &'a Look, records: &Records) -> Vec<Candidate<'a>> {
    let mut candidates: Vec<Candidate<'a>> = look
        .images
        .iter()
        .filter(|image| !image.pinned && !look.in_use(image) && !look.wanted(image))
        .filter_map(|image| {
            let ages = records.get(&image.id)?;
            Some((image, ages.last_used, ages.first_detected))
        })
        .collect();
    candidates.sort_by(|a, b| (a.1, a.2, &a.0.id).cmp(&(b.1, b.2, &b.0.id)));
    candidates
}

fn removal(image: &Listed) -> Removal {
    Removal {
        id: image.id.clone(),
        size_bytes: image.size_bytes,
    }
}

fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
}
