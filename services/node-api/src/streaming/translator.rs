//! Commands over WebSockets, translated to SPDY.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use polylet_kit::CancellationToken;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Message};

use super::client_socket::{ClientBoundWriter, ClientSocket};
use super::relay::{CHUNK, StreamActivity};
use super::websocket;
use crate::core::streaming::remote_command::{
    ClientMessage, RemoteStreams, StreamKind, client_message,
};
use crate::core::streaming::remote_status;
use crate::core::streaming::request::StreamOptions;
use crate::core::streaming::spdy::{
    self, CONTROL_LENGTH, ControlFrame, FrameHeader, HEADER_LENGTH, StreamOpener,
};

/// Most bytes of a command's result.
const MAX_STATUS: usize = 64 << 10;
/// Pings of the runtime that wait for a response; more are not answered.
const MAX_PINGS: usize = 4;

/// Why a stream ended before the command's result.
#[derive(Debug, thiserror::Error)]
enum TranslationError {
    #[error("connection to the runtime lost: {0}")]
    Backend(#[source] std::io::Error),
    #[error("the runtime sent a frame that is not SPDY/3.1")]
    Protocol,
    #[error("the client is gone: {0}")]
    Client(#[source] Box<tungstenite::Error>),
}

/// Sends the empty message that tells a client that its WebSocket is established, as upstream.
pub(super) async fn greet<C>(client: &mut WebSocketStream<C>, options: StreamOptions) -> bool
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let kind = match options {
        StreamOptions { stdout: true, .. } => StreamKind::Stdout,
        StreamOptions { stderr: true, .. } => StreamKind::Stderr,
        _ => StreamKind::Error,
    };
    client.send(channel_message(kind, &[])).await.is_ok()
}

/// Tells a client the result of its command and ends its WebSocket.
pub(super) async fn finish<C>(client: WebSocketStream<C>, status: &Value)
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let text = status.to_string();
    let last = channel_message(StreamKind::Error, text.as_bytes());
    websocket::finish(client, Some(last)).await;
}

/// Carries the streams of a command until it has ended, the client is gone, or nothing was sent for the
/// timeout.
pub(super) async fn translate<C, B>(
    client: WebSocketStream<C>,
    backend: B,
    options: StreamOptions,
    idle_timeout: Duration,
    socket: ClientSocket,
) where
    C: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let activity = StreamActivity::new(idle_timeout);
    let (reader, writer) = split(backend);
    let writer = ClientBoundWriter::new(writer, socket);
    let (sink, messages) = client.split();
    let (pings, pings_received) = mpsc::channel(MAX_PINGS);
    let all_accepted = CancellationToken::new();
    let mut from_client = FromClient {
        messages,
        writer,
        streams: RemoteStreams::new(options),
        pings: pings_received,
        all_accepted: all_accepted.clone(),
        activity: &activity,
    };
    let mut from_runtime = FromRuntime {
        reader: tokio::io::BufReader::with_capacity(CHUNK, reader),
        sink,
        streams: RemoteStreams::new(options),
        pings,
        all_accepted,
        status: Vec::new(),
        activity: &activity,
    };
    let status = tokio::select! {
        result = from_runtime.run() => match result {
            Ok(()) => Some(remote_status::status(&from_runtime.status)),
            Err(TranslationError::Client(_)) => None,
            // The runtime has closed the connection without ending the streams before.
            Err(TranslationError::Backend(_)) if !from_runtime.status.is_empty() => {
                Some(remote_status::status(&from_runtime.status))
            }
            Err(error) => Some(remote_status::internal_error(&error.to_string())),
        },
        () = from_client.run() => None,
        () = activity.idle() => {
            Some(remote_status::internal_error("the stream was idle for too long"))
        }
    };
    let (sink, messages) = (from_runtime.sink, from_client.messages);
    drop((from_runtime.reader, from_client.writer));
    if let Ok(client) = sink.reunite(messages) {
        match status {
            Some(status) => finish(client, &status).await,
            None => websocket::finish(client, None).await,
        }
    }
}

/// The direction to the runtime.
struct FromClient<'a, C, W> {
    messages: SplitStream<WebSocketStream<C>>,
    writer: W,
    streams: RemoteStreams,
    pings: mpsc::Receiver<[u8; 4]>,
    /// Cancelled when the runtime has accepted all streams.
    all_accepted: CancellationToken,
    activity: &'a StreamActivity,
}

impl<C, W> FromClient<'_, C, W>
where
    C: AsyncRead + AsyncWrite + Unpin,
    W: AsyncWrite + Unpin,
{
    /// Until the client is gone. A runtime that takes no input any more may still have output and a result.
    async fn run(&mut self) {
        if let Err(TranslationError::Backend(_)) = self.pass_input().await {
            self.discard_input().await;
        }
    }

    /// Until the client is gone. What it sends is no activity: nobody reads it.
    async fn discard_input(&mut self) {
        while let Some(Ok(message)) = self.messages.next().await {
            if message.is_close() {
                return;
            }
        }
    }

    /// Until the client is gone, or the runtime takes no more input.
    async fn pass_input(&mut self) -> Result<(), TranslationError> {
        let mut opener = StreamOpener::default();
        for (id, kind) in self.streams.iter() {
            let frame = opener.open(id, &[("streamtype", kind.name())]);
            write(&mut self.writer, &frame).await?;
        }
        self.writer
            .flush()
            .await
            .map_err(TranslationError::Backend)?;
        let mut is_accepted = false;
        loop {
            tokio::select! {
                Some(id) = self.pings.recv() => {
                    write(&mut self.writer, &spdy::ping(id)).await?;
                    self.writer.flush().await.map_err(TranslationError::Backend)?;
                }
                () = self.all_accepted.cancelled(), if !is_accepted => is_accepted = true,
                message = self.messages.next(), if is_accepted => {
                    let Some(message) = message else { return Ok(()) };
                    let message = message.map_err(|error| TranslationError::Client(Box::new(error)))?;
                    self.activity.record();
                    if !self.pass_on(message).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// False at the end.
    async fn pass_on(&mut self, message: Message) -> Result<bool, TranslationError> {
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => text.into(),
            Message::Ping(_) | Message::Pong(_) => return Ok(true),
            Message::Close(_) | Message::Frame(_) => return Ok(false),
        };
        match client_message(&bytes) {
            ClientMessage::Data(kind, data) => {
                if let Some(id) = self.streams.writable(kind) {
                    for (header, part) in spdy::data(id, data) {
                        write(&mut self.writer, &header).await?;
                        write(&mut self.writer, part).await?;
                    }
                }
            }
            ClientMessage::End(kind) => {
                if let Some(id) = self.streams.close(kind) {
                    write(&mut self.writer, &spdy::end(id)).await?;
                }
            }
            ClientMessage::Ignored => {}
            ClientMessage::Invalid => return Ok(false),
        }
        self.writer
            .flush()
            .await
            .map_err(TranslationError::Backend)?;
        Ok(true)
    }
}

async fn write<W: AsyncWrite + Unpin>(
    writer: &mut W,
    bytes: &[u8],
) -> Result<(), TranslationError> {
    let written = writer.write_all(bytes).await;
    written.map_err(TranslationError::Backend)
}

/// The direction to the client.
struct FromRuntime<'a, C, R> {
    reader: R,
    sink: SplitSink<WebSocketStream<C>, Message>,
    streams: RemoteStreams,
    pings: mpsc::Sender<[u8; 4]>,
    all_accepted: CancellationToken,
    /// What was received of the result.
    status: Vec<u8>,
    activity: &'a StreamActivity,
}

impl<C, R> FromRuntime<'_, C, R>
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + Unpin,
{
    /// Until all output and the result have been received.
    async fn run(&mut self) -> Result<(), TranslationError> {
        let mut buffer = vec![0; CHUNK];
        while !self.streams.is_finished() {
            let mut header = [0; HEADER_LENGTH];
            let read = self.reader.read_exact(&mut header).await;
            read.map_err(TranslationError::Backend)?;
            match FrameHeader::parse(header).ok_or(TranslationError::Protocol)? {
                FrameHeader::Data {
                    stream,
                    fin,
                    length,
                } => {
                    self.receive(stream, length, &mut buffer).await?;
                    if fin {
                        self.streams.end(stream);
                    }
                }
                FrameHeader::Control { kind, fin, length } => {
                    let mut payload = [0; CONTROL_LENGTH];
                    let known = payload.get_mut(..length.min(CONTROL_LENGTH));
                    let known = known.unwrap_or_default();
                    let read = self.reader.read_exact(known).await;
                    read.map_err(TranslationError::Backend)?;
                    let control = spdy::control(kind, fin, known);
                    let rest = length.saturating_sub(CONTROL_LENGTH);
                    self.skip(rest, &mut buffer).await?;
                    self.handle(control);
                }
            }
        }
        Ok(())
    }

    fn handle(&mut self, control: ControlFrame) {
        match control {
            ControlFrame::Accepted { stream, fin } => {
                self.streams.accept(stream);
                if fin {
                    self.streams.end(stream);
                }
            }
            ControlFrame::Reset { stream } => self.streams.reset(stream),
            ControlFrame::Ping(id) => drop(self.pings.try_send(id)),
            ControlFrame::GoAway | ControlFrame::Other => {}
        }
        if self.streams.all_accepted() {
            self.all_accepted.cancel();
        }
    }

    /// Passes the data of a frame on, however long it is, in parts.
    async fn receive(
        &mut self,
        stream: u32,
        length: usize,
        buffer: &mut [u8],
    ) -> Result<(), TranslationError> {
        let kind = self.streams.open_kind(stream);
        let mut remaining = length;
        while remaining > 0 {
            let part = self.read_part(remaining, buffer).await?;
            remaining = remaining.saturating_sub(part.len());
            self.activity.record();
            match kind {
                Some(StreamKind::Error) => {
                    let space = MAX_STATUS.saturating_sub(self.status.len());
                    self.status.extend(part.iter().take(space));
                }
                Some(kind @ (StreamKind::Stdout | StreamKind::Stderr)) => {
                    let sent = self.sink.send(channel_message(kind, part)).await;
                    sent.map_err(|error| TranslationError::Client(Box::new(error)))?;
                }
                Some(StreamKind::Stdin | StreamKind::Resize) | None => {}
            }
        }
        Ok(())
    }

    async fn skip(&mut self, length: usize, buffer: &mut [u8]) -> Result<(), TranslationError> {
        let mut remaining = length;
        while remaining > 0 {
            let part = self.read_part(remaining, buffer).await?;
            remaining = remaining.saturating_sub(part.len());
        }
        Ok(())
    }

    /// At least one byte, and not more than `most`.
    async fn read_part<'b>(
        &mut self,
        most: usize,
        buffer: &'b mut [u8],
    ) -> Result<&'b [u8], TranslationError> {
        let most = most.min(buffer.len());
        let part = buffer.get_mut(..most).unwrap_or_default();
        let count = self.reader.read(part).await;
        let count = count.map_err(TranslationError::Backend)?;
        if count == 0 {
            let end = std::io::ErrorKind::UnexpectedEof;
            return Err(TranslationError::Backend(end.into()));
        }
        Ok(part.get(..count).unwrap_or_default())
    }
}

fn channel_message(kind: StreamKind, data: &[u8]) -> Message {
    let mut message = BytesMut::with_capacity(data.len() + 1);
    message.put_u8(kind.channel());
    message.extend_from_slice(data);
    Message::Binary(Bytes::from(message))
}

#[cfg(test)]
mod tests;
