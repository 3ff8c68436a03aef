//! Where things are: the project, the cache outside of it, the outputs. Found from the current folder, never from build-time paths.

use std::path::{Path, PathBuf};

use crate::cli::{Flavour, Profile};
use crate::fault::{Done, Fault};
use crate::files;
use crate::recipe::Recipe;

/// The places of one build and its recipe.
pub(crate) struct Workshop {
    pub(crate) project: PathBuf,
    pub(crate) cache: PathBuf,
    pub(crate) recipe: Recipe,
}

impl Workshop {
    /// Looks upward from the current folder for the project; the cache comes from `WARDEN_CACHE` or the home folder.
    pub(crate) fn open() -> Done<Self> {
        let here = std::env::current_dir().map_err(Fault::io("cannot tell the current folder", "."))?;
        let project = here
            .ancestors()
            .find(|dir| dir.join("image/recipe.toml").is_file())
            .ok_or_else(|| Fault::refused(here.display().to_string(), "this is not inside the project", "change to the checkout and run it again"))?;
        let cache = match (std::env::var_os("WARDEN_CACHE"), std::env::var_os("HOME")) {
            (Some(dir), _) => PathBuf::from(dir),
            (None, Some(home)) => PathBuf::from(home).join(".cache/lm-warden"),
            (None, None) => return Err(Fault::refused("cache folder", "neither WARDEN_CACHE nor HOME is set", "set WARDEN_CACHE")),
        };
        files::make_dir(&cache)?;
        let cache = cache.canonicalize().map_err(Fault::io("cannot resolve the cache folder", &cache))?;
        let recipe = Recipe::parse(&files::read(&project.join("image/recipe.toml"))?)?;
        Ok(Self { project: project.to_owned(), cache, recipe })
    }

    /// A file of the project's `image` folder.
    pub(crate) fn image(&self, name: &str) -> PathBuf {
        self.project.join("image").join(name)
    }

    /// Cargo's output folder.
    pub(crate) fn target(&self) -> PathBuf {
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.project.join("target"), |dir| self.project.join(dir))
    }

    /// The output folder of a flavour; what is built for hardware does not take the place of what guests boot.
    pub(crate) fn out(&self, flavour: Flavour, profile: Profile) -> PathBuf {
        let more = if profile == Profile::Hardware { "-hardware" } else { "" };
        self.project.join("target/image").join(format!("{}{more}", flavour.name()))
    }

    /// The output folder of engine packs.
    pub(crate) fn packs(&self) -> PathBuf {
        self.project.join("target/image/packs")
    }

    /// Signing keys of development builds.
    pub(crate) fn keys(&self) -> PathBuf {
        self.cache.join("keys")
    }

    /// The version of what is being built.
    pub(crate) fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}

/// Refuses to work without the rights that chroot and file ownership need.
pub(crate) fn need_root() -> Done {
    let uid = Path::new("/proc/self").metadata().map(|m| std::os::unix::fs::MetadataExt::uid(&m)).unwrap_or(u32::MAX);
    if uid == 0 {
        return Ok(());
    }
    Err(Fault::refused("image build", "it makes root-owned files and runs tools by chroot", "run it as root"))
}
