//! The room as others see it: the port `Network`.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use subtle::ConstantTimeEq;
use warden_domain::{
    Problem, ProblemKind,
    network::{Begun, ChangeRequest, InterfaceConfig, LastChange, Network, NetworkDocument, NetworkPlan, Pending},
};

use super::{LAST, NetworkRoom, course::Stage};

#[async_trait]
impl Network for NetworkRoom {
    async fn document(&self) -> NetworkDocument {
        // Right after a start the end of an older change may not be written yet; a reader should not miss it.
        let _told_by_the_listing_below = tokio::time::timeout(Duration::from_secs(3), self.cleared()).await;
        let (unavailable, interfaces) = match self.seen().await {
            Ok(ports) => (None, ports.into_iter().map(|p| p.interface).collect::<Vec<_>>()),
            Err(problem) => (Some(problem.full_text()), Vec::new()),
        };
        let pending = self.under_trial().map(|trial| {
            let present = interfaces.iter().filter(|i| i.name == trial.interface).flat_map(|i| i.addresses.iter().map(|a| a.address));
            let mut at = trial.doors.fixed.clone();
            if *trial.stage.borrow() == Stage::Waiting {
                at.extend(present.filter(|ip| !trial.doors.fixed.contains(ip)));
            }
            Pending {
                interface: trial.interface.clone(),
                console_urls: at.into_iter().map(|ip| (self.console_url)(ip)).collect(),
                seconds_left: trial.deadline.saturating_duration_since(Instant::now()).as_secs(),
            }
        });
        NetworkDocument { unavailable, interfaces, pending, last: self.kept(LAST).await.ok().flatten() }
    }

    async fn plan(&self, interface: &str, wanted: &InterfaceConfig) -> Result<NetworkPlan, Problem> {
        Ok(self.checked(interface, wanted).await?.plan)
    }

    async fn change(&self, request: ChangeRequest) -> Result<Begun, Problem> {
        self.begin(request).await
    }

    async fn confirm(&self, token: &str, arrived_on: Option<IpAddr>) -> Result<LastChange, Problem> {
        let late = || {
            Problem::new(
                ProblemKind::NotFound,
                "This confirmation is not valid (any more): it was used, or its time is over and the old settings are back.",
            )
            .hint("Look at the network page and apply the change again.")
        };
        let trial = self.under_trial().ok_or_else(late)?;
        if !bool::from(trial.token.as_bytes().ct_eq(token.as_bytes())) {
            return Err(late());
        }
        // The address may answer a moment before the network service calls it usable.
        let mut stage = trial.stage.subscribe();
        let ready = stage.wait_for(|stage| *stage != Stage::Applying);
        if tokio::time::timeout(Duration::from_secs(15), ready).await.is_err() {
            return Err(Problem::new(ProblemKind::Conflict, "The port is still taking the new settings.").hint("Try again in a few seconds."));
        }
        let _turn = self.turn.lock().await;
        if *trial.stage.borrow() != Stage::Waiting || Instant::now() >= trial.deadline {
            return Err(late());
        }
        if self.lost(&trial).await {
            let last = self.forgotten(&trial).await;
            return Err(Problem::new(ProblemKind::Conflict, last.sentence));
        }
        let ports = self.seen().await?;
        let present: Vec<IpAddr> =
            ports.iter().filter(|p| p.interface.name == trial.interface).flat_map(|p| p.interface.addresses.iter().map(|a| a.address)).collect();
        if !trial.doors.open(arrived_on, &present) {
            let where_to: Vec<String> = trial.doors.fixed.iter().chain(&present).map(|ip| (self.console_url)(*ip)).collect();
            return Err(Problem::new(
                ProblemKind::Conflict,
                "The confirmation did not come in on the new address, so it does not show that the box can be reached there.",
            )
            .hint(format!("Open {} and confirm there.", where_to.first().map_or("the console at its new address", String::as_str))));
        }
        match self.keep(&trial).await {
            Ok(()) => Ok(self.finish(&trial, true, "The change was confirmed from its new address and is kept.".to_owned(), "network.confirm").await),
            Err(problem) => {
                if self.go_back(&trial).await.is_ok() {
                    let sentence = format!("{} The old settings are back.", problem.full_text());
                    self.finish(&trial, false, sentence, "network.confirm").await;
                }
                Err(problem)
            }
        }
    }

    async fn undo(&self) -> Result<LastChange, Problem> {
        let none = || Problem::new(ProblemKind::NotFound, "No network change waits for a confirmation.").hint("There is nothing to undo.");
        let _turn = self.turn.lock().await;
        let trial = self.under_trial().filter(|trial| *trial.stage.borrow() != Stage::Over).ok_or_else(none)?;
        trial.stage.send_replace(Stage::Over);
        let outcome = self.go_back(&trial).await;
        let sentence = match &outcome {
            Ok(()) => "The change was undone; the old settings are back.".to_owned(),
            Err(problem) => format!("{} The old settings come back by themselves when the time for the confirmation is over.", problem.full_text()),
        };
        Ok(self.finish(&trial, false, sentence, "network.undo").await)
    }
}
