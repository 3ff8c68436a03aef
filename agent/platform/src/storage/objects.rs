//! What the disk manager says is there, as plain values.
//!
//! Its object tree in, blocks and drives out. Unknown properties are passed over, missing ones are unknown. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    os::unix::ffi::OsStringExt,
    path::PathBuf,
};

use zbus::{OwnedVariant, Variant, fdo::ManagedObjects};

use super::udisks::{BLOCKS, DRIVES};

/// A block device: a disk, a partition, or something built on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// Last part of its object path, such as `vdb1`.
    pub(super) name: String,
    pub(super) device: String,
    pub(super) size: u64,
    pub(super) read_only: bool,
    /// Key of its drive; `None` for loops, mappings and arrays.
    pub(super) drive: Option<String>,
    pub(super) usage: String,
    pub(super) kind: Option<String>,
    pub(super) label: Option<String>,
    pub(super) uuid: Option<String>,
    pub(super) links: Vec<String>,
    /// Belongs to an array.
    pub(super) in_array: bool,
    /// Name of the block this is a partition of.
    pub(super) part_of: Option<String>,
    /// Kind of partition table on it.
    pub(super) table: Option<String>,
    /// Where it is mounted; `None` when it carries no file system that could be.
    pub(super) mounts: Option<Vec<PathBuf>>,
    /// It is swap space in use.
    pub(super) swapping: bool,
}

/// A drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Drive {
    pub(super) model: Option<String>,
    pub(super) vendor: Option<String>,
    pub(super) serial: Option<String>,
    pub(super) wwn: Option<String>,
    pub(super) bus: Option<String>,
    pub(super) removable: bool,
    pub(super) medium: bool,
}

/// Everything, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Objects {
    pub(super) blocks: BTreeMap<String, Block>,
    pub(super) drives: BTreeMap<String, Drive>,
}

impl Objects {
    /// Reads the object tree.
    pub(super) fn read(tree: &ManagedObjects) -> Self {
        let mut all = Self::default();
        for (path, interfaces) in tree {
            let of = |name: &str| interfaces.iter().find(|(i, _)| i.as_str() == name).map(|(_, properties)| Properties(properties));
            if let (Some(key), Some(facts)) = (path.as_str().strip_prefix(DRIVES), of("org.freedesktop.UDisks2.Drive")) {
                all.drives.insert(key.to_owned(), drive(&facts));
            }
            if let (Some(name), Some(facts)) = (path.as_str().strip_prefix(BLOCKS), of("org.freedesktop.UDisks2.Block")) {
                let part_of = of("org.freedesktop.UDisks2.Partition").and_then(|p| p.path("Table")).and_then(|t| key_of(&t, BLOCKS));
                let table = of("org.freedesktop.UDisks2.PartitionTable").and_then(|t| t.text("Type"));
                let mounts = of("org.freedesktop.UDisks2.Filesystem").map(|f| f.paths("MountPoints"));
                let swapping = of("org.freedesktop.UDisks2.Swapspace").is_some_and(|s| s.flag("Active"));
                all.blocks.insert(name.to_owned(), Block { part_of, table, mounts, swapping, ..block(name, &facts) });
            }
        }
        all
    }

    /// The blocks of a drive: the whole disk first, then its partitions by name.
    pub(super) fn of_drive<'a>(&'a self, key: &'a str) -> Vec<&'a Block> {
        let mut found: Vec<&Block> = self.blocks.values().filter(|b| b.drive.as_deref() == Some(key)).collect();
        found.sort_by_key(|b| (b.part_of.is_some(), b.name.len(), b.name.clone()));
        found
    }

    /// The whole disk of a drive.
    pub(super) fn whole<'a>(&'a self, key: &'a str) -> Option<&'a Block> {
        self.of_drive(key).into_iter().find(|b| b.part_of.is_none())
    }
}

fn drive(facts: &Properties<'_>) -> Drive {
    Drive {
        model: facts.shown("Model"),
        vendor: facts.shown("Vendor"),
        serial: facts.text("Serial"),
        wwn: facts.text("WWN"),
        bus: facts.text("ConnectionBus"),
        removable: facts.flag("Removable") || facts.flag("MediaRemovable"),
        medium: facts.flag("MediaAvailable"),
    }
}

fn block(name: &str, facts: &Properties<'_>) -> Block {
    let real = |path: Option<String>| path.filter(|p| p != "/");
    Block {
        name: name.to_owned(),
        device: facts.bytes("Device").unwrap_or_default(),
        size: facts.number("Size").unwrap_or(0),
        read_only: facts.flag("ReadOnly"),
        drive: real(facts.path("Drive")).and_then(|d| key_of(&d, DRIVES)),
        usage: facts.text("IdUsage").unwrap_or_default(),
        kind: facts.text("IdType"),
        label: facts.shown("IdLabel"),
        uuid: facts.text("IdUUID"),
        links: facts.paths("Symlinks").iter().map(|p| p.display().to_string()).collect(),
        in_array: real(facts.path("MDRaidMember")).is_some(),
        ..Block::default()
    }
}

fn key_of(path: &str, lead: &str) -> Option<String> {
    path.strip_prefix(lead).map(str::to_owned)
}

/// Properties of one interface.
struct Properties<'a>(&'a HashMap<String, OwnedVariant>);

impl Properties<'_> {
    fn get(&self, name: &str) -> Option<&Variant<'_>> {
        self.0.get(name).map(|value| &**value)
    }

    /// A text that says something.
    fn text(&self, name: &str) -> Option<String> {
        match self.get(name)? {
            Variant::Str(text) => Some(text.trim().to_owned()).filter(|t| !t.is_empty()),
            _ => None,
        }
    }

    /// A text that whoever made the disk chose, and that people read before they say yes: without letters that steer a screen or turn the
    /// ones after them around.
    fn shown(&self, name: &str) -> Option<String> {
        let steers =
            |c: char| c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        let text: String = self.text(name)?.chars().filter(|c| !steers(*c)).take(128).collect();
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Variant::Bool(true)))
    }

    fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Variant::U64(number) => Some(*number),
            _ => None,
        }
    }

    fn path(&self, name: &str) -> Option<String> {
        match self.get(name)? {
            Variant::ObjectPath(path) => Some(path.to_string()),
            _ => None,
        }
    }

    fn bytes(&self, name: &str) -> Option<String> {
        self.get(name).and_then(byte_string).map(|p| p.display().to_string())
    }

    fn paths(&self, name: &str) -> Vec<PathBuf> {
        match self.get(name) {
            Some(Variant::Array(list)) => list.iter().filter_map(byte_string).collect(),
            _ => Vec::new(),
        }
    }
}

/// A path as the disk manager sends it: bytes, with a zero at the end.
fn byte_string(value: &Variant<'_>) -> Option<PathBuf> {
    let Variant::Array(list) = value else { return None };
    let bytes: Vec<u8> = list.iter().map_while(|b| if let Variant::U8(b) = b { Some(*b).filter(|b| *b != 0) } else { None }).collect();
    Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

#[cfg(test)]
pub(super) mod tests {
    use zbus::{ObjectPath, OwnedObjectPath, names::OwnedInterfaceName};

    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        text.bytes().chain([0]).collect()
    }

    fn interface(name: &str, facts: Vec<(&str, Variant<'_>)>) -> (OwnedInterfaceName, HashMap<String, OwnedVariant>) {
        let name = OwnedInterfaceName::try_from(format!("org.freedesktop.UDisks2.{name}")).unwrap();
        (name, facts.into_iter().map(|(n, v)| (n.to_owned(), v.try_to_owned().unwrap())).collect())
    }

    #[test]
    fn a_partition_is_read_from_the_tree_with_drive_table_mounts_and_links() {
        let path = |text: &str| Variant::from(ObjectPath::try_from(text.to_owned()).unwrap());
        let tree: ManagedObjects = [
            (
                OwnedObjectPath::try_from(format!("{BLOCKS}vda4")).unwrap(),
                [
                    interface(
                        "Block",
                        vec![
                            ("Device", Variant::from(bytes("/dev/vda4"))),
                            ("Size", Variant::from(4096u64)),
                            ("Drive", path("/org/freedesktop/UDisks2/drives/VirtIO_Disk_DISK0")),
                            ("IdUsage", Variant::from("filesystem")),
                            ("IdType", Variant::from("ext4")),
                            ("IdLabel", Variant::from("")),
                            ("IdUUID", Variant::from("u-1")),
                            ("Symlinks", Variant::from(vec![bytes("/dev/disk/by-id/x"), bytes("/dev/warden/state")])),
                            ("MDRaidMember", path("/")),
                        ],
                    ),
                    interface("Partition", vec![("Table", path("/org/freedesktop/UDisks2/block_devices/vda"))]),
                    interface("Filesystem", vec![("MountPoints", Variant::from(vec![bytes("/state")]))]),
                ]
                .into(),
            ),
            (
                OwnedObjectPath::try_from(format!("{DRIVES}VirtIO_Disk_DISK0")).unwrap(),
                [interface("Drive", vec![("Serial", Variant::from("DISK0")), ("MediaAvailable", Variant::from(true))])].into(),
            ),
        ]
        .into();
        let all = Objects::read(&tree);
        let block = &all.blocks["vda4"];
        assert_eq!((block.device.as_str(), block.size, block.label.as_deref(), block.uuid.as_deref()), ("/dev/vda4", 4096, None, Some("u-1")));
        assert_eq!((block.drive.as_deref(), block.part_of.as_deref(), block.in_array), (Some("VirtIO_Disk_DISK0"), Some("vda"), false));
        assert_eq!(block.mounts, Some(vec![PathBuf::from("/state")]));
        assert!(block.links.contains(&"/dev/warden/state".to_owned()));
        assert_eq!(all.drives["VirtIO_Disk_DISK0"].serial.as_deref(), Some("DISK0"));
    }

    /// A disk `name` with drive key `KEY_<name>` and serial `S-<name>`, and its partitions.
    #[test]
    fn a_label_cannot_turn_the_question_around_that_it_is_shown_in() {
        let name = "org.freedesktop.UDisks2.Block".to_owned();
        let read = |label: &str| {
            let facts = HashMap::from([("IdLabel".to_owned(), Variant::from(label).try_to_owned().unwrap())]);
            let interfaces = HashMap::from([(OwnedInterfaceName::try_from(name.clone()).unwrap(), facts)]);
            let all = Objects::read(&HashMap::from([(OwnedObjectPath::try_from(format!("{BLOCKS}sdb1")).unwrap(), interfaces)]));
            all.blocks["sdb1"].label.clone()
        };
        assert_eq!(read("\u{202e}ksid metsys\u{1b}[2J\nOK").as_deref(), Some("ksid metsys[2JOK"));
        assert_eq!(read("\u{200b}\u{202e}"), None);
        assert_eq!(read(&"x".repeat(4096)).map(|label| label.len()), Some(128));
        assert_eq!(read("Müller 模型").as_deref(), Some("Müller 模型"));
    }

    pub(in super::super) fn plug(all: &mut Objects, name: &str, parts: &[Block]) -> String {
        let key = format!("KEY_{name}");
        let table = (!parts.is_empty()).then(|| "gpt".to_owned());
        all.drives.insert(key.clone(), Drive { serial: Some(format!("S-{name}")), model: Some("Disk".to_owned()), medium: true, ..Drive::default() });
        all.blocks.insert(
            name.to_owned(),
            Block { name: name.to_owned(), device: format!("/dev/{name}"), size: 64 << 30, drive: Some(key.clone()), table, ..Block::default() },
        );
        for (number, part) in parts.iter().enumerate() {
            let part_name = format!("{name}{}", number + 1);
            let part = Block {
                device: format!("/dev/{part_name}"),
                size: 1 << 30,
                drive: Some(key.clone()),
                part_of: Some(name.to_owned()),
                name: part_name.clone(),
                ..part.clone()
            };
            all.blocks.insert(part_name, part);
        }
        key
    }

    /// A partition with a file system.
    pub(in super::super) fn part(kind: &str, label: &str, uuid: &str, mounts: &[&str]) -> Block {
        Block {
            usage: "filesystem".to_owned(),
            kind: Some(kind.to_owned()),
            label: Some(label.to_owned()).filter(|l| !l.is_empty()),
            uuid: Some(uuid.to_owned()),
            mounts: Some(mounts.iter().map(PathBuf::from).collect()),
            ..Block::default()
        }
    }
}
