use super::*;

fn settings(
    endpoint: Option<Option<&str>>,
    environment: &[(&str, &str)],
) -> Result<Option<ExportSettings>, ExportSettingsError> {
    let tracing = endpoint.map(|endpoint| Tracing {
        endpoint: endpoint.map(str::to_owned),
        sampling_rate_per_million: None,
    });
    ExportSettings::new(tracing.as_ref(), |name| {
        let variable = environment.iter().find(|(known, _)| *known == name);
        variable.map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn endpoints_come_from_the_environment_or_the_configuration() {
    const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    const HTTP: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
    for (file, environment, expected) in [
        (Some(None), &[][..], "http://localhost:4317/"),
        (Some(Some("collector:4317")), &[], "http://collector:4317/"),
        (
            Some(Some("dns://8.8.8.8/collector:4317")),
            &[],
            "http://collector:4317/",
        ),
        (
            Some(Some("dns:collector:4317")),
            &[],
            "http://collector:4317/",
        ),
        (Some(Some("a:1")), &[(ALL, "https://b:2")], "https://b:2/"),
        (None, &[(ALL, "a:1"), (TRACES, "b:2")], "http://b:2/"),
        (None, &[(ALL, "http://a:1"), HTTP], "http://a:1/v1/traces"),
        (
            None,
            &[(ALL, "https://a/otlp/"), HTTP],
            "https://a/otlp/v1/traces",
        ),
        (None, &[(TRACES, "http://a:1/in"), HTTP], "http://a:1/in"),
        (Some(None), &[HTTP], "http://localhost:4317/v1/traces"),
    ] {
        let found = settings(file, environment).unwrap().unwrap().endpoint;
        let expected = ExportEndpoint::Url(expected.parse().unwrap());
        assert_eq!(found, expected, "{file:?} {environment:?}");
    }
    let unix = settings(Some(Some("unix:///run/otel.sock")), &[])
        .unwrap()
        .unwrap();
    assert_eq!(unix.endpoint, ExportEndpoint::Unix("/run/otel.sock".into()));
    for environment in [
        &[][..],
        &[(ALL, "")],
        &[(ALL, "http://a:1"), ("OTEL_SDK_DISABLED", "true")],
        &[(ALL, "http://a:1"), ("OTEL_TRACES_EXPORTER", "none")],
    ] {
        assert!(
            settings(None, environment).unwrap().is_none(),
            "{environment:?}"
        );
    }
}

#[test]
fn further_variables_are_read() {
    let environment = [
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "Authorization=Basic%20eA==, x-org = 1,",
        ),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/c.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/k.pem"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
    ];
    let settings = settings(Some(None), &environment).unwrap().unwrap();
    let headers = settings
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()));
    assert!(headers.eq([("authorization", &b"Basic eA=="[..]), ("x-org", b"1")]));
    assert!(
        settings
            .headers
            .iter()
            .all(|(_, value)| value.is_sensitive())
    );
    assert_eq!(settings.authorities, Some("/ca.pem".into()));
    assert_eq!(settings.client, Some(("/c.pem".into(), "/k.pem".into())));
    assert_eq!(
        (settings.timeout, settings.gzip),
        (Duration::from_millis(2500), true)
    );
}

#[test]
fn what_is_not_understood_is_named_without_secrets() {
    for (variable, value, expected) in [
        (
            "ENDPOINT",
            "ftp://user:secret@a",
            "OTEL_EXPORTER_OTLP_ENDPOINT: a is no endpoint: supported are http, https, dns and unix",
        ),
        (
            "PROTOCOL",
            "http/json",
            "OTEL_EXPORTER_OTLP_PROTOCOL: the protocol http/json is not supported; supported are grpc and http/protobuf",
        ),
        (
            "COMPRESSION",
            "zstd",
            "OTEL_EXPORTER_OTLP_COMPRESSION: the compression zstd is not supported; supported are gzip and none",
        ),
        (
            "TIMEOUT",
            "10s",
            "OTEL_EXPORTER_OTLP_TIMEOUT: 10s is no number of milliseconds",
        ),
        (
            "HEADERS",
            "a=b,secret",
            "OTEL_EXPORTER_OTLP_HEADERS: header 2 is no name=value pair",
        ),
        (
            "CLIENT_KEY",
            "/k",
            "OTEL_EXPORTER_OTLP_CLIENT_KEY is set and OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is not",
        ),
    ] {
        let variable = format!("OTEL_EXPORTER_OTLP_{variable}");
        let error = settings(Some(None), &[(&variable, value)])
            .map(|_| ())
            .unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let endpoint = ExportEndpoint::Url("https://user:secret@collector:4317/x".parse().unwrap());
    assert_eq!(endpoint.to_string(), "https://collector:4317");
}
