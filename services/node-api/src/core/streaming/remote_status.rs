//! The result of a command, from the runtime's error stream to the client, by upstream's rules.

use serde::Deserialize;
use serde_json::{Value, json};

const NON_ZERO_EXIT: &str = "NonZeroExitCode";
const EXIT_CODE: &str = "ExitCode";

/// What the runtime says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RemoteStatus {
    status: String,
    message: String,
    reason: String,
    details: Option<RemoteDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RemoteDetails {
    causes: Vec<RemoteCause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RemoteCause {
    /// The kind of cause, which is called so in JSON.
    reason: String,
    message: String,
}

/// The `metav1.Status` for the client. An error stream that was closed without content is a success.
pub(crate) fn status(error_stream: &[u8]) -> Value {
    if error_stream.is_empty() {
        return success();
    }
    match decode(error_stream) {
        Ok(0) => success(),
        Ok(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: command terminated with exit code {code}"),
            "reason": NON_ZERO_EXIT,
            "details": {"causes": [{"reason": EXIT_CODE, "message": code.to_string()}]},
        }),
        Err(message) => internal_error(&message),
    }
}

/// The status of an error that is not the command's.
pub(crate) fn internal_error(message: &str) -> Value {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("Internal error occurred: {message}"),
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    })
}

fn success() -> Value {
    json!({"metadata": {}, "status": "Success"})
}

/// The exit code of the command.
fn decode(error_stream: &[u8]) -> Result<u8, String> {
    let protocol_error = |text: &str| Err(format!("error stream protocol error: {text}"));
    let status: RemoteStatus = match serde_json::from_slice(error_stream) {
        Ok(status) => status,
        Err(error) => {
            let text = String::from_utf8_lossy(error_stream);
            return protocol_error(&format!("{error} in {text:?}"));
        }
    };
    match status.status.as_str() {
        "Success" => return Ok(0),
        "Failure" => {}
        _ => return protocol_error("unknown error"),
    }
    if status.reason != NON_ZERO_EXIT {
        return Err(status.message);
    }
    let Some(details) = status.details else {
        return protocol_error("details must be set");
    };
    let mut causes = details.causes.iter();
    match causes.find(|cause| cause.reason == EXIT_CODE) {
        Some(cause) => match cause.message.parse() {
            Ok(code) => Ok(code),
            Err(_) => protocol_error(&format!("invalid exit code value {:?}", cause.message)),
        },
        None => protocol_error(&format!("no {EXIT_CODE} cause given")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_commands() {
        let exit = |code: &str| {
            json!({"status": "Failure", "reason": NON_ZERO_EXIT, "message": "command terminated",
                "details": {"causes": [{"reason": "Other", "message": "x"}, {"reason": EXIT_CODE, "message": code}]}})
        };
        assert_eq!(status(b""), success());
        assert_eq!(status(br#"{"metadata":{},"status":"Success"}"#), success());
        let three = status(exit("3").to_string().as_bytes());
        assert_eq!(
            three["details"]["causes"],
            json!([{"reason": "ExitCode", "message": "3"}])
        );
        assert_eq!(three["reason"], "NonZeroExitCode");
        for (text, message) in [
            (
                json!({"status": "Failure", "message": "no such program"}),
                "no such program",
            ),
            (
                exit("x"),
                "error stream protocol error: invalid exit code value \"x\"",
            ),
            (
                exit("256"),
                "error stream protocol error: invalid exit code value \"256\"",
            ),
            (
                json!({"status": "Failure", "reason": NON_ZERO_EXIT}),
                "error stream protocol error: details must be set",
            ),
            (
                json!({"status": "Failure", "reason": NON_ZERO_EXIT, "details": {}}),
                "error stream protocol error: no ExitCode cause given",
            ),
            (json!({}), "error stream protocol error: unknown error"),
        ] {
            let status = status(text.to_string().as_bytes());
            assert_eq!(
                status["message"],
                format!("Internal error occurred: {message}")
            );
            assert_eq!(status["code"], 500);
        }
        let broken = status(b"no such container");
        let message = broken["message"].as_str().unwrap();
        assert!(message.ends_with("in \"no such container\""), "{message}");
    }
}
