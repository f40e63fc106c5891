//! Where spans are exported to, and how: the environment variables of OpenTelemetry, and the configuration.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Uri};
use polylet_kit::config::Tracing;

/// The endpoint of a configuration without one, as upstream's.
const DEFAULT_ENDPOINT: &str = "localhost:4317";
/// OpenTelemetry's default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Where collectors receive traces over HTTP.
const HTTP_PATH: &str = "/v1/traces";

/// Why spans are not exported.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum ExportSettingsError {
    #[error("{variable}: {value} is no endpoint: {reason}")]
    Endpoint {
        variable: String,
        value: String,
        reason: String,
    },
    #[error(
        "{variable}: the protocol {value} is not supported; supported are grpc and http/protobuf"
    )]
    Protocol { variable: String, value: String },
    #[error("{variable}: the compression {value} is not supported; supported are gzip and none")]
    Compression { variable: String, value: String },
    #[error("{variable}: {value} is no number of milliseconds")]
    Timeout { variable: String, value: String },
    // Without the header: its value may be a secret.
    #[error("{variable}: header {position} is no name=value pair")]
    Header { variable: String, position: usize },
    #[error("{first} is set and {second} is not")]
    ClientCertificate {
        first: &'static str,
        second: &'static str,
    },
}

/// How requests are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExportProtocol {
    Grpc,
    HttpProtobuf,
}

/// A collector's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExportEndpoint {
    /// For gRPC an origin, for HTTP the whole URL.
    Url(Uri),
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for ExportEndpoint {
    /// Without what precedes the host, which may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportEndpoint::Unix(path) => write!(f, "unix://{}", path.display()),
            ExportEndpoint::Url(url) => {
                let scheme = url.scheme_str().unwrap_or_default();
                write!(f, "{scheme}://{}", url.host().unwrap_or_default())?;
                url.port().map_or(Ok(()), |port| write!(f, ":{port}"))
            }
        }
    }
}

/// Where spans are exported to, and how.
pub(super) struct ExportSettings {
    pub(super) endpoint: ExportEndpoint,
    pub(super) protocol: ExportProtocol,
    /// Headers of each request, which may be secrets.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// Certificate authorities of the collector, instead of the system's.
    pub(super) authorities: Option<PathBuf>,
    /// The exporter's certificate and its key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
    pub(super) timeout: Duration,
    pub(super) gzip: bool,
}

/// A setting that is set.
struct NamedValue {
    /// The variable, or the field of the configuration.
    name: String,
    value: String,
}

/// The variables of the environment. The one for traces wins over the one for all signals.
struct Variables<F>(F);

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    fn get(&self, suffix: &str) -> Option<NamedValue> {
        let names = ["OTEL_EXPORTER_OTLP_TRACES", "OTEL_EXPORTER_OTLP"];
        let names = names.map(|prefix| format!("{prefix}_{suffix}"));
        names.into_iter().find_map(|name| {
            let value = (self.0)(&name)?.trim().to_owned();
            (!value.is_empty()).then_some(NamedValue { name, value })
        })
    }
}

impl ExportSettings {
    /// The environment wins over the configuration; `None` if neither names a collector.
    ///
    /// # Errors
    /// A variable has a value that is not understood.
    pub(super) fn new(
        tracing: Option<&Tracing>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<ExportSettings>, ExportSettingsError> {
        let is_off = environment("OTEL_SDK_DISABLED")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || environment("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
        let variables = Variables(environment);
        let from_file = |tracing: &Tracing| {
            let endpoint = tracing
                .endpoint
                .clone()
                .filter(|endpoint| !endpoint.is_empty());
            let endpoint = endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
            NamedValue {
                name: "tracing.endpoint".to_owned(),
                value: endpoint,
            }
        };
        let named = variables.get("ENDPOINT").or_else(|| tracing.map(from_file));
        let Some(named) = named.filter(|_| !is_off) else {
            return Ok(None);
        };
        let protocol = protocol(variables.get("PROTOCOL"))?;
        let client = variables.get("CLIENT_CERTIFICATE");
        let client = client_certificate(client, variables.get("CLIENT_KEY"))?;
        Ok(Some(ExportSettings {
            endpoint: endpoint(named, protocol)?,
            protocol,
            headers: headers(variables.get("HEADERS"))?,
            authorities: variables.get("CERTIFICATE").map(|path| path.value.into()),
            client,
            timeout: timeout(variables.get("TIMEOUT"))?,
            gzip: gzip(variables.get("COMPRESSION"))?,
        }))
    }
}

fn protocol(named: Option<NamedValue>) -> Result<ExportProtocol, ExportSettingsError> {
    match named {
        None => Ok(ExportProtocol::Grpc),
        Some(NamedValue {
            name: variable,
            value,
        }) => match value.as_str() {
            "grpc" => Ok(ExportProtocol::Grpc),
            "http/protobuf" => Ok(ExportProtocol::HttpProtobuf),
            _ => Err(ExportSettingsError::Protocol { variable, value }),
        },
    }
}

fn endpoint(
    NamedValue {
        name: variable,
        value,
    }: NamedValue,
    protocol: ExportProtocol,
) -> Result<ExportEndpoint, ExportSettingsError> {
    let error = |reason: String| ExportSettingsError::Endpoint {
        variable: variable.clone(),
        value: value
            .rsplit_once('@')
            .map_or(value.as_str(), |(_, host)| host)
            .to_owned(),
        reason,
    };
    if let Some(path) = value.strip_prefix("unix:") {
        if protocol == ExportProtocol::HttpProtobuf {
            return Err(error("Unix sockets are for gRPC".to_owned()));
        }
        let path = path.strip_prefix("//").unwrap_or(path);
        return Ok(ExportEndpoint::Unix(path.into()));
    }
    // As gRPC names targets: dns://resolver/host:port. The system's resolver is used.
    let target = value.strip_prefix("dns:").map(|target| {
        let path = target
            .strip_prefix("//")
            .and_then(|target| target.split_once('/'));
        path.map_or(target, |(_, host)| host)
    });
    let target = target.unwrap_or(&value);
    // Without a scheme, plain text.
    let url = match target.contains("://") {
        true => target.parse::<Uri>(),
        false => format!("http://{target}").parse::<Uri>(),
    };
    let url = url.map_err(|reason| error(reason.to_string()))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err(error("supported are http, https, dns and unix".to_owned()));
    }
    if protocol == ExportProtocol::Grpc || variable == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" {
        return Ok(ExportEndpoint::Url(url));
    }
    // Other endpoints are those of all signals.
    let path = format!("{}{HTTP_PATH}", url.path().trim_end_matches('/'));
    let whole = |path: &str| -> Result<Uri, http::Error> {
        Uri::builder()
            .scheme(url.scheme().cloned().unwrap_or(Scheme::HTTP))
            .authority(
                url.authority()
                    .cloned()
                    .unwrap_or(Authority::from_static("localhost")),
            )
            .path_and_query(PathAndQuery::try_from(path)?)
            .build()
    };
    let whole = whole(&path).map_err(|reason| error(reason.to_string()))?;
    Ok(ExportEndpoint::Url(whole))
}

/// Pairs as W3C Baggage writes them, with percent-encoded values.
fn headers(
    named: Option<NamedValue>,
) -> Result<Vec<(HeaderName, HeaderValue)>, ExportSettingsError> {
    let Some(NamedValue {
        name: variable,
        value,
    }) = named
    else {
        return Ok(Vec::new());
    };
    let pairs = value
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty());
    let header = |(position, pair): (usize, &str)| {
        let parse = || {
            let (name, value) = pair.split_once('=')?;
            let value = percent_encoding::percent_decode_str(value.trim());
            let name: HeaderName = name.trim().to_ascii_lowercase().parse().ok()?;
            let mut value = HeaderValue::from_bytes(&value.collect::<Vec<u8>>()).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        };
        parse().ok_or_else(|| ExportSettingsError::Header {
            variable: variable.clone(),
            position: position + 1,
        })
    };
    pairs.enumerate().map(header).collect()
}

fn client_certificate(
    certificate: Option<NamedValue>,
    key: Option<NamedValue>,
) -> Result<Option<(PathBuf, PathBuf)>, ExportSettingsError> {
    let (certificate_name, key_name) = (
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
        "OTEL_EXPORTER_OTLP_CLIENT_KEY",
    );
    let error = |first, second| ExportSettingsError::ClientCertificate { first, second };
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate.value.into(), key.value.into()))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(error(certificate_name, key_name)),
        (None, Some(_)) => Err(error(key_name, certificate_name)),
    }
}

fn timeout(named: Option<NamedValue>) -> Result<Duration, ExportSettingsError> {
    let Some(NamedValue {
        name: variable,
        value,
    }) = named
    else {
        return Ok(DEFAULT_TIMEOUT);
    };
    match value.parse() {
        Ok(millis) if millis > 0 => Ok(Duration::from_millis(millis)),
        _ => Err(ExportSettingsError::Timeout { variable, value }),
    }
}

fn gzip(named: Option<NamedValue>) -> Result<bool, ExportSettingsError> {
    match named {
        None => Ok(false),
        Some(NamedValue {
            name: variable,
            value,
        }) => match value.as_str() {
            "gzip" => Ok(true),
            "none" => Ok(false),
            _ => Err(ExportSettingsError::Compression { variable, value }),
        },
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
