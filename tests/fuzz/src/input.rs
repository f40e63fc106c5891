//! Splitting of inputs into parts. The first byte of most inputs is a digit or a letter that selects a
//! parser, so that seeds are readable; inputs of services are sequences of messages.

use prost::Message;

/// The selected alternative out of `count` and the rest: `0` to `9`, then `:`, `;` and so on.
pub fn select(data: &[u8], count: u8) -> (u8, &[u8]) {
    match data.split_first() {
        Some((first, rest)) => (first.wrapping_sub(b'0') % count.max(1), rest),
        None => (0, data),
    }
}

/// Text, as far as it is valid.
pub fn text(data: &[u8]) -> &str {
    match std::str::from_utf8(data) {
        Ok(text) => text,
        Err(error) => {
            let valid = data.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(valid).unwrap_or_default()
        }
    }
}

/// Two parts, separated by a zero byte; without one the second part is empty.
pub fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    let end = data.iter().position(|byte| *byte == 0);
    let end = end.unwrap_or(data.len());
    let first = data.get(..end).unwrap_or_default();
    (first, data.get(end + 1..).unwrap_or_default())
}

/// One part of an input that is a sequence.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Selects what the content is.
    pub kind: u8,
    /// The bytes of a message, a manifest and so on.
    pub content: &'a [u8],
}

impl Frame<'_> {
    /// The selected alternative out of `count`.
    pub fn select(&self, count: u8) -> u8 {
        self.kind.wrapping_sub(b'0') % count.max(1)
    }

    /// The content as a message.
    pub fn message<M: Message + Default>(&self) -> Option<M> {
        M::decode(self.content).ok()
    }
}

/// The frames of an input: a kind, a length of two bytes (little-endian), the content. The last one
/// may be shorter than its length; one with the greatest length has all the rest.
pub fn frames(data: &[u8]) -> Vec<Frame<'_>> {
    let mut frames = Vec::new();
    let mut rest = data;
    while let [kind, low, high, content @ ..] = rest {
        let length = match u16::from_le_bytes([*low, *high]) {
            u16::MAX => content.len(),
            length => usize::from(length).min(content.len()),
        };
        let (content, after) = content.split_at(length);
        frames.push(Frame {
            kind: *kind,
            content,
        });
        rest = after;
    }
    frames
}

/// The frame of an input that [`frames`] splits. A longer content must be the last one.
pub fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
    let mut frame = vec![kind];
    frame.extend(length.to_le_bytes());
    frame.extend(content);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_split_as_they_were_joined() {
        let joined = [frame(b'0', b"one"), frame(b'a', b""), frame(b'1', b"three")].concat();
        let split = frames(&joined);
        let contents: Vec<_> = split.iter().map(|f| (f.kind, f.content)).collect();
        let expected: [(u8, &[u8]); 3] = [(b'0', b"one"), (b'a', b""), (b'1', b"three")];
        assert_eq!(contents, expected);
        assert_eq!(frames(&joined[..joined.len() - 2])[2].content, b"thr");
        assert!(frames(b"").is_empty() && frames(b"ab").is_empty());
    }

    #[test]
    fn inputs_are_selected_by_readable_characters() {
        assert_eq!(select(b"2rest", 4), (2, &b"rest"[..]));
        assert_eq!(select(b"", 4), (0, &b""[..]));
        assert_eq!(text(b"ab\xff"), "ab");
        assert_eq!(halves(b"a\0b"), (&b"a"[..], &b"b"[..]));
        assert_eq!(halves(b"a"), (&b"a"[..], &b""[..]));
    }
}
