use serde_json::json;
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const ALL: StreamOptions = StreamOptions {
    stdin: true,
    stdout: true,
    stderr: true,
    tty: false,
};
const ERROR: u32 = 1;
const STDIN: u32 = 3;
const STDOUT: u32 = 5;
const STDERR: u32 = 7;

type TestClient = WebSocketStream<DuplexStream>;

/// The runtime's side of a translated command.
struct FakeRuntime(DuplexStream);

impl FakeRuntime {
    async fn frame(&mut self) -> (FrameHeader, Vec<u8>) {
        let mut header = [0; HEADER_LENGTH];
        self.0.read_exact(&mut header).await.unwrap();
        let parsed = FrameHeader::parse(header).unwrap();
        let (FrameHeader::Data { length, .. } | FrameHeader::Control { length, .. }) = parsed;
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).await.unwrap();
        (parsed, payload)
    }

    /// Receives this many streams, without a response.
    async fn receive_streams(&mut self, count: usize) {
        for _ in 0..count {
            let (header, _) = self.frame().await;
            assert!(
                matches!(header, FrameHeader::Control { kind: 1, .. }),
                "{header:?}"
            );
        }
    }

    async fn accept(&mut self, ids: &[u32]) {
        for id in ids {
            // With headers, which nobody reads.
            self.control(2, &[&id.to_be_bytes()[..], &[9; 20]].concat())
                .await;
        }
    }

    async fn control(&mut self, kind: u8, payload: &[u8]) {
        let length = u8::try_from(payload.len()).unwrap();
        let header = [0x80, 3, 0, kind, 0, 0, 0, length];
        self.0.write_all(&header).await.unwrap();
        self.0.write_all(payload).await.unwrap();
    }

    async fn send(&mut self, stream: u32, bytes: &[u8]) {
        for (header, part) in spdy::data(stream, bytes) {
            self.0.write_all(&header).await.unwrap();
            self.0.write_all(part).await.unwrap();
        }
    }

    async fn end(&mut self, stream: u32) {
        self.0.write_all(&spdy::end(stream)).await.unwrap();
    }
}

async fn start(options: StreamOptions) -> (TestClient, FakeRuntime, JoinHandle<()>) {
    let (backend, runtime) = duplex(4096);
    let (client, task) = start_with(options, backend).await;
    (client, FakeRuntime(runtime), task)
}

/// With a runtime that has accepted all streams and then closed its input: only its output is left.
async fn start_without_input() -> (TestClient, FakeRuntime, JoinHandle<()>) {
    let ((input, runtime_input), (output, runtime_output)) = (duplex(4096), duplex(4096));
    let backend = tokio::io::join(output, input);
    let (mut client, task) = start_with(ALL, backend).await;
    let mut input = FakeRuntime(runtime_input);
    input.receive_streams(4).await;
    drop(input);
    let mut runtime = FakeRuntime(runtime_output);
    runtime.accept(&[ERROR, STDIN, STDOUT, STDERR]).await;
    send(&mut client, b"\x00input").await;
    // Time stands still while there is anything to do: the input has been written to no avail then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    (client, runtime, task)
}

async fn start_with<B>(options: StreamOptions, backend: B) -> (TestClient, JoinHandle<()>)
where
    B: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (far, near) = duplex(4096);
    let client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    let server = websocket::accept(near).await;
    let socket = ClientSocket::default();
    let task = tokio::spawn(translate(server, backend, options, HOUR, socket));
    (client, task)
}

async fn send(client: &mut TestClient, message: &[u8]) {
    let message = Message::Binary(Bytes::copy_from_slice(message));
    client.send(message).await.unwrap();
}

/// All messages until the end, by channel.
async fn received(client: &mut TestClient) -> [Vec<u8>; 4] {
    let mut channels = [const { Vec::new() }; 4];
    while let Some(Ok(message)) = client.next().await {
        if let Message::Binary(bytes) = message {
            channels[usize::from(bytes[0])].extend_from_slice(&bytes[1..]);
        }
    }
    channels
}

#[tokio::test]
async fn command_with_input_output_and_exit_code() {
    let (mut client, mut runtime, task) = start(ALL).await;
    send(&mut client, b"\x00input").await;
    runtime.receive_streams(4).await;
    // Before all streams are accepted, the runtime would drop the input: the ping is answered alone.
    runtime.accept(&[ERROR, STDIN, STDOUT]).await;
    runtime.control(6, &[1, 2, 3, 4]).await;
    assert_eq!(runtime.frame().await.1, [1, 2, 3, 4]);
    runtime.accept(&[STDERR]).await;
    let (header, input) = runtime.frame().await;
    let expected = FrameHeader::Data {
        stream: STDIN,
        fin: false,
        length: 5,
    };
    assert_eq!((header, input.as_slice()), (expected, &b"input"[..]));
    send(&mut client, b"\xff\x00").await;
    let (header, _) = runtime.frame().await;
    let expected = FrameHeader::Data {
        stream: STDIN,
        fin: true,
        length: 0,
    };
    assert_eq!(header, expected);

    let output = vec![b'o'; 100_000];
    let result = json!({"status": "Failure", "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}});
    let serve = async {
        runtime.send(STDOUT, &output).await;
        runtime.send(STDERR, b"err").await;
        runtime.send(99, b"unknown").await;
        runtime.send(ERROR, result.to_string().as_bytes()).await;
        runtime.end(STDOUT).await;
        // Streams are reset when the runtime closes the connection.
        for id in [STDERR, STDIN, ERROR] {
            runtime
                .control(3, &u64::from(id).rotate_left(32).to_be_bytes())
                .await;
        }
    };
    let ((), [_, stdout, stderr, status]) = tokio::join!(serve, received(&mut client));
    assert_eq!((stdout, stderr.as_slice()), (output, &b"err"[..]));
    let status: Value = serde_json::from_slice(&status).unwrap();
    assert_eq!(status["reason"], "NonZeroExitCode");
    task.await.unwrap();
}

#[tokio::test]
async fn lost_runtime_is_no_success() {
    let (mut client, mut runtime, task) = start(ALL).await;
    runtime.receive_streams(4).await;
    runtime.accept(&[ERROR, STDIN, STDOUT, STDERR]).await;
    runtime.send(STDOUT, b"partial").await;
    drop(runtime);
    let [_, stdout, _, status] = received(&mut client).await;
    assert_eq!(stdout, b"partial");
    let status: Value = serde_json::from_slice(&status).unwrap();
    assert_eq!(status["status"], "Failure");
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn output_and_exit_code_survive_a_failed_write_of_input() {
    let (mut client, mut runtime, task) = start_without_input().await;
    send(&mut client, b"\x00more").await;
    runtime.send(STDOUT, b"output").await;
    let result = json!({"status": "Failure", "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}});
    runtime.send(ERROR, result.to_string().as_bytes()).await;
    drop(runtime);
    let [_, stdout, _, status] = received(&mut client).await;
    assert_eq!(stdout, b"output");
    let status: Value = serde_json::from_slice(&status).unwrap();
    assert_eq!(status["reason"], "NonZeroExitCode");
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn command_without_input_ends_with_its_client_or_when_idle() {
    let start = tokio::time::Instant::now();
    let (client, _runtime, task) = start_without_input().await;
    drop(client);
    task.await.unwrap();
    assert!(start.elapsed() < HOUR / 2);

    let (mut client, _runtime, task) = start_without_input().await;
    let [_, _, _, status] = received(&mut client).await;
    let status: Value = serde_json::from_slice(&status).unwrap();
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("idle"), "{message}");
    task.await.unwrap();
}

#[tokio::test]
async fn what_is_not_spdy_is_an_error() {
    let (mut client, mut runtime, task) = start(ALL).await;
    runtime.receive_streams(4).await;
    runtime.0.write_all(&[0xff; 100]).await.unwrap();
    let [_, _, _, status] = received(&mut client).await;
    let status: Value = serde_json::from_slice(&status).unwrap();
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("not SPDY/3.1"), "{message}");
    task.await.unwrap();
}

#[tokio::test]
async fn command_ends_with_its_client() {
    let (client, mut runtime, task) = start(ALL).await;
    runtime.receive_streams(4).await;
    runtime.accept(&[ERROR, STDIN, STDOUT, STDERR]).await;
    drop(client);
    let mut rest = Vec::new();
    runtime.0.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn client_that_does_not_read_bounds_what_is_buffered() {
    let (client, mut runtime, task) = start(ALL).await;
    runtime.receive_streams(4).await;
    runtime.accept(&[ERROR, STDIN, STDOUT, STDERR]).await;
    let mut sent = 0;
    let flood = async {
        loop {
            runtime.send(STDOUT, &[0; 1000]).await;
            sent += 1000;
        }
    };
    assert!(tokio::time::timeout(HOUR / 2, flood).await.is_err());
    assert!(sent < 4 * CHUNK, "{sent} bytes are buffered");
    drop(client);
    drop(runtime);
    task.await.unwrap();
}

#[tokio::test]
async fn terminals_have_sizes() {
    let options = StreamOptions {
        stderr: false,
        tty: true,
        ..ALL
    };
    let (mut client, mut runtime, task) = start(options).await;
    runtime.receive_streams(4).await;
    runtime.accept(&[ERROR, STDIN, STDOUT, 7]).await;
    let size = br#"{"Width":100,"Height":40}"#;
    send(&mut client, &[&b"\x04"[..], size].concat()).await;
    let (header, payload) = runtime.frame().await;
    assert!(
        matches!(header, FrameHeader::Data { stream: 7, .. }),
        "{header:?}"
    );
    assert_eq!(payload, size);
    // A message that breaks the protocol ends the command.
    send(&mut client, b"\xff").await;
    let mut rest = Vec::new();
    runtime.0.read_to_end(&mut rest).await.unwrap();
    drop(client);
    task.await.unwrap();
}
