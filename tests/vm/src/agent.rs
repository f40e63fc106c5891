//! The messages between a test and the agent in the machine, over a virtio serial port: each as JSON
//! and a payload, after the lengths of both.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Name of the serial port; the device in the machine is `/dev/virtio-ports/<name>`.
pub const PORT: &str = "polylet.agent";

/// The longest message: the output of a command, cut by the agent.
const MAX_MESSAGE: usize = 16 << 20;

/// Bytes of the lengths before a message.
const HEADER: usize = 8;

/// Bytes of a command's output that the agent keeps, of each stream.
pub const MAX_OUTPUT: usize = 4 << 20;

/// A command to run in the machine; the payload is its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GuestCommand {
    /// Identifies the response.
    pub id: u64,
    /// Program and arguments.
    pub args: Vec<String>,
    /// Time limit, in milliseconds; the command and its children are killed then.
    pub limit_ms: u64,
}

/// A message of the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum AgentMessage {
    /// The agent has started.
    Ready {
        /// The kernel's identifier of this boot.
        boot_id: String,
    },
    /// A command has ended.
    Ended {
        /// Identifier of the command.
        id: u64,
        /// Its result.
        output: CommandOutput,
    },
}

/// The result of a command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CommandOutput {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Whether it was killed at its time limit.
    pub timed_out: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error, or why the command could not be run.
    pub stderr: String,
}

impl CommandOutput {
    /// Whether the command ended by itself with exit code 0.
    pub fn succeeded(&self) -> bool {
        self.code == Some(0) && !self.timed_out
    }

    /// Both streams, for messages.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr).trim().to_owned()
    }
}

/// What the agent found in a directory of state files.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct StateInspection {
    /// Number of files that are whole.
    pub whole: usize,
    /// Files that cannot be decoded, with the reason.
    pub torn: Vec<String>,
    /// Files that were set aside.
    pub set_aside: Vec<String>,
}

/// What the agent observes of pods, without asking the services or the runtime.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RuntimeObservation {
    /// Tasks of the runtime, from its bundles.
    pub tasks: Vec<ObservedTask>,
    /// UIDs that have a pod directory.
    pub pod_directories: Vec<String>,
    /// Mount points below the pod directories.
    pub mounts: Vec<String>,
    /// Addresses that the network plugin has reserved.
    pub addresses: Vec<String>,
}

/// A task of the runtime: a pod's sandbox or container with a process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ObservedTask {
    /// Container id.
    pub id: String,
    /// UID of its pod.
    pub pod_uid: String,
    /// Name of the container; empty for a sandbox.
    pub container: String,
    /// Whether its process exists.
    pub is_alive: bool,
}

/// What happened to a gRPC client that connected to a socket.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub enum ConnectOutcome {
    /// The other side began to speak.
    Served,
    /// It closed the connection.
    Closed,
    /// The system did not permit the connection.
    Refused,
    /// Something else, such as that nobody listens.
    Failed(String),
}

/// Writes a message and its payload as the bytes to send.
///
/// # Errors
/// Fails if it cannot be encoded or is too long.
pub fn encode<T: Serialize>(message: &T, payload: &[u8]) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(message)?;
    if json.len() + payload.len() > MAX_MESSAGE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::with_capacity(HEADER + json.len() + payload.len());
    for length in [json.len(), payload.len()] {
        let length = u32::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
        bytes.extend(length.to_le_bytes());
    }
    bytes.extend(json);
    bytes.extend(payload);
    Ok(bytes)
}

/// Decodes the first message of `bytes`, with its payload, and removes it; `None` if it is not
/// complete.
///
/// # Errors
/// Fails if it is too long or not a message.
pub fn decode<T: DeserializeOwned>(bytes: &mut Vec<u8>) -> io::Result<Option<(T, Vec<u8>)>> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let [a, b, c, d, e, f, g, h] = *header;
    let json = u32::from_le_bytes([a, b, c, d]) as usize;
    let length = json.saturating_add(u32::from_le_bytes([e, f, g, h]) as usize);
    if length > MAX_MESSAGE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let Some((json, payload)) = rest.get(..length).map(|message| message.split_at(json)) else {
        return Ok(None);
    };
    let message = (serde_json::from_slice(json)?, payload.to_vec());
    bytes.drain(..HEADER + length);
    Ok(Some(message))
}

/// Reads what is there, appended to `bytes`; the number of bytes.
///
/// # Errors
/// Fails if the stream fails.
pub fn read_some(stream: &mut impl Read, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0; 1 << 14];
    let count = stream.read(&mut buffer)?;
    bytes.extend(&buffer[..count]);
    Ok(count)
}

/// Sends a message without a payload.
///
/// # Errors
/// Fails if it cannot be encoded or written.
pub fn send<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    stream.write_all(&encode(message, &[])?)?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_decoded_whole_in_any_pieces() {
        let ready = AgentMessage::Ready {
            boot_id: "b".to_owned(),
        };
        let ended = AgentMessage::Ended {
            id: 4,
            output: CommandOutput::default(),
        };
        let sent = [
            encode(&ready, b"").expect("encoded"),
            encode(&ended, &[0, 0xff, 1]).expect("encoded"),
        ]
        .concat();
        let (mut received, mut decoded) = (Vec::new(), Vec::new());
        for byte in sent {
            received.push(byte);
            decoded.extend(decode::<AgentMessage>(&mut received).expect("no error"));
        }
        assert!(received.is_empty());
        assert!(matches!(
            decoded[..],
            [
                (AgentMessage::Ready { .. }, _),
                (AgentMessage::Ended { id: 4, .. }, _)
            ]
        ));
        let payloads: Vec<&[u8]> = decoded.iter().map(|(_, payload)| &payload[..]).collect();
        assert_eq!(payloads, [&b""[..], &[0, 0xff, 1]]);
    }

    #[test]
    fn a_length_that_cannot_be_is_an_error() {
        let mut bytes = vec![0xff; HEADER];
        assert!(decode::<AgentMessage>(&mut bytes).is_err());
    }
}
