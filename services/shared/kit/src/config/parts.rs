use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::go_duration;

macro_rules! part {
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

part! {
    /// How callers of the node's API prove who they are.
    Authentication {
        x509: X509 = X509::default();
        webhook: WebhookAuthentication = WebhookAuthentication::default();
        anonymous: Anonymous = Anonymous::default();
    }
}

part! {
    /// Client certificates.
    X509 {
        #[serde(rename = "clientCAFile")]
        client_ca_file: String = String::new();
    }
}

part! {
    /// Bearer tokens, reviewed by the API server.
    WebhookAuthentication {
        enabled: bool = true;
        #[serde(rename = "cacheTTL", with = "go_duration")]
        cache_ttl: Duration = Duration::from_secs(120);
    }
}

part! {
    /// Callers without a name.
    Anonymous {
        enabled: bool = false;
    }
}

part! {
    /// What callers of the node's API may do: `Webhook` or `AlwaysAllow`.
    Authorization {
        mode: String = "Webhook".to_owned();
        webhook: WebhookAuthorization = WebhookAuthorization::default();
    }
}

part! {
    /// How long answers of the API server are good.
    WebhookAuthorization {
        #[serde(rename = "cacheAuthorizedTTL", with = "go_duration")]
        cache_authorized_ttl: Duration = Duration::from_secs(300);
        #[serde(rename = "cacheUnauthorizedTTL", with = "go_duration")]
        cache_unauthorized_ttl: Duration = Duration::from_secs(30);
    }
}

part! {
    /// `NoSwap`, `LimitedSwap` or empty, which means the first.
    MemorySwap {
        swap_behavior: String = String::new();
    }
}

part! {
    /// Upstream's log options. Polylet logs as `logLevel` of its own document says; these are
    /// read and kept.
    Logging {
        format: String = "text".to_owned();
        flush_frequency: serde_json::Value = serde_json::Value::from("5s");
        verbosity: u32 = 0;
        vmodule: Vec<VModule> = Vec::new();
        options: BTreeMap<String, serde_json::Value> = BTreeMap::new();
    }
}

part! {
    /// Verbosity of one file.
    VModule {
        file_pattern: String = String::new();
        verbosity: u32 = 0;
    }
}

part! {
    /// Shutdown time of pods from one priority on.
    ShutdownGracePeriodByPodPriority {
        priority: i32 = 0;
        shutdown_grace_period_seconds: i64 = 0;
    }
}

part! {
    /// The longest pause before a container is started again.
    CrashLoopBackOff {
        #[serde(with = "go_duration::option")]
        max_container_restart_period: Option<Duration> = None;
    }
}

part! {
    /// Memory of one NUMA node that pods do not get.
    MemoryReservation {
        numa_node: i32 = 0;
        limits: BTreeMap<String, String> = BTreeMap::new();
    }
}

part! {
    /// A taint that the node registers with.
    Taint {
        key: String = String::new();
        value: String = String::new();
        effect: String = String::new();
        time_added: Option<String> = None;
    }
}

part! {
    /// Upstream's span export. Polylet's spans go to the supervisor, which forwards them.
    Tracing {
        endpoint: Option<String> = None;
        sampling_rate_per_million: Option<i32> = None;
    }
}

part! {
    /// User namespaces of pods.
    UserNamespaces {
        #[serde(rename = "idsPerPod")]
        ids_per_pod: i64 = 65536;
    }
}
