//! Every flag of the kubelet.

use Kind::{
    Bool, Bools, Headers, Int, List, Map, Name, NodeIps, Taints, Text, Thresholds, Verbosity,
};
use Means::{Config, ConfigDirectory, Deprecated, Kubelet, Nothing, Polylet};

/// What a flag's value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As it stands; durations and quantities too.
    Text,
    /// A node's name: trimmed, in lower case.
    Name,
    /// May stand without a value.
    Bool,
    Int,
    /// Separated by commas.
    List,
    /// `key=value`, separated by commas.
    Map,
    /// `signal<value`, separated by commas.
    Thresholds,
    /// `Name=true`, separated by commas.
    Bools,
    /// `Name:value`, separated by commas.
    Headers,
    /// `key=value:Effect`, separated by commas.
    Taints,
    /// One or two addresses, which are two fields.
    NodeIps,
    /// A number that is a log level here.
    Verbosity,
}

/// What a flag is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// The configuration file.
    Config,
    /// Where its drop-ins are.
    ConfigDirectory,
    /// A field of `PolyletConfiguration`.
    Polylet(&'static str),
    /// A field of `KubeletConfiguration`.
    Kubelet(&'static str),
    /// The same; upstream wants it in the file.
    Deprecated(&'static str),
    /// Taken and ignored, and why.
    Nothing(&'static str),
}

/// A flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flag {
    /// Without its dashes.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) means: Means,
}

const fn flag(name: &'static str, kind: Kind, means: Means) -> Flag {
    Flag { name, kind, means }
}

/// All of them.
#[rustfmt::skip]
pub(super) static FLAGS: [Flag; 161] = [
    // Flags with no word in KubeletConfiguration, and those that upstream keeps.
    flag("config", Text, Config),
    flag("config-dir", Text, ConfigDirectory),
    flag("kubeconfig", Text, Polylet("kubeconfig")),
    flag("bootstrap-kubeconfig", Text, Polylet("bootstrapKubeconfig")),
    flag("hostname-override", Name, Polylet("nodeName")),
    flag("node-ip", NodeIps, Polylet("nodeIP")),
    flag("node-labels", Map, Polylet("nodeLabels")),
    flag("root-dir", Text, Polylet("rootDirectory")),
    flag("cert-dir", Text, Polylet("certDirectory")),
    flag("cloud-provider", Text, Polylet("cloudProvider")),
    flag("image-credential-provider-config", Text, Polylet("imageCredentialProviderConfigFile")),
    flag("image-credential-provider-bin-dir", Text, Polylet("imageCredentialProviderBinDir")),
    flag("run-directory", Text, Polylet("runDirectory")),
    flag("v", Verbosity, Polylet("logLevel")),
    flag("container-runtime-endpoint", Text, Kubelet("containerRuntimeEndpoint")),
    flag("image-service-endpoint", Text, Kubelet("imageServiceEndpoint")),
    flag("logging-format", Text, Kubelet("logging.format")),
    flag("provider-id", Text, Kubelet("providerID")),
    flag("seccomp-default", Bool, Kubelet("seccompDefault")),
    // Deprecated upstream for their fields.
    flag("enable-server", Bool, Deprecated("enableServer")),
    flag("fail-swap-on", Bool, Deprecated("failSwapOn")),
    flag("pod-manifest-path", Text, Deprecated("staticPodPath")),
    flag("sync-frequency", Text, Deprecated("syncFrequency")),
    flag("file-check-frequency", Text, Deprecated("fileCheckFrequency")),
    flag("http-check-frequency", Text, Deprecated("httpCheckFrequency")),
    flag("manifest-url", Text, Deprecated("staticPodURL")),
    flag("manifest-url-header", Headers, Deprecated("staticPodURLHeader")),
    flag("address", Text, Deprecated("address")),
    flag("port", Int, Deprecated("port")),
    flag("read-only-port", Int, Deprecated("readOnlyPort")),
    flag("anonymous-auth", Bool, Deprecated("authentication.anonymous.enabled")),
    flag("authentication-token-webhook", Bool, Deprecated("authentication.webhook.enabled")),
    flag("authentication-token-webhook-cache-ttl", Text, Deprecated("authentication.webhook.cacheTTL")),
    flag("client-ca-file", Text, Deprecated("authentication.x509.clientCAFile")),
    flag("authorization-mode", Text, Deprecated("authorization.mode")),
    flag("authorization-webhook-cache-authorized-ttl", Text, Deprecated("authorization.webhook.cacheAuthorizedTTL")),
    flag("authorization-webhook-cache-unauthorized-ttl", Text, Deprecated("authorization.webhook.cacheUnauthorizedTTL")),
    flag("tls-cert-file", Text, Deprecated("tlsCertFile")),
    flag("tls-private-key-file", Text, Deprecated("tlsPrivateKeyFile")),
    flag("tls-cipher-suites", List, Deprecated("tlsCipherSuites")),
    flag("tls-min-version", Text, Deprecated("tlsMinVersion")),
    flag("rotate-certificates", Bool, Deprecated("rotateCertificates")),
    flag("rotate-server-certificates", Bool, Deprecated("serverTLSBootstrap")),
    flag("registry-qps", Int, Deprecated("registryPullQPS")),
    flag("registry-burst", Int, Deprecated("registryBurst")),
    flag("event-qps", Int, Deprecated("eventRecordQPS")),
    flag("event-burst", Int, Deprecated("eventBurst")),
    flag("enable-debugging-handlers", Bool, Deprecated("enableDebuggingHandlers")),
    flag("contention-profiling", Bool, Deprecated("enableContentionProfiling")),
    flag("healthz-port", Int, Deprecated("healthzPort")),
    flag("healthz-bind-address", Text, Deprecated("healthzBindAddress")),
    flag("oom-score-adj", Int, Deprecated("oomScoreAdj")),
    flag("cluster-domain", Text, Deprecated("clusterDomain")),
    flag("cluster-dns", List, Deprecated("clusterDNS")),
    flag("volume-plugin-dir", Text, Deprecated("volumePluginDir")),
    flag("streaming-connection-idle-timeout", Text, Deprecated("streamingConnectionIdleTimeout")),
    flag("node-status-update-frequency", Text, Deprecated("nodeStatusUpdateFrequency")),
    flag("node-status-max-images", Int, Deprecated("nodeStatusMaxImages")),
    flag("minimum-image-ttl-duration", Text, Deprecated("imageMinimumGCAge")),
    flag("image-gc-high-threshold", Int, Deprecated("imageGCHighThresholdPercent")),
    flag("image-gc-low-threshold", Int, Deprecated("imageGCLowThresholdPercent")),
    flag("volume-stats-agg-period", Text, Deprecated("volumeStatsAggPeriod")),
    flag("feature-gates", Bools, Deprecated("featureGates")),
    flag("kubelet-cgroups", Text, Deprecated("kubeletCgroups")),
    flag("system-cgroups", Text, Deprecated("systemCgroups")),
    flag("cgroups-per-qos", Bool, Deprecated("cgroupsPerQOS")),
    flag("cgroup-driver", Text, Deprecated("cgroupDriver")),
    flag("cgroup-root", Text, Deprecated("cgroupRoot")),
    flag("cpu-manager-policy", Text, Deprecated("cpuManagerPolicy")),
    flag("cpu-manager-policy-options", Map, Deprecated("cpuManagerPolicyOptions")),
    flag("cpu-manager-reconcile-period", Text, Deprecated("cpuManagerReconcilePeriod")),
    flag("memory-manager-policy", Text, Deprecated("memoryManagerPolicy")),
    flag("topology-manager-policy", Text, Deprecated("topologyManagerPolicy")),
    flag("topology-manager-policy-options", Map, Deprecated("topologyManagerPolicyOptions")),
    flag("topology-manager-scope", Text, Deprecated("topologyManagerScope")),
    flag("qos-reserved", Map, Deprecated("qosReserved")),
    flag("runtime-request-timeout", Text, Deprecated("runtimeRequestTimeout")),
    flag("hairpin-mode", Text, Deprecated("hairpinMode")),
    flag("max-pods", Int, Deprecated("maxPods")),
    flag("pods-per-core", Int, Deprecated("podsPerCore")),
    flag("pod-cidr", Text, Deprecated("podCIDR")),
    flag("pod-max-pids", Int, Deprecated("podPidsLimit")),
    flag("resolv-conf", Text, Deprecated("resolvConf")),
    flag("cpu-cfs-quota", Bool, Deprecated("cpuCFSQuota")),
    flag("cpu-cfs-quota-period", Text, Deprecated("cpuCFSQuotaPeriod")),
    flag("enable-controller-attach-detach", Bool, Deprecated("enableControllerAttachDetach")),
    flag("make-iptables-util-chains", Bool, Deprecated("makeIPTablesUtilChains")),
    flag("iptables-masquerade-bit", Int, Deprecated("iptablesMasqueradeBit")),
    flag("iptables-drop-bit", Int, Deprecated("iptablesDropBit")),
    flag("max-open-files", Int, Deprecated("maxOpenFiles")),
    flag("kube-api-content-type", Text, Deprecated("contentType")),
    flag("kube-api-qps", Int, Deprecated("kubeAPIQPS")),
    flag("kube-api-burst", Int, Deprecated("kubeAPIBurst")),
    flag("serialize-image-pulls", Bool, Deprecated("serializeImagePulls")),
    flag("eviction-hard", Thresholds, Deprecated("evictionHard")),
    flag("eviction-soft", Thresholds, Deprecated("evictionSoft")),
    flag("eviction-soft-grace-period", Map, Deprecated("evictionSoftGracePeriod")),
    flag("eviction-max-pod-grace-period", Int, Deprecated("evictionMaxPodGracePeriod")),
    flag("eviction-pressure-transition-period", Text, Deprecated("evictionPressureTransitionPeriod")),
    flag("eviction-minimum-reclaim", Map, Deprecated("evictionMinimumReclaim")),
    flag("protect-kernel-defaults", Bool, Deprecated("protectKernelDefaults")),
    flag("reserved-cpus", Text, Deprecated("reservedSystemCPUs")),
    flag("system-reserved", Map, Deprecated("systemReserved")),
    flag("kube-reserved", Map, Deprecated("kubeReserved")),
    flag("system-reserved-cgroup", Text, Deprecated("systemReservedCgroup")),
    flag("kube-reserved-cgroup", Text, Deprecated("kubeReservedCgroup")),
    flag("enforce-node-allocatable", List, Deprecated("enforceNodeAllocatable")),
    flag("local-storage-capacity-isolation", Bool, Deprecated("localStorageCapacityIsolation")),
    flag("kernel-memcg-notification", Bool, Deprecated("kernelMemcgNotification")),
    flag("container-log-max-files", Int, Deprecated("containerLogMaxFiles")),
    flag("container-log-max-size", Text, Deprecated("containerLogMaxSize")),
    flag("allowed-unsafe-sysctls", List, Deprecated("allowedUnsafeSysctls")),
    flag("register-node", Bool, Deprecated("registerNode")),
    flag("register-with-taints", Taints, Deprecated("registerWithTaints")),
    // Taken so that a unit file goes on working.
    flag("pod-infra-container-image", Text, Nothing("the sandbox image is the runtime's own setting, and a pinned image is never collected")),
    flag("runtime-cgroups", Text, Nothing("the container runtime is asked or configured for it")),
    flag("vmodule", Text, Nothing("levels are per service and module: logLevel")),
    flag("log-flush-frequency", Text, Nothing("Polylet logs to standard error, as -v says")),
    flag("log-json-info-buffer-size", Text, Nothing("Polylet logs to standard error, as -v says")),
    flag("log-json-split-stream", Bool, Nothing("Polylet logs to standard error, as -v says")),
    flag("log-text-info-buffer-size", Text, Nothing("Polylet logs to standard error, as -v says")),
    flag("log-text-split-stream", Bool, Nothing("Polylet logs to standard error, as -v says")),
    flag("logtostderr", Bool, Nothing("Polylet logs to standard error, as -v says")),
    flag("alsologtostderr", Bool, Nothing("Polylet logs to standard error, as -v says")),
    flag("stderrthreshold", Text, Nothing("Polylet logs to standard error, as -v says")),
    flag("log-dir", Text, Nothing("Polylet logs to standard error, as -v says")),
    flag("log-file", Text, Nothing("Polylet logs to standard error, as -v says")),
    flag("log-file-max-size", Text, Nothing("Polylet logs to standard error, as -v says")),
    flag("skip-headers", Bool, Nothing("Polylet logs to standard error, as -v says")),
    flag("skip-log-headers", Bool, Nothing("Polylet logs to standard error, as -v says")),
    flag("add-dir-header", Bool, Nothing("Polylet logs to standard error, as -v says")),
    flag("one-output", Bool, Nothing("Polylet logs to standard error, as -v says")),
    flag("log-backtrace-at", Text, Nothing("Polylet logs to standard error, as -v says")),
    flag("minimum-container-ttl-duration", Text, Nothing("dead containers are collected as the defaults say")),
    flag("maximum-dead-containers", Int, Nothing("dead containers are collected as the defaults say")),
    flag("maximum-dead-containers-per-container", Int, Nothing("dead containers are collected as the defaults say")),
    flag("keep-terminated-pod-volumes", Bool, Nothing("volumes of ended pods are always unmounted")),
    flag("experimental-allocatable-ignore-eviction", Bool, Nothing("what pods may ask for is always less what eviction keeps free")),
    flag("lock-file", Text, Nothing("the supervisor has a lock of its own")),
    flag("exit-on-lock-contention", Bool, Nothing("the supervisor has a lock of its own")),
    flag("reserved-memory", Text, Nothing("memory is not yet given out by NUMA node")),
    flag("register-schedulable", Bool, Nothing("removed from Kubernetes: register with a taint")),
    flag("container-runtime", Text, Nothing("removed from Kubernetes: there are remote runtimes only")),
    flag("network-plugin", Text, Nothing("removed from Kubernetes: the container runtime is asked or configured for it")),
    flag("cni-bin-dir", Text, Nothing("removed from Kubernetes: the container runtime is asked or configured for it")),
    flag("cni-conf-dir", Text, Nothing("removed from Kubernetes: the container runtime is asked or configured for it")),
    flag("cni-cache-dir", Text, Nothing("removed from Kubernetes: the container runtime is asked or configured for it")),
    flag("cloud-config", Text, Nothing("removed from Kubernetes: clouds have controllers of their own")),
    flag("master-service-namespace", Text, Nothing("removed from Kubernetes")),
    flag("runonce", Bool, Nothing("removed from Kubernetes")),
    flag("housekeeping-interval", Text, Nothing("usage is read from cgroups without cAdvisor")),
    flag("global-housekeeping-interval", Text, Nothing("usage is read from cgroups without cAdvisor")),
    flag("containerd", Text, Nothing("usage is read from cgroups without cAdvisor")),
    flag("containerd-namespace", Text, Nothing("usage is read from cgroups without cAdvisor")),
    flag("enable-load-reader", Bool, Nothing("usage is read from cgroups without cAdvisor")),
    flag("event-storage-age-limit", Text, Nothing("usage is read from cgroups without cAdvisor")),
    flag("event-storage-event-limit", Text, Nothing("usage is read from cgroups without cAdvisor")),
    flag("machine-id-file", Text, Nothing("usage is read from cgroups without cAdvisor")),
    flag("boot-id-file", Text, Nothing("usage is read from cgroups without cAdvisor")),
    flag("application-metrics-count-limit", Int, Nothing("usage is read from cgroups without cAdvisor")),
    flag("log-cadvisor-usage", Bool, Nothing("usage is read from cgroups without cAdvisor")),
];
