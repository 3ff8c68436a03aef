//! What an issue says, as values: which sentence, with which figures and names. In English here, for API, alerts, log and local screen; the
//! pages say the same in their reader's language, from their own catalogue.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// The table of all sentences: name, blanks, English. A name and its blanks are stored; they never change their meaning.
macro_rules! sentences {
    ($($(#[$doc:meta])* $name:ident { $($blank:ident: $kind:ty),* } = $english:literal;)*) => {
        /// One sentence about what is wrong.
        #[allow(missing_docs, reason = "the fields are the blanks of the sentence")]
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "form", rename_all = "snake_case")]
        pub enum Said {
            $($(#[$doc])* $name { $($blank: $kind),* },)*
        }

        impl Said {
            /// The names of all sentences, in the order of the table.
            pub const FORMS: &'static [&'static str] = &[$(stringify!($name)),*];

            /// The name of this one.
            #[must_use]
            pub const fn form(&self) -> &'static str {
                match self { $(Self::$name { .. } => stringify!($name),)* }
            }
        }

        impl std::fmt::Display for Said {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self { $(Self::$name { $($blank),* } => write!(f, $english),)* }
            }
        }
    };
}

sentences! {
    /// A sentence that is known in English only: of an older version, or of a room whose facts have no blanks yet.
    Text { text: String } = "{text}";
    /// No room for models.
    DataDiskFull { free: Bytes, total: Bytes } = "The disk with the models is full: {free} of {total} are free. Downloads and logs fail.";
    /// Little room for models.
    DataDiskNearlyFull { free: Bytes, total: Bytes } = "The disk with the models is nearly full: {free} of {total} are free.";
    /// No writes.
    DataDiskReadOnly {} = "The disk with the models takes no writes: it is mounted read-only, as the kernel does after a disk fault.";
    /// Not mounted.
    DataDiskMissing {} = "The data partition is not mounted, so no model can be read.";
    /// A recorded disk is away.
    ModelDiskMissing { disk: String } = "{disk} is missing: models on it cannot be loaded until it is plugged in again. Nothing is put in its place.";
    /// A recorded disk is there and of no use.
    ModelDiskUnusable { disk: String, why: String } = "{disk} cannot be used: {why}";
    /// Little room for settings.
    StateDiskNearlyFull { free: Bytes, total: Bytes } = "The partition with settings and accounts has {free} of {total} left. When it is full, no change can be kept.";
    /// No writes for settings.
    StateDiskReadOnly {} = "The partition with settings and accounts takes no writes; no change can be kept.";
    /// An engine died or did not start.
    ModelFailed { model: String, why: String } = "The model {model} failed. {why}";
    /// Something is awaited.
    ModelWaiting { model: String, why: String } = "The model {model} waits. {why}";
    /// A file is gone.
    ModelFileMissing { model: String, why: String } = "The file of the model {model} cannot be used. {why}";
    /// A file is another one.
    ModelFileChanged { model: String, now: u64, before: u64 } = "The file of the model {model} has {now} bytes now; it had {before} when the model was registered.";
    /// No engine.
    EngineNotInstalled { engine: String, model: String } = "The engine {engine} is needed by {model} and cannot be used. It is not installed.";
    /// An engine that is of no use.
    EngineBroken { engine: String, model: String, why: String } = "The engine {engine} is needed by {model} and cannot be used. {why}";
    /// Cut off.
    NoNetworkAddress {} = "No network interface has an address, so nobody can reach the box over the network.";
    /// No way out.
    NoDefaultRoute { addresses: String } = "The box has {addresses} but no gateway: other networks, time servers and downloads cannot be reached.";
    /// A service failed.
    UnitFailed { unit: String } = "The system service {unit} failed.";
    /// The clock is on its own.
    TimeServiceStopped { state: String } = "The service that keeps the clock does not run ({state}); the clock drifts, and certificates and logs with it.";
    /// Nobody set the clock.
    ClockNotSynchronised {} = "No time server has set the clock since the appliance started; it shows what the machine's own clock said.";
    /// A slot was given up.
    BootFellBack { why: String } = "The box gave up one of its two systems and runs the other. {why}";
    /// An update was tried and given up.
    UpdateWentBack { version: String, why: String } = "The update to {version} was tried, and the box went back to the system before it. {why}";
    /// Anything is started.
    SecureBootOff {} = "Secure Boot is off: the firmware starts whatever lies on the disk, also a system somebody changed.";
    /// Soon over.
    CertificateEnding { days: i64 } = "The certificate of the encrypted port ends in {days} days, and no new one was made; browsers will refuse the console.";
    /// Over.
    CertificateEnded {} = "The certificate of the encrypted port has ended, and no new one was made; browsers will refuse the console.";
    /// Nobody hears.
    AlertNotDelivered { waiting: usize, tries: u32 } = "Alerts do not reach their receiver: {waiting} wait, after {tries} tries.";
    /// Nobody hears, and why.
    AlertRefused { waiting: usize, tries: u32, said: String } = "Alerts do not reach their receiver: {waiting} wait, after {tries} tries. The last try: {said}";
}

impl Said {
    /// A sentence that is known in English only.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

impl From<&str> for Said {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Said {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_stored_by_its_name_and_blanks_and_read_back_as_itself() {
        let said = Said::DataDiskNearlyFull { free: Bytes(3 << 30), total: Bytes(64 << 30) };
        let stored = serde_json::to_string(&said).unwrap();
        assert!(stored.contains("\"form\":\"data_disk_nearly_full\""), "{stored}");
        assert_eq!(serde_json::from_str::<Said>(&stored).unwrap(), said);
        assert_eq!(said.to_string(), "The disk with the models is nearly full: 3.0 GiB of 64.0 GiB are free.");
    }

    #[test]
    fn a_sentence_of_a_newer_version_is_no_sentence_here() {
        assert!(serde_json::from_str::<Said>(r#"{"form":"gremlins","where":"everywhere"}"#).is_err());
    }
}
