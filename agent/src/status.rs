//! What the local screen shows: one small document, made on request from the ports.
//!
//! Pure assembly; whoever can open the local socket stands at the box (file permissions), so the claim code may be in it.

use std::{net::IpAddr, sync::Arc};

use serde::Serialize;
use warden_domain::{
    access::Accounts,
    front::Front,
    issue::{IssueCode, Issues, Severity},
    model::{Registry, StateWord},
    recovery::Recovery,
    replica::Serving,
    update::{UpdatePhase, UpdateView, Updates},
};

/// The document; the shape is shared with `warden-console`.
#[derive(Debug, Serialize)]
pub struct LocalStatus {
    name: String,
    version: &'static str,
    addresses: Vec<IpAddr>,
    console_urls: Vec<String>,
    /// SHA-256 of the box's own certificate authority; `null` where the console is not encrypted.
    fingerprint: Option<String>,
    claim_code: Option<String>,
    reset_code: Option<String>,
    admins: Vec<String>,
    /// How far an update is, or why the last one did not work.
    update: Option<String>,
    health: &'static str,
    sentences: Vec<String>,
    models: Vec<LocalModel>,
}

/// One model line of the local screen.
#[derive(Debug, Serialize)]
pub struct LocalModel {
    name: String,
    state: &'static str,
}

/// Where the facts come from.
#[derive(Clone)]
pub struct StatusSource {
    /// For the claim code.
    pub accounts: Arc<dyn Accounts>,
    /// For the code of an open password reset.
    pub recovery: Arc<dyn Recovery>,
    /// What the system calls the box.
    pub box_name: Arc<dyn Fn() -> String + Send + Sync>,
    /// For the models' names.
    pub registry: Arc<dyn Registry>,
    /// For their states.
    pub serving: Arc<dyn Serving>,
    /// For the fingerprint.
    pub front: Arc<dyn Front>,
    /// Whether the console is encrypted.
    pub encrypted: bool,
    /// For what is wrong.
    pub issues: Arc<dyn Issues>,
    /// Port the console answers on.
    pub port: u16,
    /// True when only loopback is bound; no other address is then shown.
    pub loopback_only: bool,
    /// Version of the agent.
    pub version: &'static str,
    /// Updates.
    pub updates: Arc<dyn Updates>,
}

impl StatusSource {
    /// Gathers the document. A part that cannot be read becomes a sentence, never an invented value.
    pub async fn read(&self) -> LocalStatus {
        let mut sentences = Vec::new();
        let claim_code = match self.accounts.claim_code().await {
            Ok(code) => code.map(|code| code.expose().clone()),
            Err(problem) => {
                sentences.push(problem.full_text());
                None
            }
        };
        let reset_code = self.recovery.reset_code().await.map(|code| code.expose().clone());
        let admins = if reset_code.is_some() { self.recovery.admin_names().await.unwrap_or_default() } else { Vec::new() };
        let mut models = Vec::new();
        match self.registry.list().await {
            Ok(list) => {
                let states = self.serving.states();
                for model in list {
                    let state = states.get(&model.id);
                    let word = state.map_or(StateWord::Stopped, |s| s.state);
                    models.push(LocalModel { name: model.config.served_name, state: word.as_str() });
                }
            }
            Err(problem) => sentences.push(problem.full_text()),
        }
        let addresses = if self.loopback_only { vec![IpAddr::from([127, 0, 0, 1])] } else { own_addresses() };
        // Warnings are for the pages: whoever stands at the screen reads what does not work.
        let board = self.issues.board();
        let errors = board.open.iter().filter(|issue| issue.needs_somebody() && issue.finding.code.severity() == Severity::Error);
        sentences.extend(errors.map(|issue| issue.finding.said.to_string()));
        let told = board.open.iter().any(|issue| issue.finding.code == IssueCode::NoNetworkAddress);
        if addresses.is_empty() && !told {
            sentences.push("No network address yet. Check the cable and the DHCP server.".into());
        }
        LocalStatus {
            name: (self.box_name)(),
            version: self.version,
            console_urls: addresses.iter().map(|ip| url(*ip, self.port, self.encrypted)).collect(),
            fingerprint: self.front.state().certificates.map(|certificates| certificates.authority_fingerprint),
            addresses,
            claim_code,
            reset_code,
            admins,
            update: update(&self.updates.view().await),
            health: if sentences.is_empty() { "ok" } else { "degraded" },
            sentences,
            models,
        }
    }
}

/// Where an update stands, for somebody at the screen; nothing when there is nothing to say.
fn update(view: &UpdateView) -> Option<String> {
    let version = view.attempt.as_ref().map_or("", |attempt| attempt.version.as_str());
    let share = view.progress.filter(|p| p.total > 0).map(|p| format!(" ({} %)", p.done.saturating_mul(100) / p.total)).unwrap_or_default();
    let fault = view.fault.as_ref().map(|fault| fault.sentence.clone());
    match view.phase {
        UpdatePhase::Available | UpdatePhase::Downloading => Some(format!("version {version} is being fetched{share}.")),
        UpdatePhase::Installing => Some(format!("version {version} is being written to the other slot{share}. Do not switch the machine off.")),
        UpdatePhase::Staged => Some(format!("version {version} is installed and is tried at the next restart.")),
        UpdatePhase::Trial => Some(format!("version {version} is on trial.")),
        UpdatePhase::Verified => fault.or_else(|| Some(format!("version {version} was checked and waits to be installed."))),
        UpdatePhase::RolledBack => view.went_back.as_ref().map(|reason| format!("version {version} was left again. {}", reason.sentence)),
        UpdatePhase::Idle | UpdatePhase::Confirmed if view.progress.is_some() => Some(format!("a bundle is being read and checked{share}.")),
        UpdatePhase::Idle | UpdatePhase::Confirmed => fault,
    }
}

/// The console's URL at an address. The port that a browser takes by itself is left out.
#[must_use]
pub fn url(ip: IpAddr, port: u16, encrypted: bool) -> String {
    let host = match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    match (encrypted, port) {
        (true, 443) => format!("https://{host}/ui/"),
        (true, _) => format!("https://{host}:{port}/ui/"),
        (false, _) => format!("http://{host}:{port}/ui/"),
    }
}

/// Addresses of this host that others can use: no loopback, no link-local.
#[must_use]
pub fn own_addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let mut found: Vec<IpAddr> = interfaces
        .filter_map(|interface| {
            let address = interface.address?;
            let ip = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => IpAddr::from(v4.ip()),
                (_, Some(v6)) => IpAddr::from(v6.ip()),
                _ => return None,
            };
            let link_local = match ip {
                IpAddr::V4(ip) => ip.is_link_local(),
                IpAddr::V6(ip) => (ip.segments()[0] & 0xffc0) == 0xfe80,
            };
            (!ip.is_loopback() && !link_local).then_some(ip)
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// The host's name, or `lm-warden` when it has none.
#[must_use]
pub fn host_name() -> String {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).filter(|name| !name.is_empty()).unwrap_or_else(|| "lm-warden".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_console_url_can_be_typed_into_a_browser() {
        assert_eq!(url("fd00::1".parse().unwrap(), 443, true), "https://[fd00::1]/ui/");
        assert_eq!(url("10.0.2.15".parse().unwrap(), 8080, false), "http://10.0.2.15:8080/ui/");
    }
}
