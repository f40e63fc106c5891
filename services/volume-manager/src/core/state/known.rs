//! What is known, as volumes ask for it. One object may name another: whatever is asked for on the
//! way to a volume is referred to from then on.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::State;
use crate::core::certificates::{self, CertificateKey};
use crate::core::claims::{self, Resolved};
use crate::core::csi::{self, Registered};
use crate::core::declare::Wish;
use crate::core::objects::{ObjectKey, ObjectState};
use crate::core::payload::{self, Blocked};
use crate::core::place::Place;
use crate::core::spec::{SetUp, Volume, Wants};
use crate::core::tokens::{Issued, TokenKey};

static UNHEARD: ObjectState = ObjectState::Unheard;

impl State {
    /// Looks which objects, tokens and certificates a pod's volumes need.
    pub(super) fn look_further(&mut self, uid: &str) {
        let Some(Wish::Keep(spec)) = self.declarations.get(uid).map(|d| &d.wish) else {
            return;
        };
        let asked = Asked {
            state: self,
            keys: RefCell::new(spec.objects()),
            tokens: RefCell::new(spec.tokens().cloned().collect()),
        };
        for volume in &spec.volumes {
            resolve(volume, &asked);
        }
        let (keys, tokens) = (asked.keys.into_inner(), asked.tokens.into_inner());
        let certificates = spec.certificates().cloned().collect();
        self.refers_to(uid, keys);
        self.holds(uid, tokens, certificates);
    }
}

impl payload::Known for State {
    fn object(&self, key: &ObjectKey) -> &ObjectState {
        self.objects.get(key).unwrap_or(&UNHEARD)
    }

    fn token(&self, key: &TokenKey) -> Result<Issued, Blocked> {
        self.tokens.get(key).cloned().unwrap_or_default().issued()
    }

    fn certificate(&self, key: &CertificateKey) -> Result<certificates::Issued, Blocked> {
        let known = self.certificates.get(key).cloned();
        known.unwrap_or_default().issued()
    }

    fn registered(&self, driver: &str) -> Option<&Registered> {
        let known = self.drivers.values().filter(|known| known.name == driver);
        known.max_by_key(|known| known.version)
    }

    fn node(&self) -> &str {
        &self.node
    }

    fn is_elsewhere(&self, uid: &str, persistent: &str) -> bool {
        self.has_another(uid, persistent)
    }

    fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }
}

/// Notes which objects and tokens are asked for.
struct Asked<'a> {
    state: &'a State,
    keys: RefCell<BTreeSet<ObjectKey>>,
    tokens: RefCell<BTreeSet<TokenKey>>,
}

impl payload::Known for Asked<'_> {
    fn object(&self, key: &ObjectKey) -> &ObjectState {
        self.keys.borrow_mut().insert(key.clone());
        payload::Known::object(self.state, key)
    }

    fn token(&self, key: &TokenKey) -> Result<Issued, Blocked> {
        self.tokens.borrow_mut().insert(key.clone());
        payload::Known::token(self.state, key)
    }

    fn certificate(&self, key: &CertificateKey) -> Result<certificates::Issued, Blocked> {
        payload::Known::certificate(self.state, key)
    }

    fn registered(&self, driver: &str) -> Option<&Registered> {
        payload::Known::registered(self.state, driver)
    }

    fn node(&self) -> &str {
        &self.state.node
    }

    fn is_elsewhere(&self, uid: &str, persistent: &str) -> bool {
        payload::Known::is_elsewhere(self.state, uid, persistent)
    }

    fn place(&self) -> Option<&Place> {
        self.state.place.as_ref()
    }
}

/// What one volume comes to with what is known; nothing for one that this node cannot have.
pub(in crate::core) fn resolve(volume: &Volume, known: &impl payload::Known) -> Option<Resolved> {
    let slot = || Some((volume.plugin()?.to_owned(), volume.name.clone()));
    Some(match &volume.wants {
        Wants::Plain(set_up) => (slot()?, Ok(Arc::new(set_up.clone()))),
        Wants::Files(files) => {
            let files = payload::files(files, known);
            (slot()?, files.map(|files| Arc::new(SetUp::Files(files))))
        }
        Wants::Inline(spec) => csi::inline(&volume.name, spec, known),
        Wants::Claim(claim) => claims::resolve(&volume.name, claim, known),
        Wants::Refused(_) => return None,
    })
}
