//! Which activation of an engine pack is acceptable, and the unit settings it comes to. Arguments of a call go in; a checked
//! [`Activation`] or a refusal comes out. Pure: never touches a file.

use std::collections::BTreeSet;
use std::fmt::Write;

use sha2::{Digest, Sha256};
use thiserror::Error;

/// Why a call is refused. Each text names cause, subject and way out.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// The replica's id is not of the accepted form.
    #[error("the replica's id {0:?} must be 1 to 64 of a-z, 0-9 and '-'")]
    BadReplica(String),
    /// The digest is not one.
    #[error("the pack's digest {0:?} must be 64 hexadecimal digits in lower case")]
    BadDigest(String),
    /// There is no such pack on the data partition.
    #[error("there is no engine pack {0} in the pack folder, or it is not a plain file; bring it there first")]
    NoSuchPack(String),
    /// The pack was withdrawn.
    #[error("the engine pack {0} was withdrawn by its maker; install a newer one")]
    Revoked(String),
    /// A GPU is not named by its number.
    #[error("the GPU {0:?} must be a number of 1 to 3 digits, one of at most 64")]
    BadGpu(String),
    /// What is to be reset has no such name.
    #[error("there is no reset {0:?}; it is network, admin or factory")]
    BadScope(String),
    /// The id is not one of a reset.
    #[error("{0:?} is not the id of a reset: 32 hexadecimal digits in lower case")]
    BadReset(String),
    /// The caller is not one for whom this verb is.
    #[error("{0} is not for this user; the local screen and the agent may")]
    NotYours(&'static str),
    /// The reset is offered where somebody stands at the machine only.
    #[error("the {0} reset can only be asked for at the local screen of the machine")]
    ScreenOnly(&'static str),
    /// The start of the machine has not looked at resets, so that none could be followed.
    #[error(
        "no reset can be taken now: the state partition is not in use, or this start did not finish its own check; restart the machine and try again"
    )]
    NoResets,
    /// An update is being installed.
    #[error("an update is being written to the other system slot; wait until it is done")]
    Installing,
    /// The other slot may not be started.
    #[error("there is no other system to go back to: the other slot was never confirmed, failed, or was given up for an update; install one")]
    NoOtherSystem,
    /// The running slot is not known to be good, or RAUC does not know which slots there are.
    #[error("the running system was never found good, so the other one must stay the way out; wait until it was, then try again")]
    NothingGoodLeft,
    /// A file or the system manager did not do what was needed.
    #[error("{0}")]
    Io(String),
}

/// Most GPUs of one replica.
const MOST_GPUS: usize = 64;

/// A checked wish to run one replica from one pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activation {
    replica: String,
    digest: String,
    gpus: BTreeSet<u16>,
    memory_max: u64,
}

impl Activation {
    /// Checks the arguments of a call. `memory_max` is in bytes; 0 means no limit.
    ///
    /// # Errors
    /// The first argument that is not of its form.
    pub fn check(replica: &str, digest: &str, gpus: &[String], memory_max: u64) -> Result<Self, Refusal> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !(1..=64).contains(&replica.len()) || !replica.bytes().all(plain) {
            return Err(Refusal::BadReplica(shown(replica)));
        }
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if digest.len() != 64 || !digest.bytes().all(hex) {
            return Err(Refusal::BadDigest(shown(digest)));
        }
        if let Some(beyond) = gpus.get(MOST_GPUS) {
            return Err(Refusal::BadGpu(shown(beyond)));
        }
        let gpus = gpus.iter().map(|gpu| gpu_number(gpu)).collect::<Result<_, _>>()?;
        Ok(Self { replica: replica.to_owned(), digest: digest.to_owned(), gpus, memory_max })
    }

    /// The replica's id.
    #[must_use]
    pub fn replica(&self) -> &str {
        &self.replica
    }

    /// The pack's digest.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The name of the folder that adds settings to the replica's unit.
    #[must_use]
    pub fn drop_in_folder(&self) -> String {
        format!("warden-engine@{}.service.d", self.replica)
    }

    /// The name of the replica's own dynamic user. Names of users are short, ids of replicas may be long; and without a name of its
    /// own every replica would run as the one user that the system manager names after the template.
    #[must_use]
    pub fn user(&self) -> String {
        format!("we-{}", hex::encode(&Sha256::digest(self.replica.as_bytes())[..10]))
    }

    /// The settings this activation adds to the replica's unit: its user, its memory limit and its GPU nodes, nothing else.
    #[must_use]
    pub fn drop_in(&self) -> String {
        let mut text = String::from("# Written by the helper for this replica.\n[Service]\n");
        let _ = writeln!(text, "User={}", self.user());
        if self.memory_max > 0 {
            let _ = writeln!(text, "MemoryMax={}", self.memory_max);
        }
        let mut nodes: Vec<String> = self.gpus.iter().map(|gpu| format!("/dev/nvidia{gpu}")).collect();
        if !nodes.is_empty() {
            nodes.extend(["/dev/nvidiactl".to_owned(), "/dev/nvidia-uvm".to_owned()]);
        }
        for node in nodes {
            // The unit has a device folder of its own; a node must be shown there and be allowed.
            let _ = writeln!(text, "DeviceAllow={node} rw\nBindPaths=-{node}");
        }
        text
    }
}

/// Whether a list of withdrawn packs, one digest a line, names this one. Lines that begin with # are remarks.
#[must_use]
pub fn is_revoked(list: &str, digest: &str) -> bool {
    list.lines().map(str::trim).filter(|line| !line.starts_with('#')).any(|line| line.eq_ignore_ascii_case(digest))
}

fn gpu_number(gpu: &str) -> Result<u16, Refusal> {
    let digits = (1..=3).contains(&gpu.len()) && gpu.bytes().all(|byte| byte.is_ascii_digit());
    gpu.parse().ok().filter(|_| digits).ok_or_else(|| Refusal::BadGpu(shown(gpu)))
}

/// A caller's text, short enough for a message.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn check(replica: &str, digest: &str, gpus: &[&str]) -> Result<Activation, Refusal> {
        Activation::check(replica, digest, &gpus.iter().map(ToString::to_string).collect::<Vec<_>>(), 0)
    }

    #[test]
    fn a_replica_id_cannot_name_another_unit_or_folder() {
        for replica in ["", ".", "..", "a/b", "A", "a.service", "a\n[Service]", "a@b", "a b", "é", &"x".repeat(65)] {
            assert!(matches!(check(replica, DIGEST, &[]), Err(Refusal::BadReplica(_))), "{replica:?}");
        }
        assert!(check(&"x".repeat(64), DIGEST, &[]).is_ok());
    }

    #[test]
    fn a_digest_cannot_leave_the_pack_folder() {
        for digest in ["", "../../etc/shadow", &DIGEST[1..], &DIGEST.to_uppercase(), &format!("{DIGEST}0"), &DIGEST.replace('0', "/")] {
            assert!(matches!(check("a", digest, &[]), Err(Refusal::BadDigest(_))), "{digest:?}");
        }
    }

    #[test]
    fn a_gpu_cannot_name_another_device() {
        for gpu in ["", "0000", "-1", "+1", "sda", "0 rw\nDeviceAllow=/dev/sda", "1\n"] {
            assert!(matches!(check("a", DIGEST, &[gpu]), Err(Refusal::BadGpu(_))), "{gpu:?}");
        }
    }

    #[test]
    fn a_list_of_gpus_has_an_end() {
        assert!(check("a", DIGEST, &["7"; MOST_GPUS]).is_ok());
        assert!(matches!(check("a", DIGEST, &["7"; MOST_GPUS + 1]), Err(Refusal::BadGpu(_))));
    }

    #[test]
    fn an_engine_without_gpus_gets_no_device() {
        let text = Activation::check("a", DIGEST, &[], 0).unwrap().drop_in();
        assert!(!text.contains("DeviceAllow") && !text.contains("MemoryMax"));
    }

    #[test]
    fn an_engine_gets_its_gpus_once_and_its_memory_limit() {
        let gpus = ["3", "0", "03"].map(str::to_owned);
        let text = Activation::check("a", DIGEST, &gpus, 1 << 30).unwrap().drop_in();
        assert!(text.contains("MemoryMax=1073741824\n"));
        assert_eq!(text.matches("DeviceAllow=/dev/nvidia3 rw\n").count(), 1);
        assert!(text.contains("DeviceAllow=/dev/nvidia0 rw\n") && text.contains("DeviceAllow=/dev/nvidiactl rw\n"));
    }

    #[test]
    fn two_replicas_never_share_a_user() {
        let user = |replica: &str| Activation::check(replica, DIGEST, &[], 0).unwrap().user();
        assert_ne!(user("a-0"), user("a-1"));
        assert!(user(&"x".repeat(64)).len() <= 31);
        assert!(Activation::check("a-0", DIGEST, &[], 0).unwrap().drop_in().contains(&format!("\nUser={}\n", user("a-0"))));
    }

    #[test]
    fn a_withdrawn_pack_is_recognised() {
        let list = format!("# withdrawn\n\n{}\n", DIGEST.to_uppercase());
        assert!(is_revoked(&list, DIGEST));
        assert!(!is_revoked(&list, &DIGEST.replace('0', "1")));
        assert!(!is_revoked("", DIGEST));
    }
}
