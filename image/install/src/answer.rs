//! The answer file of an unattended installation. Text comes in, a checked answer or one sentence goes out; nothing is guessed and no
//! key is ignored.

use serde::Deserialize;
use thiserror::Error;

use crate::network::{self, Network};

/// Name of the file on the stick's `WARDEN` partition.
pub const FILE: &str = "answer.toml";
/// Where an API key is made.
const KEY: &str = "the console's page Keys (/ui/keys) makes a key and shows it once, there only";
/// Where names and certificates are set.
const TLS: &str = "the box makes its own certificate; the console's page Access (/ui/tls) takes the names it shall hold";
/// No answer file is longer, in bytes.
pub const MOST: usize = 64 * 1024;

/// What an unattended installation shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Name of this installation, chosen by the owner: a disk that carries it is not installed again.
    pub install_id: String,
    /// Install although the disk carries the same `install_id`.
    pub reinstall: bool,
    /// The one disk to install on.
    pub target: Selector,
    /// Have the firmware take our Secure Boot keys, when it is in setup mode.
    pub enroll: bool,
    /// What the new system begins with.
    pub seed: Seed,
}

/// How the disk is named. Both are compared as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// By serial number.
    Serial(String),
    /// By World Wide Name.
    Wwn(String),
}

/// Settings for the first start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seed {
    /// Host name.
    pub hostname: Option<String>,
    /// First administrator.
    pub admin: Option<Admin>,
    /// Settings of one wired port.
    pub network: Option<Network>,
}

/// The first administrator.
#[derive(Clone, PartialEq, Eq)]
pub struct Admin {
    /// User name.
    pub username: String,
    /// Argon2id hash of the password as a PHC string.
    pub password_hash: String,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Why an answer file is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Bad {
    /// Too long to be one.
    #[error("answer.toml has {0} bytes or more, at most {MOST} are read; write only the keys that are needed")]
    Long(usize),
    /// Not text.
    #[error("answer.toml is not UTF-8 text; save it as plain text")]
    Text,
    /// Not TOML, an unknown key, a value of the wrong type.
    #[error("answer.toml cannot be used: {0}; correct the file, docs/install.md lists every key")]
    Form(String),
    /// A key this version does not act on.
    #[error("answer.toml asks for [{key}], which is not set while installing; remove it: {place}")]
    NotYet {
        /// The key.
        key: &'static str,
        /// Where it is set afterwards.
        place: &'static str,
    },
    /// Network settings that cannot work.
    #[error("answer.toml: {0}")]
    Network(String),
    /// Neither or both ways to name the disk.
    #[error("answer.toml must name the disk by exactly one of target.serial and target.wwn; it has {0} of them")]
    Selector(usize),
    /// A value that is not allowed.
    #[error("answer.toml: {key} is not allowed: {rule}")]
    Value {
        /// The key.
        key: &'static str,
        /// What would be.
        rule: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    install_id: String,
    #[serde(default)]
    reinstall: bool,
    secure_boot: Option<String>,
    hostname: Option<String>,
    target: Target,
    admin: Option<AdminFile>,
    network: Option<network::Text>,
    tls: Option<toml::Value>,
    key: Option<toml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    serial: Option<String>,
    wwn: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdminFile {
    username: String,
    password_hash: String,
}

/// Reads and checks an answer file.
///
/// # Errors
/// The first rule that is broken, as a sentence with its way out.
pub fn parse(bytes: &[u8]) -> Result<Answer, Bad> {
    if bytes.len() > MOST {
        return Err(Bad::Long(bytes.len()));
    }
    // Editors of other systems like to begin a text with a byte order mark.
    let text = std::str::from_utf8(bytes).map_err(|_| Bad::Text)?.trim_start_matches('\u{feff}');
    let file: File = toml::from_str(text).map_err(|error| Bad::Form(one_line(&error.to_string())))?;
    for (key, value, place) in [("tls", &file.tls, TLS), ("key", &file.key, KEY)] {
        if value.is_some() {
            return Err(Bad::NotYet { key, place });
        }
    }
    check("install_id", &file.install_id, is_id, "use 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-'")?;
    let target = match (file.target.serial, file.target.wwn) {
        (Some(serial), None) => {
            check("target.serial", &serial, is_name, "write the serial number exactly as the installer shows it")?;
            Selector::Serial(serial)
        }
        (None, Some(wwn)) => {
            check("target.wwn", &wwn, is_name, "write the World Wide Name exactly as the installer shows it")?;
            Selector::Wwn(wwn)
        }
        (None, None) => return Err(Bad::Selector(0)),
        (Some(_), Some(_)) => return Err(Bad::Selector(2)),
    };
    let enroll = match file.secure_boot.as_deref() {
        None | Some("leave") => false,
        Some("enroll") => true,
        Some(_) => return Err(Bad::Value { key: "secure_boot", rule: "write \"enroll\" or \"leave\"" }),
    };
    if let Some(hostname) = &file.hostname {
        check("hostname", hostname, is_hostname, "use 1 to 63 of a-z, 0-9 and '-', not at either end")?;
    }
    let admin = match file.admin {
        None => None,
        Some(admin) => {
            check("admin.username", &admin.username, is_username, "use 1 to 64 of a-z, A-Z, 0-9, '.', '_', '-' and '@'")?;
            check(
                "admin.password_hash",
                &admin.password_hash,
                is_phc,
                "give the Argon2id hash as a PHC string, $argon2id$v=19$…; never the password itself",
            )?;
            Some(Admin { username: admin.username, password_hash: admin.password_hash })
        }
    };
    let network = file.network.map(network::check).transpose().map_err(|said| Bad::Network(said.trim_end_matches('.').to_owned()))?;
    let seed = Seed { hostname: file.hostname, admin, network };
    Ok(Answer { install_id: file.install_id, reinstall: file.reinstall, target, enroll, seed })
}

fn check(key: &'static str, value: &str, fits: fn(&str) -> bool, rule: &'static str) -> Result<(), Bad> {
    if fits(value) { Ok(()) } else { Err(Bad::Value { key, rule }) }
}

/// Errors of the TOML reader draw the line with an arrow below; on a screen one line is enough.
fn one_line(text: &str) -> String {
    let kept = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('|') && !line.contains(" | "));
    kept.collect::<Vec<_>>().join(", ")
}

/// Whether a text can be the name of an installation.
pub(crate) fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn is_name(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.trim() == text && !text.chars().any(char::is_control)
}

fn is_hostname(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_username(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._@-".contains(&b))
}

fn is_phc(text: &str) -> bool {
    let sound = |b: u8| b.is_ascii_alphanumeric() || b"$=,+/.-".contains(&b);
    text.len() <= 256 && text.starts_with("$argon2id$v=19$m=") && text.bytes().all(sound) && text.split('$').count() == 6 && !text.ends_with('$')
}

/// The file without its secrets, to be written back after the installation. Comments go as well: they may quote what they explain.
///
/// # Errors
/// [`Bad`] when it is no TOML (then it was never acted on).
pub fn without_secrets(text: &str) -> Result<String, Bad> {
    let form = |error: &dyn std::fmt::Display| Bad::Form(one_line(&error.to_string()));
    let mut table: toml::Table = toml::from_str(text.trim_start_matches('\u{feff}')).map_err(|e| form(&e))?;
    table.remove("admin");
    let rest = toml::to_string(&table).map_err(|e| form(&e))?;
    Ok(format!("# Used for an installation; its secrets were removed then.\n{rest}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "install_id = 'rack-7'\n[target]\nserial = 'S3Z9NX0M'\n";
    const PHC: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$WmFub3RoZXJoYXNoaGVyZQ";

    #[test]
    fn the_shortest_answer_names_an_installation_and_a_disk() {
        let answer = parse(GOOD.as_bytes()).unwrap();
        assert_eq!(answer.target, Selector::Serial("S3Z9NX0M".into()));
        assert!(!answer.reinstall && !answer.enroll && answer.seed == Seed::default());
        assert!(parse(format!("\u{feff}{GOOD}").as_bytes()).is_ok());
    }

    #[test]
    fn every_key_of_the_reference_is_taken() {
        let text = format!(
            "install_id = 'a'\nreinstall = true\nsecure_boot = 'enroll'\nhostname = 'box-1'\n[target]\nwwn = 'naa.5002538'\n\
             [admin]\nusername = 'ops'\npassword_hash = '{PHC}'\n"
        );
        let answer = parse(text.as_bytes()).unwrap();
        assert!(answer.reinstall && answer.enroll);
        assert_eq!(answer.target, Selector::Wwn("naa.5002538".into()));
        assert_eq!(answer.seed.hostname.as_deref(), Some("box-1"));
        assert_eq!(answer.seed.admin.unwrap().password_hash, PHC);
    }

    #[test]
    fn an_answer_that_is_not_understood_to_the_last_key_is_refused() {
        for bad in [
            "",
            "install_id = 'a'\n",
            "install_id = 'a'\n[target]\n",
            "install_id = 'a'\n[target]\nserial = 'x'\nwwn = 'y'\n",
            "install_id = 'a'\ntarget = 'x'\n",
            "install_id = 'a'\nreinstal = true\n[target]\nserial = 'x'\n",
            "install_id = 'a'\n[target]\nserial = 'x'\nmodel = 'y'\n",
            "install_id = 'a'\nreinstall = 'yes'\n[target]\nserial = 'x'\n",
            "install_id = ''\n[target]\nserial = 'x'\n",
            "install_id = 'a b'\n[target]\nserial = 'x'\n",
            "install_id = 'a'\n[target]\nserial = ''\n",
            "install_id = 'a'\n[target]\nserial = ' x'\n",
            "install_id = 'a'\nhostname = 'Box'\n[target]\nserial = 'x'\n",
            "install_id = 'a'\nsecure_boot = 'on'\n[target]\nserial = 'x'\n",
            "install_id = 'a'\n[target]\nserial = 'x'\n[admin]\nusername = 'ops'\npassword_hash = 'correct horse'\n",
            "install_id = 'a'\n[target]\nserial = 'x'\n[admin]\nusername = 'ops'\n",
            "install_id = 'a'\n[target]\nserial = 'x'\n[target]\nserial = 'y'\n",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert_eq!(parse(&[0xff, 0xfe]), Err(Bad::Text));
        assert_eq!(parse(&vec![b'#'; MOST + 1]), Err(Bad::Long(MOST + 1)));
    }

    #[test]
    fn an_unknown_key_is_named() {
        let said = parse(b"install_id = 'a'\nreinstal = true\n[target]\nserial = 'x'\n").unwrap_err().to_string();
        assert!(said.contains("reinstal") && said.contains("docs/install.md"), "{said}");
    }

    #[test]
    fn a_setting_that_would_be_ignored_is_refused_with_a_sentence_of_its_own() {
        for (name, more, place) in [("tls", "[tls]\nfile = 'x'\n", "/ui/tls"), ("key", "[key]\nname = 'x'\n", "/ui/keys")] {
            let said = parse(format!("{GOOD}{more}").as_bytes()).unwrap_err().to_string();
            assert!(said.contains(&format!("[{name}]")) && said.contains(place), "{said}");
        }
    }

    #[test]
    fn network_settings_are_taken_whole_or_refused_with_their_reason() {
        let answer = parse(format!("{GOOD}[network]\nport = 'enp3s0'\naddress = '192.0.2.10/24'\n").as_bytes()).unwrap();
        assert_eq!(answer.seed.network.unwrap().fixed.unwrap().prefix, 24);
        let said = parse(format!("{GOOD}[network]\nport = 'enp3s0'\naddress = '192.0.2.255/24'\n").as_bytes()).unwrap_err().to_string();
        assert!(said.contains("broadcast"), "{said}");
        let said = parse(format!("{GOOD}[network]\nport = 'enp3s0'\nvlan = 7\n").as_bytes()).unwrap_err().to_string();
        assert!(said.contains("vlan"), "{said}");
    }

    #[test]
    fn the_file_that_stays_on_the_stick_holds_no_hash() {
        let text = format!("# the password is hunter2\n{GOOD}[admin]\nusername = 'ops'\npassword_hash = '{PHC}'\n");
        let left = without_secrets(&text).unwrap();
        assert!(!left.contains("argon2") && !left.contains("hunter2"));
        assert_eq!(parse(left.as_bytes()).unwrap().install_id, "rack-7");
    }

    proptest! {
        #[test]
        fn no_file_however_broken_brings_the_reader_down(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn a_broken_letter_never_turns_one_disk_into_another(at in 0usize..GOOD.len(), byte in any::<u8>()) {
            let mut bytes = GOOD.as_bytes().to_vec();
            bytes[at] = byte;
            if let Ok(answer) = parse(&bytes) {
                // Whatever is accepted is exactly what is written there.
                let Selector::Serial(serial) = answer.target else { return Ok(()) };
                prop_assert!(String::from_utf8(bytes).unwrap().contains(&serial));
            }
        }
    }
}
