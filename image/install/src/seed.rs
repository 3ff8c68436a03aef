//! What a new state file system begins with: the machine's id and, from the answer file, settings that the agent reads once at its
//! first start. Works on a mounted folder.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use warden_domain::{Problem, ProblemKind};

use crate::answer::Seed;
use crate::network;

/// Name of the file below the agent's state folder.
pub const FILE: &str = "seed.toml";

/// The text of the seed file; nothing when there is nothing to set.
#[must_use]
pub fn render(seed: &Seed) -> Option<String> {
    let mut table = toml::Table::new();
    if let Some(hostname) = &seed.hostname {
        table.insert("hostname".to_owned(), toml::Value::String(hostname.clone()));
    }
    if let Some(admin) = &seed.admin {
        let mut inner = toml::Table::new();
        inner.insert("username".to_owned(), toml::Value::String(admin.username.clone()));
        inner.insert("password_hash".to_owned(), toml::Value::String(admin.password_hash.clone()));
        table.insert("admin".to_owned(), toml::Value::Table(inner));
    }
    if table.is_empty() { None } else { toml::to_string(&table).ok() }
}

/// Fills the state file system mounted at `folder`. `owner` is the agent's user and group; `port` is the system's name of the port that the
/// seed's network settings mean.
///
/// # Errors
/// What the system says about a file.
pub fn fill(folder: &Path, seed: &Seed, port: Option<&str>, owner: (u32, u32)) -> Result<(), Problem> {
    let failed = |error: io::Error| {
        Problem::new(ProblemKind::SystemService, format!("Identity and settings could not be written to the new state partition: {error}."))
            .hint("Check the disk and install again.")
    };
    warden_durable::write(&folder.join("machine-id"), format!("{}\n", random_id().map_err(failed)?).as_bytes()).map_err(failed)?;
    if let (Some(network), Some(port)) = (&seed.network, port) {
        let id = random_id().map_err(failed)?;
        let uuid = format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]);
        connect(folder, &network.profile(port, &uuid), port).map_err(failed)?;
    }
    let Some(text) = render(seed) else { return Ok(()) };
    let own = folder.join("warden");
    fs::create_dir_all(&own).map_err(failed)?;
    let file = own.join(FILE);
    warden_durable::write(&file, text.as_bytes()).map_err(failed)?;
    for (path, mode) in [(&file, 0o600), (&own, 0o700)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
        chown(path, Some(owner.0), Some(owner.1)).map_err(failed)?;
    }
    warden_durable::sync_folder(folder).map_err(failed)
}

/// Leaves a profile for the network service, which reads only those that nobody else can read.
fn connect(folder: &Path, profile: &str, port: &str) -> io::Result<()> {
    let at = folder.join(network::FOLDER);
    fs::create_dir_all(&at)?;
    for above in [Some(at.as_path()), at.parent()].into_iter().flatten() {
        fs::set_permissions(above, fs::Permissions::from_mode(0o700))?;
    }
    let file = at.join(format!("warden-{port}.nmconnection"));
    warden_durable::write_with_mode(&file, profile.as_bytes(), 0o600)
}

/// Sixteen random bytes in the form of a random UUID, as every machine id has it, in hex.
fn random_id() -> io::Result<String> {
    let mut id = [0u8; 16];
    getrandom::fill(&mut id).map_err(|error| io::Error::other(error.to_string()))?;
    id[6] = (id[6] & 0x0f) | 0x40;
    id[8] = (id[8] & 0x3f) | 0x80;
    Ok(hex::encode(id))
}

/// User and group of an account in a password file.
#[must_use]
pub fn account(passwd: &str, name: &str) -> Option<(u32, u32)> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Admin;

    fn me() -> (u32, u32) {
        use std::os::unix::fs::MetadataExt;
        let meta = tempfile::tempdir().unwrap().path().metadata().unwrap();
        (meta.uid(), meta.gid())
    }

    #[test]
    fn every_machine_gets_an_id_of_its_own() {
        let ids = [(); 2].map(|()| {
            let folder = tempfile::tempdir().unwrap();
            fill(folder.path(), &Seed::default(), None, me()).unwrap();
            assert!(!folder.path().join("warden").exists(), "nothing to set, no file");
            fs::read_to_string(folder.path().join("machine-id")).unwrap()
        });
        assert_ne!(ids[0], ids[1]);
        assert_eq!(ids[0].trim().len(), 32);
    }

    #[test]
    fn the_seed_is_for_the_agent_s_eyes_only() {
        let folder = tempfile::tempdir().unwrap();
        let admin = Admin { username: "ops".into(), password_hash: "$argon2id$x".into() };
        fill(folder.path(), &Seed { hostname: Some("box".into()), admin: Some(admin), network: None }, None, me()).unwrap();
        let file = folder.path().join("warden").join(FILE);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains("hostname = \"box\"") && text.contains("[admin]") && text.contains("$argon2id$x"));
    }

    #[test]
    fn network_settings_become_a_profile_that_only_the_system_reads() {
        let folder = tempfile::tempdir().unwrap();
        let text = toml::from_str("port = 'eth0'\naddress = '192.0.2.10/24'").unwrap();
        let network = Some(network::check(text).unwrap());
        fill(folder.path(), &Seed { network, ..Seed::default() }, Some("eth0"), me()).unwrap();
        let file = folder.path().join("network/connections/warden-eth0.nmconnection");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(file.parent().unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert!(fs::read_to_string(file).unwrap().contains("address1=192.0.2.10/24"));
        assert!(!folder.path().join("warden").exists(), "the agent has nothing to do with it");
    }

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let passwd = "warden-console:x:701:701::/:\nwarden:x:700:702::/:\n";
        assert_eq!(account(passwd, "warden"), Some((700, 702)));
        assert_eq!(account(passwd, "ward"), None);
    }
}
