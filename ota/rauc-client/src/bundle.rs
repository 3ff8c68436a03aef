//! What RAUC says about a bundle without installing it. It checks the signature first and refuses a stranger's.

use std::collections::HashMap;
use std::path::Path;

use warden_domain::units::Bytes;

use crate::Rauc;
use crate::fault::RaucError;
use crate::install::path_text;
use crate::values::{Map, items, member, number, text, text_of};

/// How the bundle is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundleFormat {
    /// The signature covers a hash tree over the payload; the only one a box should take.
    Verity,
    /// The old one, whose signature is checked over the file once.
    Plain,
    /// Encrypted, or one that came later.
    Other(String),
}

/// One image of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// Which slots it is for: `rootfs`.
    pub slot_class: String,
    /// Its file in the bundle.
    pub filename: Option<String>,
    /// SHA-256 of the image, in hex.
    pub checksum: Option<String>,
    /// Its length.
    pub size: Option<Bytes>,
    /// Hooks that would run for it; a box takes bundles without any.
    pub hooks: Vec<String>,
}

/// A bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleInfo {
    /// The product it is for.
    pub compatible: String,
    /// Version of the system inside.
    pub version: Option<String>,
    /// SHA-256 of its manifest, in hex; what [`crate::InstallArgs::manifest_hash`] is compared with.
    pub manifest_hash: Option<String>,
    /// How it is laid out.
    pub format: BundleFormat,
    /// Name of a hook program in the bundle.
    pub hook_file: Option<String>,
    /// Hooks of the bundle as a whole.
    pub hooks: Vec<String>,
    /// Name of an install handler in the bundle.
    pub handler: Option<String>,
    /// Its images.
    pub images: Vec<ImageInfo>,
}

impl BundleInfo {
    /// True when installing it would run a program that comes with it: a hook or a handler.
    #[must_use]
    pub fn runs_code(&self) -> bool {
        self.hook_file.is_some() || !self.hooks.is_empty() || self.handler.is_some() || self.images.iter().any(|i| !i.hooks.is_empty())
    }

    fn read(map: &Map) -> Option<Self> {
        let update = map.get("update")?;
        let format = map.get("bundle").and_then(|b| member(b, "format")).and_then(text);
        let names = |value: Option<&zbus::Variant<'_>>| value.map(items).unwrap_or_default().iter().filter_map(text).collect::<Vec<_>>();
        let hooks = map.get("hooks");
        let handler = map.get("handler");
        let images = map.get("images").map(|i| items(i)).unwrap_or_default();
        Some(Self {
            compatible: member(update, "compatible").and_then(text)?,
            version: member(update, "version").and_then(text),
            manifest_hash: text_of(map, "manifest-hash"),
            format: match format.as_deref() {
                Some("verity") => BundleFormat::Verity,
                Some("plain") => BundleFormat::Plain,
                other => BundleFormat::Other(other.unwrap_or("unknown").to_owned()),
            },
            hook_file: hooks.and_then(|h| member(h, "filename")).and_then(text),
            hooks: names(hooks.and_then(|h| member(h, "hooks"))),
            handler: handler.and_then(|h| member(h, "filename")).and_then(text),
            images: images
                .iter()
                .filter_map(|image| {
                    Some(ImageInfo {
                        slot_class: member(image, "slot-class").and_then(text)?,
                        filename: member(image, "filename").and_then(text),
                        checksum: member(image, "checksum").and_then(text),
                        size: member(image, "size").and_then(number).map(Bytes),
                        hooks: names(member(image, "hooks")),
                    })
                })
                .collect(),
        })
    }
}

impl Rauc {
    /// Looks into a bundle file.
    ///
    /// # Errors
    /// RAUC does not accept its signature or cannot read it, or does not answer.
    pub async fn inspect(&self, bundle: &Path) -> Result<BundleInfo, RaucError> {
        let path = path_text(bundle)?;
        let found = self.installer.inspect_bundle(path, HashMap::new()).await;
        let map = found.map_err(|source| match source {
            zbus::Error::MethodError(name, Some(reason), _) if !name.as_str().starts_with("org.freedesktop.DBus.Error.") => {
                RaucError::Failed { reason }
            }
            other => RaucError::from_bus("look into the image")(other),
        })?;
        BundleInfo::read(&map).ok_or_else(|| RaucError::Unexpected { what: "a bundle without a product name".to_owned() })
    }
}
