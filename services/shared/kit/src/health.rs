use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// Health of the process (service name "") and of every package it serves.
#[derive(Clone)]
pub(crate) struct Health {
    reporter: HealthReporter,
    names: std::sync::Arc<[String]>,
}

impl Health {
    /// For gRPC services by full name; their packages are reported as well.
    pub(crate) fn new(services: impl IntoIterator<Item = &'static str>) -> Health {
        let mut names = vec![String::new()];
        for service in services {
            names.push(service.to_owned());
            if let Some((package, _)) = service.rsplit_once('.') {
                names.push(package.to_owned());
            }
        }
        names.sort();
        names.dedup();
        Health {
            reporter: HealthReporter::new(),
            names: names.into(),
        }
    }

    /// The `grpc.health.v1` server.
    pub(crate) fn server(
        &self,
    ) -> tonic_health::pb::health_server::HealthServer<tonic_health::server::HealthService> {
        tonic_health::pb::health_server::HealthServer::new(
            tonic_health::server::HealthService::from_health_reporter(self.reporter.clone()),
        )
    }

    pub(crate) async fn serving(&self) {
        self.set(ServingStatus::Serving).await;
    }

    pub(crate) async fn not_serving(&self) {
        self.set(ServingStatus::NotServing).await;
    }

    async fn set(&self, status: ServingStatus) {
        for name in self.names.iter() {
            self.reporter.set_service_status(name, status).await;
        }
    }
}
