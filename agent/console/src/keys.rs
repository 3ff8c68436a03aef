//! Bytes of a terminal become keys. A serial line knows letters, digits and the return key; a keyboard also sends arrow keys as short
//! sequences that begin with the escape byte.
//!
//! Pure: bytes in, keys out; what is half a sequence waits for its other half or for a pause.

/// What somebody pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Up, or `k`-like keys of no terminal: arrows only.
    Up,
    /// Down.
    Down,
    /// The return key.
    Enter,
    /// The escape key, or the interrupt of a serial terminal.
    Back,
    /// The key that takes the last letter away.
    Erase,
    /// Draw everything anew (Ctrl-L).
    Redraw,
    /// A letter, digit or sign.
    Letter(char),
}

/// Collects bytes.
#[derive(Debug, Default)]
pub struct Keys {
    held: Vec<u8>,
    /// The last byte was a carriage return: a line feed behind it is the same key.
    returned: bool,
}

impl Keys {
    /// Takes bytes as they came.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        for byte in bytes {
            self.take(*byte, &mut keys);
        }
        keys
    }

    /// Nothing came for a moment: an escape byte that waits was the key of that name.
    pub fn pause(&mut self) -> Option<Key> {
        let waited = !self.held.is_empty();
        self.held.clear();
        waited.then_some(Key::Back)
    }

    /// Whether half a sequence waits.
    #[must_use]
    pub fn waiting(&self) -> bool {
        !self.held.is_empty()
    }

    fn take(&mut self, byte: u8, keys: &mut Vec<Key>) {
        let returned = std::mem::take(&mut self.returned);
        match self.held.as_slice() {
            [] => match byte {
                0x1b => self.held.push(byte),
                b'\r' => {
                    self.returned = true;
                    keys.push(Key::Enter);
                }
                b'\n' if returned => {}
                b'\n' => keys.push(Key::Enter),
                0x7f | 0x08 => keys.push(Key::Erase),
                0x03 | 0x04 => keys.push(Key::Back),
                0x0c => keys.push(Key::Redraw),
                0x20..=0x7e => keys.push(Key::Letter(char::from(byte))),
                _ => {}
            },
            [0x1b] => match byte {
                b'[' | b'O' => self.held.push(byte),
                0x1b => keys.push(Key::Back),
                other => {
                    self.held.clear();
                    keys.push(Key::Back);
                    self.take(other, keys);
                }
            },
            // Parameters of a sequence, then the byte that ends it. Sequences that mean nothing here are swallowed whole.
            _ if self.held.len() < 12 && !(0x40..=0x7e).contains(&byte) => self.held.push(byte),
            _ => {
                let plain = self.held.len() == 2;
                self.held.clear();
                match byte {
                    b'A' if plain => keys.push(Key::Up),
                    b'B' if plain => keys.push(Key::Down),
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn arrow_keys_arrive_whole_also_when_the_line_cuts_them() {
        let mut keys = Keys::default();
        assert_eq!(keys.feed(b"\x1b[A\x1bOB"), [Key::Up, Key::Down]);
        assert_eq!(keys.feed(b"\x1b"), []);
        assert_eq!(keys.feed(b"["), []);
        assert_eq!(keys.feed(b"B"), [Key::Down]);
        assert_eq!(keys.feed(b"\x1b[5~x"), [Key::Letter('x')]);
        assert_eq!(keys.feed(b"\x1b[1;5A"), []);
    }

    #[test]
    fn a_lone_escape_is_the_key_once_nothing_follows() {
        let mut keys = Keys::default();
        assert_eq!(keys.feed(b"\x1b"), []);
        assert!(keys.waiting());
        assert_eq!(keys.pause(), Some(Key::Back));
        assert_eq!(keys.pause(), None);
        assert_eq!(keys.feed(b"\x1b1"), [Key::Back, Key::Letter('1')]);
    }

    #[test]
    fn every_way_to_end_a_line_is_one_key() {
        let mut keys = Keys::default();
        assert_eq!(keys.feed(b"\r\n\n\r"), [Key::Enter, Key::Enter, Key::Enter]);
    }

    proptest! {
        #[test]
        fn noise_on_the_line_never_hangs_the_keys(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut keys = Keys::default();
            keys.feed(&bytes);
            keys.pause();
            prop_assert_eq!(keys.feed(b"m"), [Key::Letter('m')]);
        }
    }
}
