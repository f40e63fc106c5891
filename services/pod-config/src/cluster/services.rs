//! The Services that have an address.

use std::collections::BTreeMap;

use polylet_watch::Store;
use polylet_wire::podconfig::v1::Service;
use serde_json::Value;

use super::follow::{Ear, Followed};
use super::request::Failure;
use crate::convert;
use crate::core::cluster::kept::KeptServices;
use crate::core::cluster::service::{key, reduce};
use crate::keep::Paced;

/// By namespace and name.
pub(crate) type Services = Store<(String, String), Service>;

/// What is followed.
pub(crate) fn followed() -> Followed {
    Followed {
        path: "/api/v1/services".to_owned(),
        by: None,
        name: None,
    }
}

/// What is to outlive the process.
pub(crate) fn kept(services: &Services) -> KeptServices {
    let services = services.snapshot().into_values();
    KeptServices {
        services: services.map(convert::kept_service).collect(),
    }
}

/// Hears of Services.
pub(crate) struct Hearing {
    services: Services,
    keep: Paced,
    kept: Option<KeptServices>,
}

impl Hearing {
    pub(crate) fn new(services: Services, keep: Paced) -> Hearing {
        let kept = keep.load();
        Hearing {
            services,
            keep,
            kept,
        }
    }

    fn fall_back(&mut self) {
        if self.services.is_whole() {
            return;
        }
        if let Some(kept) = self.kept.take() {
            let kept = kept.services.into_iter().map(convert::service);
            self.services.replace(kept.map(keyed));
            self.services.mark_whole();
        }
    }
}

impl Ear for Hearing {
    async fn whole(&mut self, all: &mut (dyn Iterator<Item = Value> + Send)) {
        let all = all.filter_map(|service| reduce(&service));
        let all: BTreeMap<_, _> = all.map(convert::service).map(keyed).collect();
        self.services.replace(all);
        self.services.mark_whole();
        // Without any at all no pod could start; one that is missing matters less.
        self.kept = None;
        self.keep.soon();
    }

    fn changed(&mut self, object: Value) {
        match reduce(&object) {
            Some(service) => {
                let (key, service) = keyed(convert::service(service));
                if self.services.upsert(key, service) {
                    self.keep.later();
                }
            }
            None => self.gone(object),
        }
    }

    fn gone(&mut self, object: Value) {
        if key(&object).is_some_and(|key| self.services.remove(&key)) {
            self.keep.later();
        }
    }

    fn failed(&mut self, _: &Failure) {
        self.fall_back();
    }

    fn late(&mut self) {
        self.fall_back();
    }
}

fn keyed(service: Service) -> ((String, String), Service) {
    let key = (service.namespace.clone(), service.name.clone());
    (key, service)
}
