//! Standing orders, kept so that a restart forgets none.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use polylet_kit::kept;
use polylet_wire::eviction::v1 as wire;
use polylet_wire::time;
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

/// The orders that stand, by pod uid.
pub struct Orders {
    shelf: Box<dyn Shelf>,
    standing: BTreeMap<String, wire::Order>,
}

/// Where orders are kept.
pub trait Shelf {
    /// Keeps these and no others.
    ///
    /// # Errors
    /// When they cannot be written: what was kept before stands.
    fn put(&self, orders: &BTreeMap<String, wire::Order>) -> Result<(), kept::KeptError>;
}

/// A file in the run directory.
struct File(PathBuf);

impl Shelf for File {
    fn put(&self, orders: &BTreeMap<String, wire::Order>) -> Result<(), kept::KeptError> {
        let kept: Vec<Kept> = orders.values().map(Kept::from).collect();
        kept::save(&self.0, VERSION, &kept)
    }
}

#[derive(Serialize, Deserialize)]
struct Kept {
    uid: String,
    namespace: String,
    name: String,
    resource: i32,
    grace_seconds: u32,
    message: String,
    decided_at: Timestamp,
    disruption_target: bool,
}

impl Orders {
    /// Reads the kept orders; a broken file is set aside, since orders are made anew while pressure lasts.
    pub(crate) fn open(path: PathBuf) -> Self {
        let without = "starting without kept orders";
        let kept: Option<Vec<Kept>> = kept::load_or_set_aside(&path, VERSION, without);
        let kept = kept.unwrap_or_default();
        let standing = kept
            .into_iter()
            .map(|one| (one.uid.clone(), one.into()))
            .collect();
        Self::new(Box::new(File(path)), standing)
    }

    /// These stand, and are kept there.
    pub fn new(shelf: Box<dyn Shelf>, standing: BTreeMap<String, wire::Order>) -> Self {
        Self { shelf, standing }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &wire::Order)> {
        self.standing.iter()
    }

    /// Adds an order, on disk before anybody can see it.
    ///
    /// # Errors
    /// When it cannot be written; it does not stand then.
    pub(crate) fn add(&mut self, uid: &str, order: wire::Order) -> Result<(), kept::KeptError> {
        let mut next = self.standing.clone();
        next.insert(uid.to_owned(), order);
        self.shelf.put(&next)?;
        self.standing = next;
        Ok(())
    }

    /// Withdraws the order for a pod that has left.
    pub(crate) fn withdraw(&mut self, uid: &str) {
        if self.standing.remove(uid).is_none() {
            return;
        }
        if let Err(error) = self.shelf.put(&self.standing) {
            // Read back after a restart, it names a pod that is gone and is withdrawn again.
            tracing::warn!(
                error = polylet_kit::report(&error),
                pod = uid,
                "the withdrawn order stays on disk"
            );
        }
    }
}

impl From<&wire::Order> for Kept {
    fn from(order: &wire::Order) -> Self {
        let pod = order.pod.clone().unwrap_or_default();
        Self {
            uid: pod.uid,
            namespace: pod.namespace,
            name: pod.name,
            resource: order.resource,
            grace_seconds: order.grace_seconds,
            message: order.message.clone(),
            decided_at: time::from_wire_opt(order.decided_at.as_ref()).unwrap_or_default(),
            disruption_target: order.disruption_target,
        }
    }
}

impl From<Kept> for wire::Order {
    fn from(kept: Kept) -> Self {
        Self {
            pod: Some(polylet_wire::common::v1::PodRef {
                uid: kept.uid,
                namespace: kept.namespace,
                name: kept.name,
            }),
            resource: kept.resource,
            grace_seconds: kept.grace_seconds,
            message: kept.message,
            decided_at: Some(time::to_wire(kept.decided_at)),
            cause: None,
            disruption_target: kept.disruption_target,
        }
    }
}
