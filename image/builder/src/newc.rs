//! Writes the archive format that the kernel unpacks as initrd ("newc" cpio). In go names, modes and bytes; out come the bytes of
//! the archive, the same for the same input: owner root, inode numbers by position, one time for all.

/// An archive under construction.
pub(crate) struct Archive {
    bytes: Vec<u8>,
    count: u32,
    time: u32,
}

impl Archive {
    pub(crate) fn new(time: u64) -> Self {
        Self { bytes: Vec::new(), count: 0, time: u32::try_from(time).unwrap_or(u32::MAX) }
    }

    pub(crate) fn folder(&mut self, name: &str) {
        self.entry(name, 0o040_755, (0, 0), &[]);
    }

    pub(crate) fn file(&mut self, name: &str, executable: bool, content: &[u8]) {
        self.entry(name, if executable { 0o100_755 } else { 0o100_644 }, (0, 0), content);
    }

    /// A character device: the kernel opens the console before anything can mount `/dev`.
    pub(crate) fn device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name, 0o020_600, (major, minor), &[]);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.time = 0;
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.count += 1;
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        let fields = [self.count, mode, 0, 0, 1, self.time, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_finds_header_name_and_content_where_it_looks() {
        let mut archive = Archive::new(7);
        archive.file("init", true, b"hello");
        let bytes = archive.finish();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[14..22], b"000081ed");
        assert_eq!(&bytes[110..115], b"init\0");
        assert_eq!(&bytes[116..121], b"hello");
        assert!(bytes.len().is_multiple_of(4) && bytes.windows(10).any(|w| w == b"TRAILER!!!"));
    }
}
