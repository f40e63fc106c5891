//! Which registrations of plugins are accepted.

use std::path::{Path, PathBuf};

use crate::core::registration::{RegistrationError, check};

fn registered(version: &str, resource: &str, endpoint: &str) -> Result<PathBuf, RegistrationError> {
    check(Path::new("/plugins"), version, resource, endpoint, 0, false)
}

#[test]
fn sockets_are_beside_the_registration_socket() {
    let socket = |endpoint| registered("v1beta1", "example.com/gpu", endpoint);
    assert_eq!(socket("gpu.sock"), Ok("/plugins/gpu.sock".into()));
    assert_eq!(socket("/gpu.sock"), Ok("/plugins/gpu.sock".into()));
    assert_eq!(socket("sub/gpu.sock"), Ok("/plugins/sub/gpu.sock".into()));
    for endpoint in ["", "/", "../gpu.sock", "a/../../gpu.sock"] {
        let error = RegistrationError::Endpoint(endpoint.to_owned());
        assert_eq!(socket(endpoint), Err(error));
    }
}

#[test]
fn other_versions_and_names_are_refused() {
    let error = registered("v1", "example.com/gpu", "s").unwrap_err();
    assert_eq!(
        error.to_string(),
        "requested API version \"v1\" is not supported by kubelet. Supported version is [\"v1beta1\"]"
    );
    let error = registered("v1beta1", "gpu", "s").unwrap_err();
    assert_eq!(error.to_string(), "the ResourceName \"gpu\" is invalid");
    let full = |is_known| check(Path::new("/p"), "v1beta1", "a.b/c", "s", 512, is_known);
    assert!(matches!(full(false), Err(RegistrationError::TooMany(_))));
    assert!(full(true).is_ok());
}
