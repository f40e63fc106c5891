//! What messages that can hold secrets print of themselves: enough to tell them apart, and nothing
//! that opens a door. The generator leaves their `Debug` out.

use std::fmt::{Debug, Formatter, Result};

use crate::csi::v1::{NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest};
use crate::podconfig::v1::{
    GetObjectResponse, IssueTokenResponse, PodCertificate, WatchObjectResponse,
    get_object_response, watch_object_response,
};
use crate::runtime::v1::{AuthConfig, ContainerStatusResponse, KeyValue};

/// Stands for a value; only whether there is one is told.
struct Hidden(bool);

impl Debug for Hidden {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(if self.0 { "<hidden>" } else { "<none>" })
    }
}

fn text(value: &str) -> Hidden {
    Hidden(!value.is_empty())
}

impl Debug for AuthConfig {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("AuthConfig")
            .field("username", &text(&self.username))
            .field("password", &text(&self.password))
            .field("auth", &text(&self.auth))
            .field("server_address", &self.server_address)
            .field("identity_token", &text(&self.identity_token))
            .field("registry_token", &text(&self.registry_token))
            .finish()
    }
}

impl Debug for NodeStageVolumeRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("NodeStageVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("staging_target_path", &self.staging_target_path)
            .field("secrets", &Hidden(!self.secrets.is_empty()))
            .finish_non_exhaustive()
    }
}

impl Debug for NodePublishVolumeRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("NodePublishVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("target_path", &self.target_path)
            .field("secrets", &Hidden(!self.secrets.is_empty()))
            .finish_non_exhaustive()
    }
}

impl Debug for NodeExpandVolumeRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("NodeExpandVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("volume_path", &self.volume_path)
            .field("capacity_range", &self.capacity_range)
            .field("secrets", &Hidden(!self.secrets.is_empty()))
            .finish_non_exhaustive()
    }
}

impl Debug for IssueTokenResponse {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("IssueTokenResponse")
            .field("token", &text(&self.token))
            .field("expires_at", &self.expires_at)
            .field("refresh_at", &self.refresh_at)
            .finish()
    }
}

impl Debug for PodCertificate {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("PodCertificate")
            .field("private_key", &text(&self.private_key))
            .field("certificate_chain", &self.certificate_chain)
            .finish()
    }
}

// Environment variables come out of Secrets.
impl Debug for KeyValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("KeyValue")
            .field("key", &self.key)
            .field("value", &Hidden(!self.value.is_empty()))
            .finish()
    }
}

// The runtime's own words repeat the container's whole environment.
impl Debug for ContainerStatusResponse {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("ContainerStatusResponse")
            .field("status", &self.status)
            .field("info", &Hidden(!self.info.is_empty()))
            .finish()
    }
}

// Secrets and ConfigMaps as JSON.
macro_rules! object {
    ($message:ident, $state:ident $(, $rest:ident)?) => {
        impl Debug for $message {
            fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                f.debug_struct(stringify!($message))
                    .field("state", &self.state)
                    .finish()
            }
        }

        impl Debug for $state::State {
            fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                match self {
                    Self::Manifest(json) => write!(f, "Manifest({} bytes)", json.len()),
                    Self::Absent(_) => f.write_str("Absent"),
                    $(Self::$rest(told) => told.fmt(f),)?
                }
            }
        }
    };
}

object!(GetObjectResponse, get_object_response);
object!(WatchObjectResponse, watch_object_response, Unknown);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::v1::{ContainerConfig, PullImageRequest};

    #[test]
    fn secrets_are_not_printed() {
        let secret = || "hunter2".to_owned();
        let pull = PullImageRequest {
            auth: Some(AuthConfig {
                username: secret(),
                password: secret(),
                auth: secret(),
                server_address: "registry".to_owned(),
                identity_token: secret(),
                registry_token: secret(),
            }),
            ..Default::default()
        };
        let config = ContainerConfig {
            envs: vec![KeyValue {
                key: "PASSWORD".to_owned(),
                value: secret().into_bytes(),
            }],
            ..Default::default()
        };
        let status = ContainerStatusResponse {
            info: [("info".to_owned(), secret())].into(),
            ..Default::default()
        };
        let get = GetObjectResponse {
            state: Some(get_object_response::State::Manifest(secret().into())),
        };
        let watch = WatchObjectResponse {
            state: Some(watch_object_response::State::Manifest(secret().into())),
        };
        let token = IssueTokenResponse {
            token: secret(),
            ..Default::default()
        };
        let certificate = PodCertificate {
            private_key: secret(),
            ..Default::default()
        };
        let bytes = format!("{:?}", secret().into_bytes());
        let cases = [
            (format!("{pull:?}"), "registry"),
            (format!("{config:?}"), "PASSWORD"),
            (format!("{status:?}"), "<hidden>"),
            (format!("{token:?}"), "<hidden>"),
            (format!("{certificate:?}"), "<hidden>"),
            (format!("{get:?}"), "7 bytes"),
            (format!("{watch:?}"), "7 bytes"),
        ];
        for (said, told) in cases {
            assert!(
                !said.contains("hunter2") && !said.contains(&bytes),
                "{said}"
            );
            assert!(said.contains(told), "{said}");
        }
        assert!(format!("{:?}", AuthConfig::default()).contains("<none>"));
    }
}
