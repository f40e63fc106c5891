use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::go_duration;

macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($(#[$attr:meta])* $field:ident: $type:ty = $default:expr;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        #[allow(missing_docs)]
        pub struct $name { $($(#[$attr])* pub $field: $type,)* }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default,)* }
            }
        }
    };
}

section! {
    /// Authentication of the node API's clients.
    Authentication {
        x509: X509 = X509::default();
        webhook: WebhookAuthentication = WebhookAuthentication::default();
        anonymous: Anonymous = Anonymous::default();
    }
}

section! {
    /// Authentication by client certificates.
    X509 {
        #[serde(rename = "clientCAFile")]
        client_ca_file: String = String::new();
    }
}

section! {
    /// Authentication by bearer tokens, reviewed by the API server.
    WebhookAuthentication {
        enabled: bool = true;
        #[serde(rename = "cacheTTL", with = "go_duration")]
        cache_ttl: Duration = Duration::from_secs(120);
    }
}

section! {
    /// Anonymous access.
    Anonymous {
        enabled: bool = false;
    }
}

section! {
    /// Authorization of the node API's clients: `Webhook` or `AlwaysAllow`.
    Authorization {
        mode: String = "Webhook".to_owned();
        webhook: WebhookAuthorization = WebhookAuthorization::default();
    }
}

section! {
    /// Cache lifetimes of authorization results.
    WebhookAuthorization {
        #[serde(rename = "cacheAuthorizedTTL", with = "go_duration")]
        cache_authorized_ttl: Duration = Duration::from_secs(300);
        #[serde(rename = "cacheUnauthorizedTTL", with = "go_duration")]
        cache_unauthorized_ttl: Duration = Duration::from_secs(30);
    }
}

section! {
    /// Use of swap by pods: `NoSwap` (also when empty) or `LimitedSwap`.
    MemorySwap {
        swap_behavior: String = String::new();
    }
}

section! {
    /// Upstream's log options. They are parsed and have no effect: Polylet's `logLevel` applies.
    Logging {
        format: String = "text".to_owned();
        flush_frequency: serde_json::Value = serde_json::Value::from("5s");
        verbosity: u32 = 0;
        vmodule: Vec<VModule> = Vec::new();
        options: BTreeMap<String, serde_json::Value> = BTreeMap::new();
    }
}

section! {
    /// Log verbosity of one source file.
    VModule {
        file_pattern: String = String::new();
        verbosity: u32 = 0;
    }
}

section! {
    /// Shutdown grace period of pods from a priority on.
    ShutdownGracePeriodByPodPriority {
        priority: i32 = 0;
        shutdown_grace_period_seconds: i64 = 0;
    }
}

section! {
    /// Longest delay of container restarts.
    CrashLoopBackOff {
        #[serde(with = "go_duration::option")]
        max_container_restart_period: Option<Duration> = None;
    }
}

section! {
    /// Reserved memory of a NUMA node.
    MemoryReservation {
        numa_node: i32 = 0;
        limits: BTreeMap<String, String> = BTreeMap::new();
    }
}

section! {
    /// A taint of the Node object at registration.
    Taint {
        key: String = String::new();
        value: String = String::new();
        effect: String = String::new();
        time_added: Option<String> = None;
    }
}

section! {
    /// Export of traces to a collector, by the supervisor. `endpoint` is `localhost:4317` unless it is set; by default
    /// only traces are exported that continue one that is sampled.
    Tracing {
        endpoint: Option<String> = None;
        sampling_rate_per_million: Option<i32> = None;
    }
}

section! {
    /// Settings of pods' user namespaces.
    UserNamespaces {
        #[serde(rename = "idsPerPod")]
        ids_per_pod: i64 = 65536;
    }
}
