//! Installing a bundle: listen first, then call, then follow until it is over.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::timeout;
use zbus::fdo::PropertiesProxy;
use zbus::{OwnedVariant, Variant};

use crate::Rauc;
use crate::fault::RaucError;
use crate::proxy::SERVICE;

/// How long the end signal may lag behind the idle state.
const LAG: Duration = Duration::from_secs(2);

/// What is handed to RAUC besides the file. There is no way here to skip its product or version check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstallArgs {
    /// The manifest must have this SHA-256 (hex): a second lock beside RAUC's signature check. It is compared before the install begins, and
    /// handed to RAUC to be compared again where its version can (1.13 cannot).
    pub manifest_hash: Option<String>,
    /// A name of ours for this install; RAUC keeps it with the slot.
    pub transaction_id: Option<String>,
}

/// How far an install is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// 0 to 100; it may stand still for long while the image is written.
    pub percent: u8,
    /// RAUC's words for the present step.
    pub message: String,
    /// How deep in RAUC's tree of steps.
    pub depth: i32,
}

impl Rauc {
    /// Installs a bundle file into the slot that does not run, and returns when it is over. The caller has closed its own handle of the file.
    /// `stall` is how long nothing may move. Dropping the future does not stop RAUC; [`Rauc::busy`] tells when it is over.
    ///
    /// # Errors
    /// RAUC is busy, the manifest is another one, RAUC refuses or fails, goes away, or does not move for `stall`.
    pub async fn install(
        &self,
        bundle: &Path,
        args: &InstallArgs,
        stall: Duration,
        mut progress: impl FnMut(Progress) + Send,
    ) -> Result<(), RaucError> {
        let path = path_text(bundle)?;
        if self.busy().await? {
            return Err(RaucError::Busy);
        }
        if let Some(expected) = &args.manifest_hash {
            let found = self.inspect(bundle).await?.manifest_hash;
            if found.as_ref() != Some(expected) {
                return Err(RaucError::OtherManifest { expected: expected.clone(), found: found.unwrap_or_else(|| "none".to_owned()) });
            }
        }
        let bus = self.installer.inner().connection();
        let follow = || RaucError::from_bus("let its progress be followed");
        let properties = PropertiesProxy::builder(bus).destination(SERVICE).path("/").build().await.map_err(follow())?;
        let mut changes = properties.receive_properties_changed().await.map_err(follow())?;
        let mut ends = self.installer.receive_completed().await.map_err(follow())?;
        let mut owners = self.installer.inner().receive_owner_changed().await.map_err(follow())?;

        self.begin(path, args).await?;

        // It may be over already; then the end signal is in the stream, and the idle state only shortens the wait for it.
        let mut patience = if self.busy().await? { stall } else { LAG.min(stall) };
        loop {
            tokio::select! {
                biased;
                change = changes.next() => {
                    let Some(change) = change else { return Err(RaucError::Gone) };
                    if let Ok(args) = change.args() {
                        for (name, value) in args.changed_properties() {
                            if let Some(step) = (*name == "Progress").then(|| read_progress(value)).flatten() {
                                progress(step);
                            }
                        }
                    }
                }
                end = ends.next() => {
                    let result = end.and_then(|signal| signal.args().ok().map(|a| *a.result()));
                    return self.verdict(result).await;
                }
                owner = owners.next() => {
                    if owner.flatten().is_none() {
                        return Err(RaucError::Gone);
                    }
                }
                () = tokio::time::sleep(patience) => {
                    let busy = timeout(stall, self.busy()).await.map_err(|_| RaucError::Stalled(stall))??;
                    return if busy { Err(RaucError::Stalled(stall)) } else { self.verdict(None).await };
                }
            }
            if patience < stall && self.busy().await? {
                patience = stall;
            }
        }
    }

    async fn begin(&self, path: &str, args: &InstallArgs) -> Result<(), RaucError> {
        let options = |with_hash: bool| {
            let mut options: HashMap<&str, Variant<'_>> = HashMap::new();
            if let Some(hash) = args.manifest_hash.as_ref().filter(|_| with_hash) {
                options.insert("require-manifest-hash", Variant::from(hash.as_str()));
            }
            if let Some(id) = &args.transaction_id {
                options.insert("transaction-id", Variant::from(id.as_str()));
            }
            options
        };
        let begun = match self.installer.install_bundle(path, options(true)).await {
            Err(zbus::Error::MethodError(_, Some(text), _)) if text.contains("Unsupported key: require-manifest-hash") => {
                self.installer.install_bundle(path, options(false)).await
            }
            other => other,
        };
        begun.map_err(RaucError::from_bus("begin the install"))
    }

    /// Reads how it ended: by the signal's number, or by the last error alone when there was no signal.
    async fn verdict(&self, result: Option<i32>) -> Result<(), RaucError> {
        let reason = self.installer.last_error().await.map_err(RaucError::from_bus("say how the install ended"))?;
        match result {
            Some(0) => Ok(()),
            None if reason.is_empty() => Ok(()),
            _ if reason.is_empty() => Err(RaucError::Failed { reason: "it gave no reason".to_owned() }),
            _ => Err(RaucError::Failed { reason }),
        }
    }

    /// How far the present or last install is; for a screen that opens in the middle.
    ///
    /// # Errors
    /// The service does not answer.
    pub async fn progress(&self) -> Result<Progress, RaucError> {
        let (percent, message, depth) = self.installer.progress().await.map_err(RaucError::from_bus("say how far it is"))?;
        Ok(Progress { percent: clamp(percent), message, depth })
    }

    /// The last error, as RAUC says it; `None` when the last install went well.
    ///
    /// # Errors
    /// The service does not answer.
    pub async fn last_error(&self) -> Result<Option<String>, RaucError> {
        let text = self.installer.last_error().await.map_err(RaucError::from_bus("say its last error"))?;
        Ok(Some(text).filter(|t| !t.is_empty()))
    }
}

/// RAUC takes paths as text.
pub(crate) fn path_text(path: &Path) -> Result<&str, RaucError> {
    path.to_str().ok_or_else(|| RaucError::Unexpected { what: format!("the path {} is not plain text", path.display()) })
}

fn read_progress(value: &Variant<'_>) -> Option<Progress> {
    let owned = OwnedVariant::try_from(value.try_clone().ok()?).ok()?;
    let (percent, message, depth) = <(i32, String, i32)>::try_from(Variant::from(owned)).ok()?;
    Some(Progress { percent: clamp(percent), message, depth })
}

fn clamp(percent: i32) -> u8 {
    u8::try_from(percent.clamp(0, 100)).unwrap_or(0)
}
