//! How memory is given back.
//!
//! The C library takes large pieces from the system one by one and gives them back, until the first of them is freed: from then on it keeps
//! pieces of that size for ever. One password hash (19 MiB) or one large body would stay with the process.

use nix::libc;

/// Pieces from this size on are taken from the system and given back one by one, in bytes.
const LARGE: libc::c_int = 1 << 20;

/// To be called once, before other threads are there.
pub(crate) fn give_back_large_pieces() {
    // SAFETY: it changes a number that the allocator of the C library keeps; no other thread runs yet.
    #[allow(unsafe_code, reason = "there is no safe call for it")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}
