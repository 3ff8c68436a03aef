//! Issues, alerts and the front door of a world.

use std::sync::Arc;

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind, Secret,
    alert::{AlertConfig, AlertState, Alerts, Delivery, DeliveryState, NewAlertConfig},
    change::Topic,
    clock,
    front::{Certificates, Front, FrontConfig, FrontState, PlainPort},
    ids::{AccountId, DeliveryId, IssueId},
    issue::{Dismissal, Fix, Issue, IssueBoard, Issues},
    replica::Serving,
};

use super::{ALERT_SECRET, World, earlier, not_found};

impl World {
    fn open_issue<T>(&self, id: &IssueId, change: impl FnOnce(&mut Issue) -> T) -> Result<T, Problem> {
        self.failing()?;
        self.edit(|m| {
            let issue = m.issues.iter_mut().find(|issue| issue.id == *id && issue.resolved_at.is_none());
            issue.map(change).ok_or_else(|| not_found("open issue", id.as_str()))
        })
    }
}

#[async_trait]
impl Issues for World {
    fn board(&self) -> Arc<IssueBoard> {
        let open = self.memory.lock().unwrap().issues.iter().filter(|issue| issue.resolved_at.is_none()).cloned().collect();
        Arc::new(IssueBoard { open, checked_at: Some(earlier(2)), ..IssueBoard::default() })
    }

    async fn resolved(&self, most: usize) -> Result<Vec<Issue>, Problem> {
        Ok(self.memory.lock().unwrap().issues.iter().filter(|issue| issue.resolved_at.is_some()).take(most).cloned().collect())
    }

    async fn check_now(&self) -> Result<(), Problem> {
        self.failing()
    }

    async fn dismiss(&self, by: &AccountId, id: &IssueId, reason: Option<&str>) -> Result<Issue, Problem> {
        let dismissal = Dismissal { at: clock::now(), by: by.clone(), reason: reason.map(ToOwned::to_owned) };
        self.open_issue(id, |issue| {
            issue.dismissed = Some(dismissal);
            issue.clone()
        })
    }

    async fn recall(&self, _: &AccountId, id: &IssueId) -> Result<Issue, Problem> {
        self.open_issue(id, |issue| {
            issue.dismissed = None;
            issue.clone()
        })
    }

    async fn fix(&self, _: &AccountId, id: &IssueId) -> Result<(), Problem> {
        let fix = self.open_issue(id, |issue| issue.finding.fix.clone())?;
        match fix {
            None => Err(Problem::new(ProblemKind::Conflict, "It has no fix of one click.")),
            Some(Fix::LoadModel(model)) => Serving::load(self, &model).await,
            Some(_) => Ok(()),
        }
    }
}

#[async_trait]
impl Alerts for World {
    async fn config(&self) -> Result<AlertConfig, Problem> {
        Ok(self.memory.lock().unwrap().alerts.clone())
    }

    async fn set(&self, _: &AccountId, new: NewAlertConfig) -> Result<Option<Secret<String>>, Problem> {
        self.failing()?;
        if new.enabled && !new.url.starts_with("http://") {
            return Err(Problem::new(ProblemKind::Invalid, "Alerts cannot be sent there.").hint("Give an address.").param("url"));
        }
        Ok(self.edit(|m| {
            let made = new.new_secret || (new.enabled && !m.alerts.has_secret);
            m.alerts = AlertConfig { enabled: new.enabled, url: new.url, codes: new.codes, has_secret: m.alerts.has_secret || made };
            made.then(|| Secret::new(ALERT_SECRET.to_owned()))
        }))
    }

    async fn test(&self, _: &AccountId) -> Result<DeliveryId, Problem> {
        self.failing()?;
        let id = DeliveryId::random();
        let state = DeliveryState::Waiting { next_at: clock::now() };
        let delivery = Delivery { id: id.clone(), event: "test".to_owned(), code: None, made_at: clock::now(), tries: 0, state, last_result: None };
        self.edit(|m| m.deliveries.insert(0, delivery));
        Ok(id)
    }

    async fn state(&self, most: usize) -> Result<AlertState, Problem> {
        let latest: Vec<Delivery> = self.memory.lock().unwrap().deliveries.iter().take(most).cloned().collect();
        Ok(AlertState { waiting: latest.iter().filter(|d| matches!(d.state, DeliveryState::Waiting { .. })).count(), latest })
    }
}

#[async_trait]
impl Front for World {
    fn config(&self) -> FrontConfig {
        self.memory.lock().unwrap().front.clone()
    }

    fn state(&self) -> FrontState {
        let config = Front::config(self);
        let mut names = vec!["test-box".to_owned(), "test-box.local".to_owned()];
        names.extend(config.names);
        let certificates = Certificates {
            authority_pem: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n".to_owned(),
            authority_der: vec![0x30],
            authority_fingerprint: ["A1"; 32].join(":"),
            leaf_fingerprint: ["B2"; 32].join(":"),
            names: names.clone(),
            addresses: vec!["192.168.1.20".parse().unwrap()],
            issued_at: earlier(600),
            valid_until: earlier(-86_400 * self.memory.lock().unwrap().certificate_days.unwrap_or(390) - 60),
        };
        let kept = self.memory.lock().unwrap().plain.clone();
        let plain = kept.unwrap_or(if config.plain_http { PlainPort::Open } else { PlainPort::Closed });
        FrontState { certificates: Some(certificates), names, plain }
    }

    fn is_own_name(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case("box")
    }

    async fn configure(&self, _: &AccountId, config: FrontConfig) -> Result<(), Problem> {
        if let Some(problem) = self.memory.lock().unwrap().fail_next.take() {
            return Err(problem);
        }
        self.memory.lock().unwrap().front = config;
        self.changes.publish(Topic::Front);
        Ok(())
    }
}
