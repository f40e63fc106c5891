//! Services with a cluster IP.

use polylet_kit::state_file::StateFileError;
use std::collections::BTreeMap;

use polylet_watch::Store;
use polylet_wire::podconfig::v1::Service;
use serde_json::Value;

use super::request::ApiRequestError;
use super::watcher::{EventHandler, WatchTarget};
use crate::convert;
use crate::core::cluster::service::{key, summarize};
use crate::core::cluster::state::PersistedServices;
use crate::persist::DebouncedFile;

/// Services by namespace and name.
pub(crate) type ServiceStore = Store<(String, String), Service>;

/// All Services of the cluster.
pub(crate) fn watch_target() -> WatchTarget {
    WatchTarget {
        path: "/api/v1/services".to_owned(),
        selector: None,
        name: None,
    }
}

/// The Services to persist.
pub(crate) fn to_persisted(services: &ServiceStore) -> PersistedServices {
    let services = services.snapshot().into_values();
    PersistedServices {
        services: services.map(convert::service_summary).collect(),
    }
}

/// Publishes Services.
pub(crate) struct ServiceHandler {
    services: ServiceStore,
    file: DebouncedFile<PersistedServices>,
    restored: Option<PersistedServices>,
}

impl ServiceHandler {
    pub(crate) fn new(
        services: ServiceStore,
        file: DebouncedFile<PersistedServices>,
    ) -> Result<ServiceHandler, StateFileError> {
        let restored = file.load()?;
        Ok(ServiceHandler {
            services,
            file,
            restored,
        })
    }

    /// Publishes the restored Services: without any, no pod could start, while a missing one does
    /// little harm.
    fn publish_restored(&mut self) {
        if self.services.has_synced() {
            return;
        }
        if let Some(restored) = self.restored.take() {
            let services = restored.services.into_iter().map(convert::service);
            self.services.replace(services.map(with_key));
            self.services.mark_synced();
        }
    }
}

impl EventHandler for ServiceHandler {
    async fn handle_list(&mut self, objects: &mut (dyn Iterator<Item = Value> + Send)) {
        let services = objects.filter_map(|service| summarize(&service));
        let services: BTreeMap<_, _> = services.map(convert::service).map(with_key).collect();
        self.services.replace(services);
        self.services.mark_synced();
        self.restored = None;
        self.file.schedule();
    }

    fn handle_upsert(&mut self, object: Value) {
        match summarize(&object) {
            Some(service) => {
                let (key, service) = with_key(convert::service(service));
                if self.services.upsert(key, service) {
                    self.file.schedule_lazy();
                }
            }
            None => self.handle_delete(object),
        }
    }

    fn handle_delete(&mut self, object: Value) {
        if key(&object).is_some_and(|key| self.services.remove(&key)) {
            self.file.schedule_lazy();
        }
    }

    fn handle_error(&mut self, _: &ApiRequestError) {
        self.publish_restored();
    }

    fn handle_slow_start(&mut self) {
        self.publish_restored();
    }
}

fn with_key(service: Service) -> ((String, String), Service) {
    let key = (service.namespace.clone(), service.name.clone());
    (key, service)
}
