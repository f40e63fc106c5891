//! Many clients at once who do what each of them may.

use futures::future::join_all;
use polylet_e2e::ok;
use polylet_harness::Node;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::time::timeout;

use crate::requests::{LIMIT, head, open};

/// More than a user may have inotify instances.
const FOLLOWERS: usize = 200;

/// Many clients follow one log, and each sees what is written.
pub(crate) async fn followers(node: &Node) {
    let path = head("/containerLogs/default/story-node/main?follow=true&tailLines=1");
    let follow = (0..FOLLOWERS).map(|_| async {
        let (stream, _) = open(node, &path).await;
        let mut lines = BufReader::new(stream).lines();
        let mut seen = 0;
        let work = async {
            while seen < 5 {
                let line = ok(lines.next_line().await).expect("the log goes on");
                seen += usize::from(line.contains("later"));
            }
            lines
        };
        timeout(LIMIT, work).await.expect("five lines")
    });
    // All of them are there at once.
    let open = join_all(follow).await;
    assert_eq!(open.len(), FOLLOWERS);
}

/// The head of a request for a stream.
pub(crate) fn upgrade(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
    )
}

/// 100 commands at once, each of which has its output.
pub(crate) async fn commands(node: &Node) {
    let path = "/exec/default/web-node/server?command=echo&command=the-output&output=1&error=1";
    let run = (0..100).map(|_| async move {
        let (mut stream, first) = open(node, &upgrade(path)).await;
        let mut all = vec![first];
        let limited = timeout(3 * LIMIT, stream.read_to_end(&mut all)).await;
        let text = String::from_utf8_lossy(&all).into_owned();
        assert!(limited.is_ok(), "the stream does not end: {text}");
        text
    });
    let outputs = join_all(run).await;
    let complete = outputs.iter().filter(|text| text.contains("the-output"));
    let complete = complete.count();
    println!("  {complete} of {} commands ran", outputs.len());
    let refused = outputs.iter().filter(|text| text.contains(" 429 ")).count();
    assert_eq!(complete + refused, outputs.len(), "{:?}", outputs.first());
    assert!(complete > 0);
}
