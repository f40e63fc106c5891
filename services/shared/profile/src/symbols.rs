//! The names of functions at addresses of this process.

use std::collections::BTreeMap;
use std::ffi::c_void;

/// A function, and where it is in the source if the program has that information.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceFrame {
    pub(crate) function: String,
    pub(crate) file: String,
    pub(crate) line: u32,
}

/// The functions at addresses: several where functions are inlined, innermost first; none where it is not known.
/// Reads the symbols of the program, and frees them afterwards: milliseconds for the first address.
pub(crate) fn resolve(
    addresses: impl IntoIterator<Item = usize>,
) -> BTreeMap<usize, Vec<SourceFrame>> {
    let mut found = BTreeMap::new();
    for address in addresses {
        let frames: &mut Vec<SourceFrame> = found.entry(address).or_default();
        if frames.is_empty() {
            backtrace::resolve(address as *mut c_void, |symbol| {
                let function = symbol.name().map(|name| format!("{name:#}"));
                let file = symbol.filename().map(|file| file.display().to_string());
                frames.push(SourceFrame {
                    function: function.unwrap_or_default(),
                    file: file.unwrap_or_default(),
                    line: symbol.lineno().unwrap_or_default(),
                });
            });
        }
    }
    backtrace::clear_symbol_cache();
    found
}

/// The name of the function at each address of this process; `None` where it is not known.
pub fn function_names(addresses: &[usize]) -> Vec<Option<String>> {
    let found = resolve(addresses.iter().copied());
    let name = |address: &usize| Some(found.get(address)?.first()?.function.clone());
    addresses
        .iter()
        .map(name)
        .map(|name| name.filter(|name| !name.is_empty()))
        .collect()
}

/// Whether a function belongs to the allocator, or records a sample in it.
pub(crate) fn is_allocator(function: &str) -> bool {
    const OWN: [&str; 6] = [
        "polylet_profile::stack::",
        "polylet_profile::recorder::",
        "polylet_profile::heap::",
        "backtrace::backtrace::",
        "__rust_",
        "alloc::alloc::",
    ];
    OWN.iter().any(|own| function.contains(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_names() {
        let address = function_names as *const () as usize;
        // The address of a function is resolved as a return address: it is the next one's.
        let names = function_names(&[address + 1, 16]);
        let name = names[0].as_deref().unwrap();
        assert!(name.ends_with("symbols::function_names"), "{name}");
        assert_eq!(names[1], None);
    }

    #[test]
    fn allocators_are_recognized() {
        for (function, expected) in [
            (
                "<polylet_profile::heap::SampledAllocator as core::alloc::global::GlobalAlloc>::alloc",
                true,
            ),
            ("__rustc::__rust_alloc", true),
            (
                "<alloc::alloc::Global as core::alloc::Allocator>::allocate",
                true,
            ),
            ("backtrace::backtrace::libunwind::trace", true),
            ("polylet_pleg::run::EventLoop::run", false),
            ("alloc::raw_vec::RawVecInner<A>::grow_amortized", false),
        ] {
            assert_eq!(is_allocator(function), expected, "{function}");
        }
    }
}
