//! The streams of a command: channels of a WebSocket on the client's side, SPDY streams on the runtime's.

use super::request::StreamOptions;

/// The first byte of a message that closes a channel.
const CLOSE_SIGNAL: u8 = 255;

/// One stream of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Stdin,
    Stdout,
    Stderr,
    /// The result of the command.
    Error,
    /// Sizes of the terminal.
    Resize,
}

impl StreamKind {
    /// The number of its channel.
    pub(crate) fn channel(self) -> u8 {
        match self {
            Self::Stdin => 0,
            Self::Stdout => 1,
            Self::Stderr => 2,
            Self::Error => 3,
            Self::Resize => 4,
        }
    }

    /// Its name in the headers of a SPDY stream.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stdin => "stdin",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Error => "error",
            Self::Resize => "resize",
        }
    }
}

/// A message of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientMessage<'a> {
    /// Data for a stream.
    Data(StreamKind, &'a [u8]),
    /// The end of a stream.
    End(StreamKind),
    /// For a channel that the client does not write.
    Ignored,
    /// The connection is to be closed.
    Invalid,
}

/// Reads a message of the client.
pub(crate) fn client_message(message: &[u8]) -> ClientMessage<'_> {
    match message {
        [] => ClientMessage::Ignored,
        [CLOSE_SIGNAL, 0] => ClientMessage::End(StreamKind::Stdin),
        [CLOSE_SIGNAL, 4] => ClientMessage::End(StreamKind::Resize),
        [CLOSE_SIGNAL, 1..=3] => ClientMessage::Ignored,
        [CLOSE_SIGNAL, ..] => ClientMessage::Invalid,
        [0, data @ ..] => ClientMessage::Data(StreamKind::Stdin, data),
        [4, data @ ..] => ClientMessage::Data(StreamKind::Resize, data),
        _ => ClientMessage::Ignored,
    }
}

#[derive(Debug)]
struct RemoteStream {
    id: u32,
    kind: StreamKind,
    accepted: bool,
    ended: bool,
    /// The client has ended its side.
    closed: bool,
}

/// The streams of one command on the runtime's side.
#[derive(Debug)]
pub(crate) struct RemoteStreams {
    streams: Vec<RemoteStream>,
}

impl RemoteStreams {
    /// The streams that upstream's client opens for these options, in its order.
    pub(crate) fn new(options: StreamOptions) -> Self {
        let kinds = [
            (true, StreamKind::Error),
            (options.stdin, StreamKind::Stdin),
            (options.stdout, StreamKind::Stdout),
            (options.stderr && !options.tty, StreamKind::Stderr),
            (options.tty, StreamKind::Resize),
        ];
        let kinds = kinds.into_iter().filter(|(is_requested, _)| *is_requested);
        // Clients have odd numbers.
        let streams = kinds
            .zip((1..).step_by(2))
            .map(|((_, kind), id)| RemoteStream {
                id,
                kind,
                accepted: false,
                ended: false,
                closed: false,
            });
        Self {
            streams: streams.collect(),
        }
    }

    /// Numbers and kinds, in the order in which they are opened.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, StreamKind)> {
        self.streams.iter().map(|stream| (stream.id, stream.kind))
    }

    /// The kind of a stream that the runtime has not ended.
    pub(crate) fn open_kind(&self, id: u32) -> Option<StreamKind> {
        let mut open = self.streams.iter().filter(|stream| !stream.ended);
        open.find(|stream| stream.id == id)
            .map(|stream| stream.kind)
    }

    /// The number of a stream to which the client may write.
    pub(crate) fn writable(&self, kind: StreamKind) -> Option<u32> {
        let mut open = self.streams.iter().filter(|stream| !stream.closed);
        open.find(|stream| stream.kind == kind)
            .map(|stream| stream.id)
    }

    /// The client has ended a stream. Its number, if it was open.
    pub(crate) fn close(&mut self, kind: StreamKind) -> Option<u32> {
        let mut open = self.streams.iter_mut().filter(|stream| !stream.closed);
        let stream = open.find(|stream| stream.kind == kind)?;
        stream.closed = true;
        Some(stream.id)
    }

    /// The runtime has accepted a stream.
    pub(crate) fn accept(&mut self, id: u32) {
        self.update(id, |stream| stream.accepted = true);
    }

    /// The runtime has ended a stream.
    pub(crate) fn end(&mut self, id: u32) {
        self.update(id, |stream| stream.ended = true);
    }

    /// The runtime has ended both directions of a stream.
    pub(crate) fn reset(&mut self, id: u32) {
        self.update(id, |stream| {
            stream.accepted = true;
            stream.ended = true;
            stream.closed = true;
        });
    }

    fn update(&mut self, id: u32, change: impl FnOnce(&mut RemoteStream)) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
            change(stream);
        }
    }

    /// Whether data may be sent: the runtime drops what arrives before it has accepted a stream.
    pub(crate) fn all_accepted(&self) -> bool {
        self.streams.iter().all(|stream| stream.accepted)
    }

    /// Whether all output and the result have been received.
    pub(crate) fn is_finished(&self) -> bool {
        let is_output = |kind| !matches!(kind, StreamKind::Stdin | StreamKind::Resize);
        let mut output = self.streams.iter().filter(|one| is_output(one.kind));
        output.all(|stream| stream.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_clients() {
        for (message, expected) in [
            (&b""[..], ClientMessage::Ignored),
            (b"\x00", ClientMessage::Data(StreamKind::Stdin, b"")),
            (b"\x00ab", ClientMessage::Data(StreamKind::Stdin, b"ab")),
            (b"\x04{}", ClientMessage::Data(StreamKind::Resize, b"{}")),
            (b"\x01ab", ClientMessage::Ignored),
            (b"\x03ab", ClientMessage::Ignored),
            (b"\x09ab", ClientMessage::Ignored),
            (b"\xff\x00", ClientMessage::End(StreamKind::Stdin)),
            (b"\xff\x01", ClientMessage::Ignored),
            (b"\xff\x05", ClientMessage::Invalid),
            (b"\xff", ClientMessage::Invalid),
            (b"\xff\x00\x00", ClientMessage::Invalid),
        ] {
            assert_eq!(client_message(message), expected, "{message:?}");
        }
    }

    #[test]
    fn command_is_finished_after_its_output_and_result() {
        let options = StreamOptions {
            stdin: true,
            stdout: true,
            stderr: true,
            tty: false,
        };
        let mut streams = RemoteStreams::new(options);
        let opened: Vec<_> = streams.iter().collect();
        assert_eq!(
            opened,
            [
                (1, StreamKind::Error),
                (3, StreamKind::Stdin),
                (5, StreamKind::Stdout),
                (7, StreamKind::Stderr)
            ]
        );
        for id in [1, 3, 5] {
            streams.accept(id);
        }
        assert!(!streams.all_accepted());
        streams.accept(7);
        assert!(streams.all_accepted());
        assert_eq!(streams.close(StreamKind::Stdin), Some(3));
        assert_eq!(streams.close(StreamKind::Stdin), None);
        assert_eq!(streams.writable(StreamKind::Stdin), None);
        streams.end(5);
        streams.end(1);
        assert_eq!(streams.open_kind(5), None);
        assert!(!streams.is_finished());
        streams.reset(7);
        streams.reset(99);
        assert!(streams.is_finished());
    }

    #[test]
    fn terminal_has_sizes_and_no_standard_error() {
        let options = StreamOptions {
            stdin: false,
            stdout: true,
            stderr: true,
            tty: true,
        };
        let streams = RemoteStreams::new(options);
        let kinds: Vec<_> = streams.iter().map(|(_, kind)| kind.name()).collect();
        assert_eq!(kinds, ["error", "stdout", "resize"]);
        assert_eq!(streams.writable(StreamKind::Resize), Some(5));
        assert_eq!(streams.writable(StreamKind::Stdin), None);
    }
}
