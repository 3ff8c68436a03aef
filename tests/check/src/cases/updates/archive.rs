//! Bundles that no release tool would write: a good one taken apart, changed, and put together again.
//!
//! In: the bytes of a good bundle. Out: the bytes of a bad one. The archive format is written here by hand, so that what is refused is not
//! what the product's own writer cannot say.

/// Bytes of a header and of a block.
const BLOCK: usize = 512;

/// One member as it stands in the archive.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its header.
    pub header: [u8; BLOCK],
    /// Its content, without the gap behind it.
    pub content: Vec<u8>,
}

impl Member {
    /// A plain member.
    #[must_use]
    pub fn plain(name: &str, content: &[u8]) -> Self {
        Self::of(name, b'0', "", content)
    }

    /// A link or device: something of this type, with this target.
    #[must_use]
    pub fn of(name: &str, kind: u8, link: &str, content: &[u8]) -> Self {
        let mut header = [0; BLOCK];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(100, "0000644\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{:011o}\0", content.len()));
        put(136, "00000000000\0");
        put(157, link);
        put(257, "ustar  \0");
        header[156] = kind;
        let mut member = Self { header, content: content.to_vec() };
        member.sum();
        member
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        let end = self.header[..100].iter().position(|b| *b == 0).unwrap_or(100);
        String::from_utf8_lossy(&self.header[..end]).into_owned()
    }

    /// Writes the header's checksum.
    pub fn sum(&mut self) {
        self.header[148..156].fill(b' ');
        let sum: u32 = self.header.iter().map(|b| u32::from(*b)).sum();
        self.header[148..156].copy_from_slice(format!("{sum:07o}\0").as_bytes());
    }
}

/// Takes a good bundle apart.
#[must_use]
pub fn members(bundle: &[u8]) -> Vec<Member> {
    let mut all = Vec::new();
    let mut rest = bundle;
    while let Some((head, after)) = rest.split_first_chunk::<BLOCK>() {
        if *head == [0; BLOCK] {
            break;
        }
        let size = std::str::from_utf8(&head[124..135]).ok().and_then(|text| usize::from_str_radix(text.trim_matches(['\0', ' ']), 8).ok());
        let size = size.unwrap_or(0);
        all.push(Member { header: *head, content: after.get(..size).unwrap_or_default().to_vec() });
        rest = after.get(size.next_multiple_of(BLOCK)..).unwrap_or_default();
    }
    all
}

/// Puts a bundle together.
#[must_use]
pub fn bundle(members: &[Member]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for member in members {
        bytes.extend_from_slice(&member.header);
        bytes.extend_from_slice(&member.content);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    }
    bytes.resize(bytes.len() + 2 * BLOCK, 0);
    bytes
}

/// The bad twins of a good bundle: what is wrong, its bytes, and words of which the refusal must hold each.
#[must_use]
pub fn twins(good: &[u8]) -> Vec<(&'static str, Vec<u8>, &'static [&'static str])> {
    let parts = members(good);
    let with = |extra: Member| {
        let mut all = parts.clone();
        all.push(extra);
        bundle(&all)
    };
    let instead = |extra: Member| {
        let mut all = parts.clone();
        if let Some(last) = all.last_mut() {
            *last = extra;
        }
        bundle(&all)
    };
    let target = parts.last().map(Member::name).unwrap_or_default();
    let mut first_is_path = parts.clone();
    first_is_path.insert(1, Member::plain("../../etc/passwd", b"root::0:0::/:/bin/sh\n"));
    let mut behind = good.to_vec();
    behind.extend_from_slice(b"more");
    vec![
        ("a symbolic link in the place of the image", instead(Member::of(&target, b'2', "/dev/vda", b"")), &["symbolic link"]),
        ("a hard link in the place of the image", instead(Member::of(&target, b'1', "/state/warden/config.db", b"")), &["hard link"]),
        ("a device", with(Member::of(&target, b'4', "", b"")), &["device"]),
        ("a folder", with(Member::of("targets", b'5', "", b"")), &["folder"]),
        ("a long name by an extension", with(Member::of("././@LongLink", b'L', "", b"metadata/x\0")), &["extension"]),
        ("a path that climbs out", bundle(&first_is_path), &["does not belong"]),
        ("an absolute path", with(Member::plain("/etc/passwd", b"x")), &["does not belong"]),
        ("a deep path", with(Member::plain("targets/a/b/c", b"x")), &["does not belong"]),
        ("a member that no release lists", with(Member::plain(&format!("targets/{}", "0".repeat(64)), b"x")), &["not listed"]),
        ("the image twice", with(parts.last().cloned().unwrap_or_else(|| Member::plain("x", b""))), &["twice"]),
        ("something behind the end", behind, &["after its end"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_taken_apart_and_put_together_is_the_same() {
        let good = bundle(&[Member::plain("metadata/root.1.json", b"{}"), Member::plain("targets/x", &[7; 700])]);
        assert_eq!(bundle(&members(&good)), good);
        assert_eq!(members(&good)[1].name(), "targets/x");
        assert_eq!(good.len() % BLOCK, 0);
    }

    #[test]
    fn every_bad_twin_differs_from_the_good_one() {
        let good = bundle(&[Member::plain("metadata/root.1.json", b"{}"), Member::plain("targets/x", b"y")]);
        assert!(twins(&good).iter().all(|(_, bytes, words)| *bytes != good && !words.is_empty()));
    }
}
