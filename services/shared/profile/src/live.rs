//! The addresses of sampled allocations that were not freed, without locks.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Slots of the table; a power of two.
const SLOTS: usize = 16 * 1024;
/// Slots in which an address may be.
const PROBES: usize = 16;

/// Records by address. An address is inserted before its allocation is returned, and removed before it is freed, so
/// that no two calls concern the same one at the same time.
pub(crate) struct LiveTable {
    /// The address, and the position of its record.
    slots: Box<[(AtomicUsize, AtomicUsize)]>,
}

impl LiveTable {
    pub(crate) fn new() -> Self {
        Self {
            slots: std::iter::repeat_with(Default::default)
                .take(SLOTS)
                .collect(),
        }
    }

    /// Remembers an address; false if there is no space.
    pub(crate) fn insert(&self, address: usize, position: usize) -> bool {
        self.probe(address).any(|(slot, record)| {
            let claimed = slot.compare_exchange(0, address, Ordering::AcqRel, Ordering::Relaxed);
            if claimed.is_ok() {
                record.store(position, Ordering::Release);
            }
            claimed.is_ok()
        })
    }

    /// Forgets an address, and returns the position of its record if it was known.
    pub(crate) fn remove(&self, address: usize) -> Option<usize> {
        let mut slots = self.probe(address);
        let (slot, record) = slots.find(|(slot, _)| slot.load(Ordering::Relaxed) == address)?;
        let position = record.load(Ordering::Acquire);
        slot.store(0, Ordering::Release);
        Some(position)
    }

    fn probe(&self, address: usize) -> impl Iterator<Item = &(AtomicUsize, AtomicUsize)> {
        // The lowest bits of all addresses are zero.
        let hash = (address >> 4).wrapping_mul(0x9E37_79B9) >> 8;
        let slots = (0..PROBES).map(move |step| hash.wrapping_add(step) % SLOTS);
        slots.filter_map(|slot| self.slots.get(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_known_until_they_are_removed() {
        let table = LiveTable::new();
        let addresses = (1..=8000).map(|number| number * 48);
        let known: Vec<_> = addresses
            .clone()
            .filter(|address| table.insert(*address, address + 1))
            .collect();
        assert!(known.len() > 7900, "{}", known.len());
        assert_eq!(table.remove(7), None);
        for address in addresses {
            let expected = known.contains(&address).then_some(address + 1);
            assert_eq!(table.remove(address), expected);
            assert_eq!(table.remove(address), None);
        }
        assert!(table.insert(48, 1), "there is space again");
    }
}
