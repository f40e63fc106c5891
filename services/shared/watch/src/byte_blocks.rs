//! Byte strings that are kept for a while, many in one allocation.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of a block. A longer string has one of its own.
const BLOCK: usize = 16 << 10;

/// Makes byte strings of which neighbours share an allocation, which is freed with the last of them. Each by
/// itself would keep the rest of its page after a burst. For strings that are dropped in about the order in
/// which they were made: any of them keeps its block.
#[derive(Debug, Default)]
pub struct ByteBlocks {
    /// Room for the next ones.
    block: BytesMut,
}

impl ByteBlocks {
    /// A string of `length` bytes, which `write` appends.
    pub fn store(&mut self, length: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
        if self.block.capacity() < length {
            self.block = BytesMut::with_capacity(length.max(BLOCK));
        }
        write(&mut self.block);
        self.block.split().freeze()
    }

    /// A copy of a string.
    pub fn copy(&mut self, bytes: &[u8]) -> Bytes {
        self.store(bytes.len(), |block| block.put_slice(bytes))
    }

    /// Gives up the room that is left, when nothing is kept any longer.
    pub fn clear(&mut self) {
        self.block = BytesMut::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_any_length_come_back() {
        let mut blocks = ByteBlocks::default();
        let lengths = [0, 10, BLOCK - 100, 200, BLOCK * 3, 0, 5];
        let texts: Vec<_> = (b'a'..)
            .zip(lengths)
            .map(|(byte, length)| vec![byte; length])
            .collect();
        let stored: Vec<Bytes> = texts.iter().map(|text| blocks.copy(text)).collect();
        assert_eq!(stored, texts);
    }

    #[test]
    fn short_strings_share_a_block() {
        let mut blocks = ByteBlocks::default();
        let stored: Vec<Bytes> = (0..100).map(|_| blocks.copy(&[b'x'; 100])).collect();
        let ends = |bytes: &Bytes| {
            (
                bytes.as_ptr() as usize,
                bytes.as_ptr() as usize + bytes.len(),
            )
        };
        let mut pairs = stored.iter().zip(stored.iter().skip(1));
        assert!(pairs.all(|(one, next)| ends(one).1 == ends(next).0));
    }
}
