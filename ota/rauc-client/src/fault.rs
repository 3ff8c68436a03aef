//! What can go wrong between us and RAUC.

use std::time::Duration;

use thiserror::Error;

/// A fault; each text names cause, subject and way out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RaucError {
    /// The bus or the service did not answer, or refused the call.
    #[error("the update service did not {doing}: {source}. Try again; if it stays so, restart the box.")]
    Bus {
        /// What was asked.
        doing: &'static str,
        /// What the bus said.
        source: zbus::Error,
    },
    /// This program may not do that.
    #[error("this program is not allowed to {doing} in the update service. Only the health gate and root may mark slots; nothing was changed.")]
    Denied {
        /// What was asked.
        doing: &'static str,
    },
    /// RAUC refused the bundle or failed to install it.
    #[error("the update service refused the image: {reason}. The running system was not touched; fetch the image again, or take another one.")]
    Failed {
        /// RAUC's own words.
        reason: String,
    },
    /// The bundle is not the one the signed metadata describes.
    #[error("the image's manifest is {found}, and the signed release names {expected}. Nothing was written; fetch the image again.")]
    OtherManifest {
        /// As the release says.
        expected: String,
        /// As the bundle says.
        found: String,
    },
    /// Somebody else installs.
    #[error("the update service is already installing. Wait until it is done, then try again.")]
    Busy,
    /// The service went away in the middle.
    #[error("the update service stopped in the middle of the install. The running system was not touched; try again.")]
    Gone,
    /// Nothing moved for too long.
    #[error("the install has not moved for {} s. Restart the box and try again; the running system was not touched.", .0.as_secs())]
    Stalled(Duration),
    /// The answer makes no sense.
    #[error("the update service answered something unexpected: {what}. This is a fault of the software; report it.")]
    Unexpected {
        /// What was missing or odd.
        what: String,
    },
}

impl RaucError {
    pub(crate) fn from_bus(doing: &'static str) -> impl FnOnce(zbus::Error) -> Self {
        move |source| {
            let denied = match &source {
                zbus::Error::MethodError(name, ..) => name.as_str() == "org.freedesktop.DBus.Error.AccessDenied",
                zbus::Error::FDO(inner) => matches!(**inner, zbus::fdo::Error::AccessDenied(_)),
                _ => false,
            };
            if denied { Self::Denied { doing } } else { Self::Bus { doing, source } }
        }
    }
}
