//! The kubelet's checkpoint of devices, `kubelet_internal_checkpoint`: what has been allocated
//! outlives restarts, reboots, and a change between the kubelet and Polylet in either direction.
//!
//! The kubelet refuses a file whose checksum does not fit. It is that of the text in which Go's
//! `spew` package prints the data.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polylet_model::hash::fnv1a_32;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// The name of the file in the directory of device plugins.
pub const FILE_NAME: &str = "kubelet_internal_checkpoint";

/// Why a checkpoint cannot be used.
#[derive(Debug, Error)]
pub enum DeviceCheckpointError {
    /// It is not the expected JSON.
    #[error("invalid checkpoint")]
    Json(#[from] serde_json::Error),
    /// It was changed or damaged.
    #[error("the checkpoint's checksum is {found}, and that of its content {expected}")]
    Checksum {
        /// The one in the file.
        found: u64,
        /// The one that the content has.
        expected: u64,
    },
}

/// The data of a checkpoint. Go tells a missing list from an empty one, also in the checksum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeviceCheckpoint {
    /// What containers have.
    #[serde(default)]
    pub pod_device_entries: Option<Vec<PodDevicesEntry>>,
    /// Ids of healthy devices by registered resource.
    #[serde(default)]
    pub registered_devices: Option<BTreeMap<String, Option<Vec<String>>>>,
}

/// The devices of one resource that a container has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodDevicesEntry {
    /// The pod's UID.
    #[serde(rename = "PodUID")]
    pub pod_uid: String,
    /// The container's name.
    #[serde(rename = "ContainerName")]
    pub container_name: String,
    /// The resource's name.
    #[serde(rename = "ResourceName")]
    pub resource_name: String,
    /// Ids of devices by NUMA node; -1 stands for those without.
    #[serde(rename = "DeviceIDs")]
    pub device_ids: Option<BTreeMap<i64, Option<Vec<String>>>>,
    /// The plugin's answer as a Protobuf message.
    #[serde(rename = "AllocResp")]
    pub alloc_resp: Option<Base64>,
}

/// Bytes that are base64 in JSON, as Go writes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Base64(pub Vec<u8>);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(serde::de::Error::custom)?;
        Ok(Base64(bytes))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeviceCheckpointContent<D> {
    data: D,
    #[serde(default)]
    checksum: u64,
}

impl DeviceCheckpoint {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn decode(content: &[u8]) -> Result<Self, DeviceCheckpointError> {
        let file: DeviceCheckpointContent<DeviceCheckpoint> = serde_json::from_slice(content)?;
        let (found, expected) = (file.checksum, file.data.checksum());
        if found != expected {
            return Err(DeviceCheckpointError::Checksum { found, expected });
        }
        Ok(file.data)
    }

    /// The content of the file.
    ///
    /// # Errors
    /// None in practice: every checkpoint is valid JSON.
    pub fn encode(&self) -> Result<Vec<u8>, DeviceCheckpointError> {
        let checksum = self.checksum();
        Ok(serde_json::to_vec(&DeviceCheckpointContent {
            data: self,
            checksum,
        })?)
    }

    /// FNV-1a, 32 bits, of the data as `spew` prints it.
    fn checksum(&self) -> u64 {
        let mut text = String::new();
        // A string takes any text.
        let _ = self.print(&mut text);
        u64::from(fnv1a_32(text.as_bytes()))
    }

    fn print(&self, out: &mut impl Write) -> fmt::Result {
        out.write_str(
            "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)",
        )?;
        print_list(out, self.pod_device_entries.as_deref(), |out, entry| {
            entry.print(out)
        })?;
        out.write_str(" RegisteredDevices:(map[string][]string)")?;
        print_map(out, self.registered_devices.as_ref())?;
        out.write_char('}')
    }
}

impl PodDevicesEntry {
    fn print(&self, out: &mut impl Write) -> fmt::Result {
        write!(
            out,
            "{{PodUID:(string){} ContainerName:(string){} ResourceName:(string){}",
            self.pod_uid, self.container_name, self.resource_name
        )?;
        out.write_str(" DeviceIDs:(checkpoint.DevicesPerNUMA)")?;
        print_map(out, self.device_ids.as_ref())?;
        out.write_str(" AllocResp:([]uint8)")?;
        let bytes = self.alloc_resp.as_ref().map(|bytes| &bytes.0[..]);
        print_list(out, bytes, |out, byte| write!(out, "{byte}"))?;
        out.write_char('}')
    }
}

const NIL: &str = "<nil>";

fn print_list<W: Write, T>(
    out: &mut W,
    list: Option<&[T]>,
    print: impl Fn(&mut W, &T) -> fmt::Result,
) -> fmt::Result {
    let Some(list) = list else {
        return out.write_str(NIL);
    };
    out.write_char('[')?;
    for (i, item) in list.iter().enumerate() {
        if i > 0 {
            out.write_char(' ')?;
        }
        print(out, item)?;
    }
    out.write_char(']')
}

fn print_map<K: fmt::Display>(
    out: &mut impl Write,
    map: Option<&BTreeMap<K, Option<Vec<String>>>>,
) -> fmt::Result {
    let Some(map) = map else {
        return out.write_str(NIL);
    };
    out.write_str("map[")?;
    for (i, (key, list)) in map.iter().enumerate() {
        if i > 0 {
            out.write_char(' ')?;
        }
        write!(out, "{key}:")?;
        print_list(out, list.as_deref(), |out, id| out.write_str(id))?;
    }
    out.write_char(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by upstream's package `checkpoint` of v1.36.3.
    const FROM_UPSTREAM: [&str; 4] = [
        r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}"#,
        r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":1944006890}"#,
        r#"{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{"b.c/z":null,"example.com/a":[]}},"Checksum":3205461390}"#,
        r#"{"Data":{"PodDeviceEntries":[{"PodUID":"u-1","ContainerName":"c","ResourceName":"example.com/a","DeviceIDs":{"-1":["d2","d1"]},"AllocResp":"CsgA"},{"PodUID":"u-2","ContainerName":"c \"q\"\n\u00e9\u2028\u003c\u0026\u003e","ResourceName":"example.com/a","DeviceIDs":{"0":["y","z"],"10":["x"],"2":null},"AllocResp":""},{"PodUID":"u-3","ContainerName":"","ResourceName":"","DeviceIDs":null,"AllocResp":null}],"RegisteredDevices":{"b.c/z":["\u00e9\"\u0001"],"example.com/a":["d1","d2"]}},"Checksum":2328913915}"#,
    ];

    #[test]
    fn checkpoints_of_a_kubelet_are_read_and_written_with_its_checksum() {
        for content in FROM_UPSTREAM {
            let checkpoint = DeviceCheckpoint::decode(content.as_bytes()).unwrap();
            let written = checkpoint.encode().unwrap();
            let written: serde_json::Value = serde_json::from_slice(&written).unwrap();
            let read: serde_json::Value = serde_json::from_str(content).unwrap();
            assert_eq!(written, read);
        }
    }

    #[test]
    fn damaged_checkpoints_are_refused() {
        let damaged = FROM_UPSTREAM[3].replace("u-1", "u-9");
        let error = DeviceCheckpoint::decode(damaged.as_bytes()).unwrap_err();
        assert!(
            matches!(error, DeviceCheckpointError::Checksum { .. }),
            "{error}"
        );
        for content in [
            "",
            "{}",
            "[]",
            r#"{"Data":{"PodDeviceEntries":[{"AllocResp":"?"}]}}"#,
        ] {
            let error = DeviceCheckpoint::decode(content.as_bytes()).unwrap_err();
            assert!(
                matches!(error, DeviceCheckpointError::Json(_)),
                "{content}: {error}"
            );
        }
    }
}
