//! Spans of calls to CSI drivers that a pod's start or end waits for.

use std::path::Path;

use polylet_kit::rpc_status::status_name;
use tonic::Status;
use tracing::Span;
use tracing::field::Empty;

/// The span of a call within the present one; none outside of spans.
pub(super) fn call_span(method: &str, driver: &Path) -> Span {
    if Span::current().is_disabled() {
        return Span::none();
    }
    tracing::info_span!(
        "csi.call",
        otel.name = format!("csi.{method}"),
        otel.kind = "client",
        rpc.system.name = "grpc",
        rpc.method = format!("csi.v1.Node/{method}"),
        rpc.response.status_code = Empty,
        server.address = %driver.display(),
        network.transport = "unix",
        error.type = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
    )
}

/// Records how a call ended. Messages of drivers are not recorded: they may quote secrets.
pub(super) fn record_result<T>(span: &Span, result: &Result<T, Status>) {
    let code = match result {
        Ok(_) => tonic::Code::Ok,
        Err(status) => status.code(),
    };
    span.record("rpc.response.status_code", status_name(code));
    if result.is_err() {
        span.record("error.type", status_name(code));
        span.record("otel.status_code", "ERROR");
        span.record("otel.status_description", status_name(code));
    }
}
