//! Whether the firmware checks what it starts.

use std::path::PathBuf;

use async_trait::async_trait;
use warden_domain::issue::{Check, Finding, IssueCode, Looked, Said};

use super::{Appliance, not_the_appliance, off_thread};
use crate::facts::boot;

fn decide(on: Option<bool>) -> Looked {
    match on {
        None => Looked::NotChecked("The firmware of this machine does not tell whether Secure Boot is on.".to_owned()),
        Some(true) => Looked::Seen(Vec::new()),
        Some(false) => Looked::Seen(vec![Finding {
            code: IssueCode::SecureBootOff,
            subject: "firmware".to_owned(),
            said: Said::SecureBootOff {},
            hint:
                "Turn it on in the firmware's setup, with the keys the installer offers. Dismiss this issue if the machine stands in a locked room."
                    .to_owned(),
            fix: None,
        }]),
    }
}

/// Reads the firmware's variable.
pub(super) struct SecureBoot {
    pub(super) appliance: Appliance,
    /// The variable as a file.
    pub(super) variable: PathBuf,
}

#[async_trait]
impl Check for SecureBoot {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::SecureBootOff]
    }

    async fn look(&self) -> Looked {
        if self.appliance == Appliance::No {
            return not_the_appliance();
        }
        match off_thread("The firmware's variables", {
            let variable = self.variable.clone();
            move || boot::secure_boot(&variable)
        })
        .await
        {
            Ok(on) => decide(on),
            Err(because) => Looked::NotChecked(because),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_firmware_that_does_not_tell_is_neither_fine_nor_an_issue() {
        assert!(matches!(decide(None), Looked::NotChecked(_)));
        assert_eq!(decide(Some(true)), Looked::Seen(Vec::new()));
        assert!(matches!(decide(Some(false)), Looked::Seen(found) if found.len() == 1));
    }

    #[tokio::test]
    async fn the_firmwares_own_variable_decides() {
        let folder = tempfile::tempdir().unwrap();
        let variable = folder.path().join("SecureBoot");
        let check = SecureBoot { appliance: Appliance::Yes, variable: variable.clone() };
        assert!(matches!(check.look().await, Looked::NotChecked(_)), "no variable");
        // As the kernel shows it: four bytes of attributes, then the value.
        std::fs::write(&variable, [6, 0, 0, 0, 0]).unwrap();
        assert!(matches!(check.look().await, Looked::Seen(found) if found[0].code == IssueCode::SecureBootOff));
        std::fs::write(&variable, [6, 0, 0, 0, 1]).unwrap();
        assert_eq!(check.look().await, Looked::Seen(Vec::new()));
    }
}
