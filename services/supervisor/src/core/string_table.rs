//! Strings that many records share, each kept once.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Strings with counts of their uses, by index.
#[derive(Debug, Default)]
pub(super) struct StringTable {
    strings: Vec<Option<SharedString>>,
    indices: BTreeMap<Arc<str>, u32>,
    unused: Vec<u32>,
    bytes: usize,
}

#[derive(Debug)]
struct SharedString {
    text: Arc<str>,
    uses: u32,
}

impl StringTable {
    /// The index of a string, which is used once more.
    pub(super) fn acquire(&mut self, text: &str) -> u32 {
        if let Some(index) = self.indices.get(text).copied() {
            if let Some(shared) = self.entry(index) {
                shared.uses = shared.uses.saturating_add(1);
            }
            return index;
        }
        let text: Arc<str> = text.into();
        let index = self.unused.pop().unwrap_or_else(|| {
            self.strings.push(None);
            u32::try_from(self.strings.len() - 1).unwrap_or(u32::MAX)
        });
        self.bytes += size(&text);
        self.indices.insert(text.clone(), index);
        if let Some(entry) = slot(&mut self.strings, index) {
            *entry = Some(SharedString { text, uses: 1 });
        }
        index
    }

    /// A string by its index; empty if there is none.
    pub(super) fn get(&self, index: u32) -> &str {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let entry = self.strings.get(at).and_then(Option::as_ref);
        entry.map_or("", |shared| &shared.text)
    }

    /// Ends one use of a string. The last one frees it.
    pub(super) fn release(&mut self, index: u32) {
        let Some(entry) = slot(&mut self.strings, index) else {
            return;
        };
        let Some(shared) = entry else { return };
        shared.uses = shared.uses.saturating_sub(1);
        if shared.uses > 0 {
            return;
        }
        if let Some(freed) = entry.take() {
            self.bytes = self.bytes.saturating_sub(size(&freed.text));
            self.indices.remove(&freed.text);
            self.unused.push(index);
        }
    }

    /// Memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn entry(&mut self, index: u32) -> Option<&mut SharedString> {
        slot(&mut self.strings, index)?.as_mut()
    }
}

fn slot(strings: &mut [Option<SharedString>], index: u32) -> Option<&mut Option<SharedString>> {
    strings.get_mut(usize::try_from(index).ok()?)
}

/// Memory used for a string, with its places in both collections.
fn size(text: &str) -> usize {
    /// Reference counts and the overhead of the allocator.
    const ALLOCATION: usize = 32;
    text.len() + ALLOCATION + size_of::<Option<SharedString>>() + 2 * size_of::<(Arc<str>, u32)>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_string_is_freed_with_its_last_use() {
        let mut strings = StringTable::default();
        let (a, b) = (strings.acquire("a"), strings.acquire("b"));
        assert_eq!(strings.acquire("a"), a);
        strings.release(a);
        assert_eq!((strings.get(a), strings.get(b)), ("a", "b"));
        strings.release(a);
        strings.release(a);
        assert_eq!((strings.get(a), strings.get(b)), ("", "b"));
        assert_eq!(strings.acquire("c"), a);
        strings.release(a);
        strings.release(b);
        assert_eq!((strings.bytes(), strings.indices.len()), (0, 0));
    }

    proptest! {
        #[test]
        fn strings_are_found_while_they_are_used(
            uses in prop::collection::vec(("[a-d]{0,2}", any::<bool>()), 0..60),
        ) {
            let mut strings = StringTable::default();
            let mut used: Vec<(String, u32)> = Vec::new();
            for (text, is_acquired) in uses {
                if is_acquired || used.is_empty() {
                    let index = strings.acquire(&text);
                    used.push((text, index));
                } else {
                    let (_, index) = used.swap_remove(0);
                    strings.release(index);
                }
                for (text, index) in &used {
                    prop_assert_eq!(strings.get(*index), text);
                }
                let mut texts: Vec<_> = used.iter().map(|(text, _)| text).collect();
                texts.sort_unstable();
                texts.dedup();
                prop_assert_eq!(strings.bytes(), texts.into_iter().map(|text| size(text)).sum::<usize>());
            }
        }
    }
}
