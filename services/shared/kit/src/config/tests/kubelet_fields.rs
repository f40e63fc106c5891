//! Fields without effect, and those of TLS.

use super::*;

/// A document for each field, by which it is set.
const UNSUPPORTED_SAMPLES: &[(&str, &str)] = &[
    ("syncFrequency", "syncFrequency: 10s"),
    (
        "enableContentionProfiling",
        "enableContentionProfiling: true",
    ),
    (
        "enableControllerAttachDetach",
        "enableControllerAttachDetach: false",
    ),
    ("kubeletCgroups", "kubeletCgroups: /kubelet"),
    ("systemCgroups", "systemCgroups: /system\ncgroupRoot: /"),
    ("cpuManagerPolicy", "cpuManagerPolicy: static"),
    (
        "cpuManagerPolicyOptions",
        "cpuManagerPolicyOptions: {full-pcpus-only: 'true'}",
    ),
    ("cpuManagerReconcilePeriod", "cpuManagerReconcilePeriod: 5s"),
    ("memoryManagerPolicy", "memoryManagerPolicy: Static"),
    (
        "reservedMemory",
        "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]",
    ),
    (
        "topologyManagerPolicy",
        "topologyManagerPolicy: best-effort",
    ),
    ("topologyManagerScope", "topologyManagerScope: pod"),
    (
        "topologyManagerPolicyOptions",
        "topologyManagerPolicyOptions: {a: b}",
    ),
    ("podCIDR", "podCIDR: 10.0.0.0/24"),
    ("contentType", "contentType: application/yaml"),
    ("protectKernelDefaults", "protectKernelDefaults: true"),
    ("makeIPTablesUtilChains", "makeIPTablesUtilChains: true"),
    (
        "configMapAndSecretChangeDetectionStrategy",
        "configMapAndSecretChangeDetectionStrategy: Get",
    ),
    (
        "showHiddenMetricsForVersion",
        "showHiddenMetricsForVersion: '1.35'",
    ),
    ("volumePluginDir", "volumePluginDir: /opt/flex"),
    ("kernelMemcgNotification", "kernelMemcgNotification: true"),
    ("shutdownGracePeriod", "shutdownGracePeriod: 30s"),
    (
        "shutdownGracePeriodCriticalPods",
        "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s",
    ),
    (
        "shutdownGracePeriodByPodPriority",
        "shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 9}]",
    ),
    ("logging.format", "logging: {format: json}"),
    ("logging.verbosity", "logging: {verbosity: 4}"),
    (
        "logging.vmodule",
        "logging: {vmodule: [{filePattern: a, verbosity: 4}]}",
    ),
];

#[test]
fn every_unsupported_field_has_a_warning_when_it_is_set() {
    for (field, _) in UNSUPPORTED_FIELDS {
        let sample = UNSUPPORTED_SAMPLES.iter().find(|(of, _)| of == field);
        let (_, text) = sample.unwrap_or_else(|| panic!("{field} has no sample"));
        let warnings = parse(&format!("{HEAD}{text}\n")).unwrap().warnings;
        let expected = format!("{field} is not supported yet and is ignored: ");
        let about = warnings
            .iter()
            .filter(|warning| warning.starts_with(&expected));
        assert_eq!(about.count(), 1, "{text}: {warnings:?}");
    }
    // As kubeadm writes it.
    let text = "cpuManagerReconcilePeriod: 0s\nshutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\n\
        logging: {flushFrequency: 0, options: {json: {infoBufferSize: '0'}}, verbosity: 0}\n\
        syncFrequency: 0s\nstreamingConnectionIdleTimeout: 0s\nvolumeStatsAggPeriod: 0s\n";
    let warnings = parse(&format!("{HEAD}{text}")).unwrap().warnings;
    assert!(warnings.is_empty(), "{warnings:?}");
    let off = "enableSystemLogHandler: false\nenableProfilingHandler: false\ncontentType: application/json\n";
    let warnings = parse(&format!("{HEAD}{off}")).unwrap().warnings;
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn tls_settings_are_those_that_a_kubelet_accepts() {
    for (text, error) in [
        (
            "tlsMinVersion: VersionTLS14",
            "unknown tls version \"VersionTLS14\"",
        ),
        (
            "tlsCipherSuites: [TLS_AES_128_GCM_SHA256, NONE]",
            "tlsCipherSuites[1]: Cipher suite NONE not supported or doesn't exist",
        ),
        (
            "tlsCurvePreferences: [0]",
            "curve preference 0 is out of range (must be 1-65535)",
        ),
        (
            "tlsCurvePreferences: [29, 29]",
            "duplicate curve preference 29",
        ),
        (
            "tlsCurvePreferences: [22, 29]",
            "curve preference 22 is not supported",
        ),
        (
            "tlsCurvePreferences: [25, 4588]",
            "none of them is available",
        ),
        (
            "runOnce: true",
            "Runonce mode has been deprecated and should not be set",
        ),
    ] {
        let found = refused(&format!("{HEAD}{text}\n"));
        assert!(found.contains(error), "{text}: {found}");
    }
    for (text, expected) in [
        ("tlsMinVersion: VersionTLS12", &[][..]),
        (
            "tlsMinVersion: VersionTLS11",
            &["TLS 1.2 is the oldest version"][..],
        ),
        (
            "tlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_RSA_WITH_AES_128_CBC_SHA]",
            &["TLS_RSA_WITH_AES_128_CBC_SHA is not available and is not offered"],
        ),
        (
            "tlsCipherSuites: [TLS_AES_128_GCM_SHA256]",
            &["only TLS 1.3 is offered"],
        ),
        (
            "tlsMinVersion: VersionTLS13\ntlsCipherSuites: [TLS_RSA_WITH_AES_128_CBC_SHA]",
            &["cipher suites of TLS 1.3 are not configurable"],
        ),
        (
            "tlsCurvePreferences: [29, 25]",
            &["group 25 is not available"],
        ),
    ] {
        let warnings = parse(&format!("{HEAD}{text}\n")).unwrap().warnings;
        assert_eq!(warnings.len(), expected.len(), "{text}: {warnings:?}");
        let all = warnings.iter().zip(expected);
        assert!(
            all.clone().all(|(w, part)| w.contains(part)),
            "{text}: {warnings:?}"
        );
    }
}
