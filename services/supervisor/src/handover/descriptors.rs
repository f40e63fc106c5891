//! The descriptors that a program finds when it continues in the process of another one. Their names and
//! numbers are in the environment, apart from the state, so that they are found even if that is not understood.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_getfd, fcntl_setfd};

/// The environment variable: `name=number` for each, separated by `:`.
pub(crate) const VARIABLE: &str = "POLYLET_HANDOVER";

/// The state of the services.
pub(crate) const STATE: &str = "state";
/// The recent spans.
pub(crate) const SPANS: &str = "spans";
/// The lock that excludes a second supervisor.
pub(crate) const LOCK: &str = "lock";
/// The supervisor's own socket.
pub(crate) const OWN_SOCKET: &str = "socket";

/// The name of a service's listening socket.
pub(crate) fn socket_of(service: &str) -> String {
    format!("{service}.sock")
}

/// The name of a service's notify socket.
pub(crate) fn notify_of(service: &str) -> String {
    format!("{service}.notify")
}

/// The start of the names of a service's stored descriptors.
pub(crate) fn stored_of(service: &str) -> String {
    format!("{service}.stored.")
}

/// Descriptors for the next program, by name.
pub(crate) type NamedDescriptors<'a> = Vec<(String, BorrowedFd<'a>)>;

/// The name of a stored descriptor, which its service has chosen, without the signs of the variable.
pub(crate) fn escaped(name: &str) -> String {
    name.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn unescaped(name: &str) -> String {
    let digits = (0..name.len()).step_by(2);
    let bytes = digits.filter_map(|at| u8::from_str_radix(name.get(at..at + 2)?, 16).ok());
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

/// The value of the variable.
pub(crate) fn format(descriptors: &NamedDescriptors<'_>) -> OsString {
    let named = descriptors.iter();
    let named = named.map(|(name, descriptor)| format!("{name}={}", descriptor.as_raw_fd()));
    named.collect::<Vec<_>>().join(":").into()
}

/// Whether descriptors stay open when another program is started.
pub(crate) fn set_inherited(
    descriptors: &NamedDescriptors<'_>,
    inherited: bool,
) -> rustix::io::Result<()> {
    let flags = if inherited {
        FdFlags::empty()
    } else {
        FdFlags::CLOEXEC
    };
    for (_, descriptor) in descriptors {
        fcntl_setfd(descriptor, flags)?;
    }
    Ok(())
}

/// The descriptors that this program has found.
#[derive(Debug)]
pub(crate) struct InheritedDescriptors {
    numbers: BTreeMap<String, RawFd>,
}

impl InheritedDescriptors {
    /// Those that the variable names and that are open.
    pub(crate) fn parse(value: &OsStr) -> InheritedDescriptors {
        let value = value.to_string_lossy();
        let named = value.split(':').filter_map(|one| one.split_once('='));
        let numbered = named.filter_map(|(name, number)| {
            let number: RawFd = number.parse().ok()?;
            // Standard streams are never among them.
            (number > 2 && borrow(number).is_some()).then(|| (name.to_owned(), number))
        });
        InheritedDescriptors {
            numbers: numbered.collect(),
        }
    }

    /// A copy of a descriptor, which is not inherited by children. The original stays for another program.
    pub(crate) fn get(&self, name: &str) -> Option<OwnedFd> {
        let descriptor = borrow(*self.numbers.get(name)?)?;
        // Not 3, where children find their socket.
        fcntl_dupfd_cloexec(descriptor, 4).ok()
    }

    /// Copies of all descriptors whose name has this prefix, by the rest of it.
    pub(crate) fn with_prefix(&self, prefix: &str) -> Vec<(String, OwnedFd)> {
        let named = self.numbers.keys();
        let named = named.filter_map(|name| Some((name.strip_prefix(prefix)?, self.get(name)?)));
        named
            .map(|(name, descriptor)| (unescaped(name), descriptor))
            .collect()
    }

    /// The originals.
    pub(crate) fn all(&self) -> NamedDescriptors<'static> {
        let open = self.numbers.iter();
        open.filter_map(|(name, number)| Some((name.clone(), borrow(*number)?)))
            .collect()
    }

    /// Closes the originals: this program keeps the copies.
    #[allow(
        unsafe_code,
        reason = "descriptors by number are what the convention is about"
    )]
    pub(crate) fn close(self) {
        use std::os::fd::FromRawFd;
        for number in self.numbers.into_values() {
            // SAFETY: the descriptor was inherited open under this number and nothing else in this
            // program uses it; it is closed once, as `self` is consumed.
            drop(unsafe { File::from_raw_fd(number) });
        }
    }
}

/// A descriptor that is open.
#[allow(
    unsafe_code,
    reason = "descriptors by number are what the convention is about"
)]
fn borrow(number: RawFd) -> Option<BorrowedFd<'static>> {
    if number < 0 {
        return None;
    }
    // SAFETY: the number is not -1; a descriptor that is not open is only asked for its flags, which fails.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_getfd(descriptor).is_ok().then_some(descriptor)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::{AsFd, IntoRawFd};

    use super::*;

    #[test]
    fn descriptors_are_found_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "content").unwrap();
        let file = File::open(&path).unwrap();
        let odd = "a=1:b/\n";
        let stored = format!("{}{}", stored_of("node-api"), escaped(odd));
        let value = format(&vec![
            (STATE.to_owned(), file.as_fd()),
            (stored, file.as_fd()),
        ]);
        let number = file.into_raw_fd();
        let found = InheritedDescriptors::parse(&value);
        let mut text = String::new();
        File::from(found.get(STATE).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "content");
        assert!(found.get(LOCK).is_none());
        let stored = found.with_prefix(&stored_of("node-api"));
        assert_eq!(
            stored.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            [odd]
        );
        assert!(found.with_prefix(&stored_of("pleg")).is_empty());
        assert_eq!(found.all().len(), 2);
        drop(stored);
        // Both names are of one descriptor here.
        let found = InheritedDescriptors {
            numbers: [(STATE.to_owned(), number)].into(),
        };
        found.close();
        assert!(borrow(number).is_none());
    }

    #[test]
    fn what_is_no_open_descriptor_is_ignored() {
        let value = OsStr::new("a=999999:b=x:c:d=-1:e=1:=:");
        assert!(InheritedDescriptors::parse(value).all().is_empty());
    }
}
