//! Which images to remove, and in which order.
//!
//! Upstream's rules: images in use or pinned are never removed; the least recently used goes first,
//! then the one detected first; images younger than the minimum age stay; above the high threshold,
//! space is freed down to the low one; with a maximum age, images unused for longer are removed.
//! Beyond upstream, an image that a pod of this node names stays too, unless the pod has finished: it
//! would be pulled again at once.

use std::time::Duration;

use jiff::Timestamp;

use super::records::{ImageRecords, ImageSnapshot, ListedImage};

/// The limits in the kubelet's configuration.
#[derive(Clone, Copy, Debug)]
pub struct ImageGcPolicy {
    /// Usage of the image file system in percent from which on space is freed; 100 disables it.
    pub high_threshold_percent: u8,
    /// Usage in percent down to which space is freed.
    pub low_threshold_percent: u8,
    /// Younger images are not removed.
    pub minimum_age: Duration,
    /// Images unused for longer are removed; zero disables it.
    pub maximum_age: Duration,
}

impl ImageGcPolicy {
    /// Whether periodic garbage collection can never remove anything.
    pub fn is_disabled(&self) -> bool {
        self.high_threshold_percent >= 100 && self.maximum_age.is_zero()
    }
}

/// The image file system, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImageFsUsage {
    /// Total space.
    pub capacity: u64,
    /// Free space for unprivileged users.
    pub available: u64,
}

/// An image to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRemoval {
    /// The runtime's id.
    pub id: String,
    /// The space that this frees.
    pub size_bytes: u64,
}

/// The bytes to free to get down to the low threshold; zero below the high one.
pub fn bytes_over_threshold(policy: &ImageGcPolicy, usage: ImageFsUsage) -> u64 {
    if usage.capacity == 0 || policy.high_threshold_percent >= 100 {
        return 0;
    }
    let percent_free = u128::from(usage.available) * 100 / u128::from(usage.capacity);
    let used_percent = 100_u128.saturating_sub(percent_free);
    if used_percent < u128::from(policy.high_threshold_percent) {
        return 0;
    }
    let percent_to_free = 100 - policy.low_threshold_percent.min(100);
    let target = u128::from(usage.capacity) * u128::from(percent_to_free) / 100;
    u64::try_from(target.saturating_sub(u128::from(usage.available))).unwrap_or(u64::MAX)
}

/// The images that have been unused for longer than the maximum age.
pub fn exceeding_maximum_age(
    policy: &ImageGcPolicy,
    snapshot: &ImageSnapshot,
    records: &ImageRecords,
    now: Timestamp,
) -> Vec<ImageRemoval> {
    if policy.maximum_age.is_zero() {
        return Vec::new();
    }
    removable(snapshot, records)
        .into_iter()
        .filter(|candidate| {
            let since = candidate.last_used.unwrap_or(candidate.first_detected);
            age(since, now) > policy.maximum_age
        })
        .map(|candidate| removal(candidate.image))
        .collect()
}

/// The images to remove, in order, until `bytes` are freed; all removable ones when it is `None`.
pub fn free_space(
    snapshot: &ImageSnapshot,
    records: &ImageRecords,
    now: Timestamp,
    minimum_age: Duration,
    bytes: Option<u64>,
) -> Vec<ImageRemoval> {
    let mut freed: u64 = 0;
    let mut chosen = Vec::new();
    for candidate in removable(snapshot, records) {
        if bytes.is_some_and(|bytes| freed >= bytes) {
            break;
        }
        if age(candidate.first_detected, now) < minimum_age {
            continue;
        }
        freed = freed.saturating_add(candidate.image.size_bytes);
        chosen.push(removal(candidate.image));
    }
    chosen
}

struct Removable<'a> {
    image: &'a ListedImage,
    last_used: Option<Timestamp>,
    first_detected: Timestamp,
}

/// The unused images, least recently used first. An image without a record was not listed before and
/// stays.
fn removable<'a>(snapshot: &'a ImageSnapshot, records: &ImageRecords) -> Vec<Removable<'a>> {
    let mut candidates: Vec<Removable<'a>> = snapshot
        .images
        .iter()
        .filter(|image| !image.pinned && !snapshot.in_use(image) && !snapshot.is_referenced(image))
        .filter_map(|image| {
            let record = records.get(&image.id)?;
            Some(Removable {
                image,
                last_used: record.last_used,
                first_detected: record.first_detected,
            })
        })
        .collect();
    candidates.sort_by_key(|c| (c.last_used, c.first_detected, &c.image.id));
    candidates
}

fn removal(image: &ListedImage) -> ImageRemoval {
    ImageRemoval {
        id: image.id.clone(),
        size_bytes: image.size_bytes,
    }
}

fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
}
