/// A tar archive writer (ustar format) for images; requires no external tool.
#[derive(Clone, Default)]
pub struct Tar {
    bytes: Vec<u8>,
}

const BLOCK: usize = 512;

impl Tar {
    /// Adds a directory; `name` ends in a slash.
    pub fn dir(&mut self, name: &str, mode: u32) {
        self.header(name, b'5', mode, 0, "");
    }

    /// Adds a file.
    pub fn file(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.header(name, b'0', mode, content.len(), "");
        self.bytes.extend_from_slice(content);
        let over = content.len() % BLOCK;
        if over != 0 {
            self.bytes.resize(self.bytes.len() + BLOCK - over, 0);
        }
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, name: &str, target: &str) {
        self.header(name, b'2', 0o777, 0, target);
    }

    /// The archive with its end-of-archive marker.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }

    /// Owner root and time zero everywhere: equal input gives equal archives.
    fn header(&mut self, name: &str, kind: u8, mode: u32, size: usize, target: &str) {
        let mut block = [0_u8; BLOCK];
        put(&mut block, 0, name.as_bytes());
        put(&mut block, 100, format!("{mode:07o}\0").as_bytes());
        put(&mut block, 108, b"0000000\0");
        put(&mut block, 116, b"0000000\0");
        put(&mut block, 124, format!("{size:011o}\0").as_bytes());
        put(&mut block, 136, b"00000000000\0");
        put(&mut block, 148, b"        ");
        put(&mut block, 156, &[kind]);
        put(&mut block, 157, target.as_bytes());
        put(&mut block, 257, b"ustar\x0000");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        put(&mut block, 148, format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&block);
    }
}

fn put(block: &mut [u8; BLOCK], at: usize, what: &[u8]) {
    block[at..at + what.len()].copy_from_slice(what);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn tar_reads_what_we_write() {
        let mut tar = Tar::default();
        tar.dir("bin/", 0o755);
        tar.file("bin/a", 0o644, b"hello");
        tar.file("full", 0o600, &[7; BLOCK]);
        tar.link("bin/b", "a");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("t.tar");
        std::fs::write(&file, tar.finish()).unwrap();
        let ran = Command::new("tar")
            .args([
                "-C",
                dir.path().to_str().unwrap(),
                "-xf",
                file.to_str().unwrap(),
            ])
            .stderr(Stdio::inherit())
            .status()
            .unwrap();
        assert!(ran.success());
        assert_eq!(std::fs::read(dir.path().join("bin/b")).unwrap(), b"hello");
        assert_eq!(std::fs::read(dir.path().join("full")).unwrap(), [7; BLOCK]);
    }
}
