//! Every flag of the kubelet, and its effect.

use FlagEffect::{Config, ConfigDirectory, Deprecated, Ignored, Kubelet, Polylet};
use FlagKind::{
    Bool, Bools, Headers, Int, List, Map, Name, NodeIps, Taints, Text, Thresholds, Verbosity,
};

/// The syntax of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagKind {
    /// Any text, such as durations and quantities.
    Text,
    /// A node name, which is trimmed and converted to lower case.
    Name,
    /// A boolean; true without a value.
    Bool,
    Int,
    /// Comma-separated values.
    List,
    /// Comma-separated `key=value`.
    Map,
    /// Comma-separated `signal<value`.
    Thresholds,
    /// Comma-separated `Name=true`.
    Bools,
    /// Comma-separated `Name:value`.
    Headers,
    /// Comma-separated `key=value:Effect`.
    Taints,
    /// One or two addresses, which set two fields.
    NodeIps,
    /// A number that is mapped to a log level.
    Verbosity,
}

/// The effect of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagEffect {
    /// Names the configuration file.
    Config,
    /// Names the drop-in directory.
    ConfigDirectory,
    /// Sets a field of `PolyletConfiguration`.
    Polylet(&'static str),
    /// Sets a field of `KubeletConfiguration`.
    Kubelet(&'static str),
    /// The same, but deprecated upstream.
    Deprecated(&'static str),
    /// None; the reason.
    Ignored(&'static str),
}

/// A flag of the kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flag {
    /// Without the dashes.
    pub(super) name: &'static str,
    pub(super) kind: FlagKind,
    pub(super) effect: FlagEffect,
}

const fn flag(name: &'static str, kind: FlagKind, effect: FlagEffect) -> Flag {
    Flag { name, kind, effect }
}

/// All flags.
#[rustfmt::skip]
pub(super) static FLAGS: [Flag; 162] = [
    // Flags without a field in KubeletConfiguration, and those that are not deprecated.
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
    flag("device-plugin-directory", Text, Polylet("devicePluginDirectory")),
    flag("v", Verbosity, Polylet("logLevel")),
    flag("container-runtime-endpoint", Text, Kubelet("containerRuntimeEndpoint")),
    flag("image-service-endpoint", Text, Kubelet("imageServiceEndpoint")),
    flag("logging-format", Text, Kubelet("logging.format")),
    flag("provider-id", Text, Kubelet("providerID")),
    flag("seccomp-default", Bool, Kubelet("seccompDefault")),
    // Deprecated upstream in favor of fields.
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
    // Accepted so that existing unit files work.
    flag("pod-infra-container-image", Text, Ignored("the sandbox image is configured in the runtime, and pinned images are never collected")),
    flag("runtime-cgroups", Text, Ignored("this is configured in the container runtime")),
    flag("vmodule", Text, Ignored("use logLevel, which has levels per service and module")),
    flag("log-flush-frequency", Text, Ignored("logs are written to standard error at the level of -v")),
    flag("log-json-info-buffer-size", Text, Ignored("logs are written to standard error at the level of -v")),
    flag("log-json-split-stream", Bool, Ignored("logs are written to standard error at the level of -v")),
    flag("log-text-info-buffer-size", Text, Ignored("logs are written to standard error at the level of -v")),
    flag("log-text-split-stream", Bool, Ignored("logs are written to standard error at the level of -v")),
    flag("logtostderr", Bool, Ignored("logs are written to standard error at the level of -v")),
    flag("alsologtostderr", Bool, Ignored("logs are written to standard error at the level of -v")),
    flag("stderrthreshold", Text, Ignored("logs are written to standard error at the level of -v")),
    flag("log-dir", Text, Ignored("logs are written to standard error at the level of -v")),
    flag("log-file", Text, Ignored("logs are written to standard error at the level of -v")),
    flag("log-file-max-size", Text, Ignored("logs are written to standard error at the level of -v")),
    flag("skip-headers", Bool, Ignored("logs are written to standard error at the level of -v")),
    flag("skip-log-headers", Bool, Ignored("logs are written to standard error at the level of -v")),
    flag("add-dir-header", Bool, Ignored("logs are written to standard error at the level of -v")),
    flag("one-output", Bool, Ignored("logs are written to standard error at the level of -v")),
    flag("log-backtrace-at", Text, Ignored("logs are written to standard error at the level of -v")),
    flag("minimum-container-ttl-duration", Text, Ignored("the defaults of container garbage collection apply")),
    flag("maximum-dead-containers", Int, Ignored("the defaults of container garbage collection apply")),
    flag("maximum-dead-containers-per-container", Int, Ignored("the defaults of container garbage collection apply")),
    flag("keep-terminated-pod-volumes", Bool, Ignored("volumes of terminated pods are always unmounted")),
    flag("experimental-allocatable-ignore-eviction", Bool, Ignored("allocatable always excludes the eviction thresholds")),
    flag("lock-file", Text, Ignored("the supervisor has its own lock")),
    flag("exit-on-lock-contention", Bool, Ignored("the supervisor has its own lock")),
    flag("reserved-memory", Text, Ignored("memory is not managed by NUMA node yet")),
    flag("register-schedulable", Bool, Ignored("removed from Kubernetes; use a taint")),
    flag("container-runtime", Text, Ignored("removed from Kubernetes; all runtimes are remote")),
    flag("network-plugin", Text, Ignored("removed from Kubernetes; this is configured in the container runtime")),
    flag("cni-bin-dir", Text, Ignored("removed from Kubernetes; this is configured in the container runtime")),
    flag("cni-conf-dir", Text, Ignored("removed from Kubernetes; this is configured in the container runtime")),
    flag("cni-cache-dir", Text, Ignored("removed from Kubernetes; this is configured in the container runtime")),
    flag("cloud-config", Text, Ignored("removed from Kubernetes; clouds have external controllers")),
    flag("master-service-namespace", Text, Ignored("removed from Kubernetes")),
    flag("runonce", Bool, Ignored("removed from Kubernetes")),
    flag("housekeeping-interval", Text, Ignored("usage is read from cgroups, not from cAdvisor")),
    flag("global-housekeeping-interval", Text, Ignored("usage is read from cgroups, not from cAdvisor")),
    flag("containerd", Text, Ignored("usage is read from cgroups, not from cAdvisor")),
    flag("containerd-namespace", Text, Ignored("usage is read from cgroups, not from cAdvisor")),
    flag("enable-load-reader", Bool, Ignored("usage is read from cgroups, not from cAdvisor")),
    flag("event-storage-age-limit", Text, Ignored("usage is read from cgroups, not from cAdvisor")),
    flag("event-storage-event-limit", Text, Ignored("usage is read from cgroups, not from cAdvisor")),
    flag("machine-id-file", Text, Ignored("usage is read from cgroups, not from cAdvisor")),
    flag("boot-id-file", Text, Ignored("usage is read from cgroups, not from cAdvisor")),
    flag("application-metrics-count-limit", Int, Ignored("usage is read from cgroups, not from cAdvisor")),
    flag("log-cadvisor-usage", Bool, Ignored("usage is read from cgroups, not from cAdvisor")),
];
