//! The one task that sends: takes the oldest alert that is due, tries it, writes down what came of it. The writing comes after the
//! receiver's answer, so a crash between the two sends it once more under the same delivery id; nothing is ever lost. An answer that
//! could not be written down (a full disk) is kept in memory, and nothing else is sent before it is.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Notify, time::timeout};
use warden_domain::{
    change::{Changes, Topic},
    clock,
    ids::DeliveryId,
};
use warden_store::{
    Store, StoreError,
    alerts::{self, DueAlert, Outcome},
};

use super::{
    pauses,
    post::{self, Message},
    settings, sign, target,
};

/// Looks at the outbox at least this often, whatever the clock did meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// What the task works with.
pub(crate) struct Sender {
    pub(crate) store: Store,
    pub(crate) changes: Changes,
    pub(crate) outbox: Arc<Notify>,
    pub(crate) version: &'static str,
    /// What the last try came to, while the store has not taken it.
    pub(crate) unnoted: Option<Tried>,
}

/// What a try came to.
#[derive(Clone)]
pub(crate) struct Tried {
    id: DeliveryId,
    outcome: Outcome,
    said: String,
}

impl Sender {
    /// For ever; dropped with the room.
    pub(crate) async fn run(mut self) {
        loop {
            match self.one().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(StoreError::Closed) => return,
                Err(error) => tracing::error!(%error, "the outbox of alerts cannot be read or written"),
            }
            let _ = timeout(self.pause().await, self.outbox.notified()).await;
        }
    }

    async fn pause(&self) -> Duration {
        let now = clock::now();
        let Ok(Some(next)) = self.store.read(move |db| alerts::next_due(db, now)).await else { return LONGEST_SLEEP };
        let ms = u64::try_from(next.as_millisecond() - now.as_millisecond()).unwrap_or(0);
        Duration::from_millis(ms.max(50)).min(LONGEST_SLEEP)
    }

    /// Tries one alert; false when none is due.
    async fn one(&mut self) -> Result<bool, StoreError> {
        self.note().await?;
        let now = clock::now();
        let found =
            self.store.read(move |db| Ok(alerts::due(db, now)?.map(|due| Ok::<_, StoreError>((due, settings::read(db)?, settings::secret(db)?)))));
        let Some(found) = found.await? else { return Ok(false) };
        let (due, config, secret) = found?;
        let (outcome, said) = match (config.enabled, target::parse(&config.url), secret) {
            (true, Ok(target), Some(secret)) => self.send(&due, &target, &secret).await,
            (false, _, _) => (Outcome::GiveUp, "Alerts were turned off.".to_owned()),
            (_, Err(problem), _) => (Outcome::GiveUp, problem.message),
            (_, _, None) => (Outcome::GiveUp, "There is no secret to sign with.".to_owned()),
        };
        tracing::info!(delivery = %due.id, event = %due.event, tries = due.tries + 1, "alert: {said}");
        self.unnoted = Some(Tried { id: due.id, outcome, said });
        self.note().await?;
        Ok(true)
    }

    /// Writes down what the last try came to.
    async fn note(&mut self) -> Result<(), StoreError> {
        let Some(Tried { id, outcome, said }) = self.unnoted.clone() else { return Ok(()) };
        self.store.write(move |tx| alerts::tried(tx, &id, outcome, &said, clock::now())).await?;
        self.unnoted = None;
        self.changes.publish(Topic::Issues);
        Ok(())
    }

    async fn send(&self, due: &DueAlert, target: &target::Target, secret: &warden_domain::Secret<String>) -> (Outcome, String) {
        let signature = match sign::signature(secret, clock::now().as_second(), due.body.as_bytes()) {
            Ok(signature) => signature,
            Err(cause) => return (Outcome::GiveUp, cause.to_string()),
        };
        let message = Message { id: due.id.as_str(), event: &due.event, signature: &signature, body: &due.body, version: self.version };
        match post::post(target, &message).await {
            Ok(status) => (Outcome::Delivered, format!("The receiver took it with status {status}.")),
            Err(cause) => match pauses::after(due.tries + 1) {
                Some(pause) => (Outcome::Again(clock::now() + pause), cause.to_string()),
                None => (Outcome::GiveUp, cause.to_string()),
            },
        }
    }
}
