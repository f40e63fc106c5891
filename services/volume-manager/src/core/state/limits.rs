//! How many volumes drivers can have on this node, and when they are asked anew.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::State;
use crate::core::csi;
use crate::core::limits::{Recount, exhausted};

/// Refers to what drivers on this node are said to be, in the place of a pod's uid.
const DRIVERS: &str = "";

impl State {
    /// What the cluster says of the drivers on this node is followed, whoever uses them.
    pub(super) fn look_at_drivers(&mut self) {
        let names = self.drivers.values();
        let objects = names.map(|driver| csi::object(&driver.name)).collect();
        self.refers_to(DRIVERS, objects);
    }

    /// The drivers that are to be asked again how many volumes they can have here, by name.
    pub fn recounts(&self) -> BTreeMap<String, Recount> {
        let names = self.drivers.values().map(|driver| &driver.name);
        let recounts = names.filter_map(|name| {
            let driver = csi::driver(name, self).ok()??;
            let asked = self.exhausted.get(name).copied().unwrap_or_default();
            let every = driver.recounted?;
            Some((name.clone(), Recount { every, asked }))
        });
        recounts.collect()
    }

    /// A pod is refused, or will be.
    pub(super) fn recount(&mut self, uid: &str, due: Option<Timestamp>, is_refused: bool) {
        if let Some(due) = due {
            let wake = self.wakes.entry(uid.to_owned()).or_insert(due);
            *wake = due.min(*wake);
        }
        if is_refused {
            let desired = self.desired(uid);
            for driver in exhausted(&desired) {
                *self.exhausted.entry(driver.to_owned()).or_default() += 1;
            }
        }
    }
}
