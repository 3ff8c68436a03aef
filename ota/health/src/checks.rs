//! The checks: what must hold in a system that shall stay. Facts and the record of the old system go in, one outcome per check comes out.
//!
//! The order is that of causes: the first failed check is the reason that is told.

use std::net::IpAddr;

use warden_update_record::{Before, Check, CheckOutcome, Reason, Slot};

use crate::facts::{Console, Facts, Told, Unit};

/// Units whose failure makes a system useless or unsafe.
pub const CRITICAL: [&str; 12] = [
    "NetworkManager.service",
    "dbus.service",
    "polkit.service",
    "rauc.service",
    "systemd-journald.service",
    "systemd-logind.service",
    "systemd-resolved.service",
    "systemd-udevd.service",
    "udisks2.service",
    "warden-boot-rule.service",
    "warden-dirs@state.service",
    "warden-firewall.service",
];
/// Names somebody must own, and names that must at least be startable.
const OWNED: [&str; 3] = ["org.freedesktop.systemd1", "org.freedesktop.login1", "org.freedesktop.NetworkManager"];
const REACHABLE: [&str; 6] = [
    "de.pengutronix.rauc",
    "org.freedesktop.PolicyKit1",
    "org.freedesktop.UDisks2",
    "org.freedesktop.hostname1",
    "org.freedesktop.resolve1",
    "org.lmwarden.Helper1",
];

/// What the system is compared with.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The version in the running root.
    pub version: String,
    /// How the box was before; nothing when no update led here.
    pub before: Option<Before>,
}

impl Expected {
    /// The console's port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.before.as_ref().map_or(443, |before| before.console_port)
    }

    /// The slot that was to be tried.
    #[must_use]
    pub fn slot(&self) -> Option<Slot> {
        self.before.as_ref().map(|before| before.target_slot)
    }

    /// Which addresses the console is asked at: those it had, of those the box has now; without such all it has, and without any the
    /// machine itself.
    #[must_use]
    pub fn ask_at(&self, have: &[IpAddr]) -> Vec<IpAddr> {
        const MOST: usize = 8;
        let had: Vec<IpAddr> = self.before.iter().flat_map(|before| &before.management_addresses).copied().collect();
        let both: Vec<IpAddr> = have.iter().copied().filter(|address| had.contains(address)).take(MOST).collect();
        if !both.is_empty() {
            return both;
        }
        if have.is_empty() { vec![IpAddr::from([127, 0, 0, 1])] } else { have.iter().copied().take(MOST).collect() }
    }
}

/// Judges one look.
#[must_use]
pub fn judge(expected: &Expected, facts: &Facts) -> Vec<Check> {
    let before = expected.before.as_ref();
    vec![
        slot(expected.slot(), facts.slot),
        verity(&facts.verity),
        state(&facts.state),
        data(before.and_then(|b| b.data_uuid.as_deref()), &facts.data),
        agent(&facts.agent),
        units(&facts.failed),
        bus(facts),
        address(before.map_or(&[], |b| b.management_addresses.as_slice()), &facts.addresses),
        console(&expected.version, &facts.consoles),
        page(&facts.consoles),
        gpus(before, facts),
        models(before, facts),
    ]
}

/// The first failed check as a reason.
#[must_use]
pub fn reason(checks: &[Check]) -> Option<Reason> {
    let failed = checks.iter().find(|check| check.outcome == CheckOutcome::Failed)?;
    Some(Reason { code: failed.code.clone(), sentence: failed.sentence.clone() })
}

fn passed(code: &str, sentence: impl Into<String>) -> Check {
    Check { code: code.to_owned(), outcome: CheckOutcome::Passed, sentence: sentence.into() }
}

fn failed(code: &str, sentence: impl Into<String>) -> Check {
    Check { code: code.to_owned(), outcome: CheckOutcome::Failed, sentence: sentence.into() }
}

fn skipped(code: &str, sentence: impl Into<String>) -> Check {
    Check { code: code.to_owned(), outcome: CheckOutcome::NotApplicable, sentence: sentence.into() }
}

fn slot(wanted: Option<Slot>, runs: Option<Slot>) -> Check {
    match (wanted, runs) {
        (_, None) => failed("slot", "The kernel command line names no slot."),
        (Some(wanted), Some(runs)) if wanted != runs => failed("slot", format!("Slot {runs} runs, and slot {wanted} was to be tried.")),
        (_, Some(runs)) => passed("slot", format!("Slot {runs} runs.")),
    }
}

fn verity(fact: &Told<bool>) -> Check {
    match fact {
        Ok(true) => passed("verity", "The root file system is verified."),
        Ok(false) => failed("verity", "The root file system is not verified."),
        Err(cause) => failed("verity", format!("Whether the root file system is verified cannot be told: {cause}.")),
    }
}

fn state(fact: &Told<bool>) -> Check {
    match fact {
        Ok(true) => passed("state", "The state partition is mounted."),
        Ok(false) => failed("state", "The state partition is not mounted."),
        Err(cause) => failed("state", format!("Whether the state partition is mounted cannot be told: {cause}.")),
    }
}

fn data(had: Option<&str>, fact: &Told<Option<String>>) -> Check {
    let Some(had) = had else { return skipped("data", "No data volume was mounted before the update.") };
    match fact {
        Ok(Some(has)) if has == had => passed("data", "The data volume is mounted."),
        Ok(Some(has)) => failed("data", format!("Another data volume ({has}) is mounted than before the update ({had}).")),
        Ok(None) => failed("data", format!("The data volume {had} was mounted before the update and is not now.")),
        Err(cause) => failed("data", format!("Whether the data volume is mounted cannot be told: {cause}.")),
    }
}

fn agent(fact: &Told<Unit>) -> Check {
    match fact {
        Ok(unit) if unit.state == "active" => passed("agent", "The agent runs."),
        Ok(unit) if unit.restarts > 0 => {
            failed("agent", format!("The agent does not stay up (it is {}): it was started again {} times.", unit.state, unit.restarts))
        }
        Ok(unit) => failed("agent", format!("The agent does not run: its unit is {}.", unit.state)),
        Err(cause) => failed("agent", format!("Whether the agent runs cannot be told: {cause}.")),
    }
}

fn units(fact: &Told<Vec<String>>) -> Check {
    match fact {
        Ok(all) => {
            let critical: Vec<&str> = all.iter().map(String::as_str).filter(|unit| CRITICAL.contains(unit)).collect();
            if critical.is_empty() {
                passed("units", "No unit that the box needs has failed.")
            } else {
                failed("units", format!("Units that the box needs have failed: {}.", critical.join(", ")))
            }
        }
        Err(cause) => failed("units", format!("Which units failed cannot be told: {cause}.")),
    }
}

fn bus(facts: &Facts) -> Check {
    match &facts.bus {
        Ok(names) => {
            let owned = |name: &&str| names.owned.iter().any(|known| known == name);
            let startable = |name: &&str| names.activatable.iter().any(|known| known == name);
            let missing: Vec<&str> =
                OWNED.into_iter().filter(|name| !owned(name)).chain(REACHABLE.into_iter().filter(|name| !owned(name) && !startable(name))).collect();
            if missing.is_empty() {
                passed("bus", "All services of the system bus are there.")
            } else {
                failed("bus", format!("Services of the system bus are missing: {}.", missing.join(", ")))
            }
        }
        Err(cause) => failed("bus", format!("The system bus does not answer: {cause}.")),
    }
}

fn address(had: &[IpAddr], fact: &Told<Vec<IpAddr>>) -> Check {
    if had.is_empty() {
        return skipped("address", "The box had no address before the update.");
    }
    let list = |addresses: &[IpAddr]| addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
    match fact {
        Ok(have) if have.iter().any(|address| had.contains(address)) => passed("address", format!("The box has the addresses {}.", list(have))),
        Ok(have) if have.is_empty() => failed("address", format!("The box had the addresses {} before the update and has none now.", list(had))),
        Ok(have) => failed("address", format!("The box had the addresses {} before the update and has {} now.", list(had), list(have))),
        Err(cause) => failed("address", format!("The addresses of the box cannot be told: {cause}.")),
    }
}

fn console(wanted: &str, consoles: &[Console]) -> Check {
    if consoles.is_empty() {
        return failed("console", "The console was asked nowhere.");
    }
    for Console { address, version, .. } in consoles {
        match version {
            Ok(version) if version == wanted => {}
            Ok(version) => return failed("console", format!("The console at {address} says it is version {version}, and this is {wanted}.")),
            Err(cause) => return failed("console", format!("The console does not answer at {address}: {cause}.")),
        }
    }
    passed("console", format!("The console answers as version {wanted}."))
}

fn page(consoles: &[Console]) -> Check {
    for Console { address, form, .. } in consoles {
        match form {
            Ok(true) => {}
            Ok(false) => return failed("page", format!("The console at {address} shows no form to sign in.")),
            Err(cause) => return failed("page", format!("The console at {address} shows no page: {cause}.")),
        }
    }
    passed("page", "The console shows its page.")
}

fn gpus(before: Option<&Before>, facts: &Facts) -> Check {
    let Some((had, driver)) = before.and_then(|b| Some((b.gpu_count?, b.gpu_driver.as_deref()))).filter(|(count, _)| *count > 0) else {
        return skipped("gpus", "No GPU was known before the update.");
    };
    match &facts.gpus {
        Ok(now) if now.count < had => failed("gpus", format!("{had} GPUs were there before the update, and {} are now.", now.count)),
        // An update may bring another driver; one that is not loaded at all drives nothing.
        Ok(now) if driver.is_some() && now.driver.is_none() => failed("gpus", "The driver of the GPUs is not loaded."),
        Ok(now) => passed("gpus", format!("{} GPUs are there, driver {}.", now.count, now.driver.as_deref().unwrap_or("unknown"))),
        Err(cause) => failed("gpus", format!("The GPUs cannot be counted: {cause}.")),
    }
}

fn models(before: Option<&Before>, facts: &Facts) -> Check {
    let served: Vec<&str> = before.iter().flat_map(|b| &b.served_models).map(|model| model.name.as_str()).collect();
    if served.is_empty() {
        return skipped("models", "No model served before the update.");
    }
    for name in &served {
        match facts.models.iter().find(|model| model.name == *name).map(|model| &model.token) {
            Some(Ok(())) => {}
            Some(Err(cause)) => return failed("models", format!("The model {name} served before the update and gives no token: {cause}.")),
            None => return failed("models", format!("The model {name} served before the update and was not asked.")),
        }
    }
    passed("models", format!("Each model that served before gives a token: {}.", served.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{BusNames, Gpus, Model};
    use warden_update_record::{ServedModel, TransactionId};

    fn before() -> Before {
        Before {
            transaction: TransactionId::from("t"),
            slot: Slot::A,
            version: "1.0.0".into(),
            target_slot: Slot::B,
            target_version: "1.1.0".into(),
            management_addresses: vec![IpAddr::from([10, 0, 2, 15])],
            console_port: 443,
            data_uuid: Some("u-1".into()),
            served_models: vec![ServedModel { name: "tiny".into(), ready_after_s: None }],
            gpu_count: Some(2),
            gpu_driver: Some("550.163".into()),
            at: None,
        }
    }

    fn expected() -> Expected {
        Expected { version: "1.1.0".into(), before: Some(before()) }
    }

    fn healthy() -> Facts {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Facts {
            slot: Some(Slot::B),
            verity: Ok(true),
            state: Ok(true),
            data: Ok(Some("u-1".into())),
            agent: Ok(Unit { state: "active".into(), restarts: 0 }),
            failed: Ok(vec!["fstrim.service".into()]),
            bus: Ok(BusNames { owned: names(&OWNED), activatable: names(&REACHABLE) }),
            addresses: Ok(vec![IpAddr::from([10, 0, 2, 15])]),
            consoles: vec![Console { address: IpAddr::from([10, 0, 2, 15]), version: Ok("1.1.0".into()), form: Ok(true) }],
            gpus: Ok(Gpus { count: 2, driver: Some("560.1".into()) }),
            models: vec![Model { name: "tiny".into(), token: Ok(()) }],
        }
    }

    #[test]
    fn a_healthy_system_passes_every_check() {
        let checks = judge(&expected(), &healthy());
        assert!(checks.iter().all(|check| check.outcome == CheckOutcome::Passed), "{checks:?}");
        assert_eq!(reason(&checks), None);
    }

    #[test]
    fn each_failure_alone_is_told_by_its_own_name() {
        type Break = (&'static str, Box<dyn Fn(&mut Facts)>, &'static str);
        let breaks: Vec<Break> = vec![
            ("slot", Box::new(|f| f.slot = Some(Slot::A)), "Slot a runs"),
            ("slot", Box::new(|f| f.slot = None), "names no slot"),
            ("verity", Box::new(|f| f.verity = Ok(false)), "not verified"),
            ("verity", Box::new(|f| f.verity = Err("no sysfs".into())), "no sysfs"),
            ("state", Box::new(|f| f.state = Ok(false)), "state partition is not mounted"),
            ("data", Box::new(|f| f.data = Ok(None)), "u-1 was mounted before"),
            ("data", Box::new(|f| f.data = Ok(Some("u-2".into()))), "Another data volume (u-2)"),
            ("agent", Box::new(|f| f.agent = Ok(Unit { state: "activating".into(), restarts: 14 })), "started again 14 times"),
            ("agent", Box::new(|f| f.agent = Ok(Unit { state: "failed".into(), restarts: 0 })), "its unit is failed"),
            ("units", Box::new(|f| f.failed = Ok(vec!["warden-firewall.service".into()])), "warden-firewall.service"),
            ("bus", Box::new(|f| f.bus.as_mut().unwrap().owned.clear()), "org.freedesktop.NetworkManager"),
            ("bus", Box::new(|f| f.bus.as_mut().unwrap().activatable.clear()), "org.lmwarden.Helper1"),
            ("address", Box::new(|f| f.addresses = Ok(vec![])), "has none now"),
            ("address", Box::new(|f| f.addresses = Ok(vec![IpAddr::from([10, 0, 2, 99])])), "has 10.0.2.99 now"),
            ("console", Box::new(|f| f.consoles[0].version = Ok("1.0.0".into())), "says it is version 1.0.0"),
            ("console", Box::new(|f| f.consoles[0].version = Err("refused".into())), "does not answer at 10.0.2.15: refused"),
            ("console", Box::new(|f| f.consoles.clear()), "asked nowhere"),
            ("page", Box::new(|f| f.consoles[0].form = Ok(false)), "no form"),
            ("gpus", Box::new(|f| f.gpus = Ok(Gpus { count: 1, driver: Some("560.1".into()) })), "2 GPUs were there"),
            ("gpus", Box::new(|f| f.gpus = Ok(Gpus { count: 2, driver: None })), "not loaded"),
            (
                "models",
                Box::new(|f| f.models[0].token = Err("it is loading".into())),
                "tiny served before the update and gives no token: it is loading",
            ),
            ("models", Box::new(|f| f.models.clear()), "was not asked"),
        ];
        for (code, break_it, said) in breaks {
            let mut facts = healthy();
            break_it(&mut facts);
            let told = reason(&judge(&expected(), &facts)).unwrap_or_else(|| panic!("{code}: nothing failed"));
            assert_eq!(told.code, code, "{told:?}");
            assert!(told.sentence.contains(said) && told.sentence.ends_with('.'), "{}", told.sentence);
        }
    }

    #[test]
    fn what_was_not_there_before_is_no_reason_to_go_back() {
        let mut facts = healthy();
        (facts.data, facts.gpus, facts.models) = (Ok(None), Ok(Gpus::default()), vec![]);
        facts.addresses = Ok(vec![]);
        let nothing =
            Before { management_addresses: vec![], data_uuid: None, served_models: vec![], gpu_count: Some(0), gpu_driver: None, ..before() };
        for expected in [Expected { version: "1.1.0".into(), before: Some(nothing) }, Expected { version: "1.1.0".into(), before: None }] {
            let checks = judge(&expected, &facts);
            assert_eq!(reason(&checks), None, "{checks:?}");
            assert_eq!(checks.iter().filter(|check| check.outcome == CheckOutcome::NotApplicable).count(), 4);
        }
    }

    #[test]
    fn the_cause_is_told_and_not_what_follows_from_it() {
        let mut facts = healthy();
        facts.agent = Ok(Unit { state: "activating".into(), restarts: 3 });
        facts.consoles[0].version = Err("refused".into());
        facts.consoles[0].form = Err("refused".into());
        facts.models[0].token = Err("refused".into());
        assert_eq!(reason(&judge(&expected(), &facts)).unwrap().code, "agent");
    }

    #[test]
    fn the_console_is_asked_at_the_address_it_had() {
        let (old, new) = (IpAddr::from([10, 0, 2, 15]), IpAddr::from([10, 0, 9, 9]));
        assert_eq!(expected().ask_at(&[new, old]), [old]);
        assert_eq!(expected().ask_at(&[new]), [new]);
        assert_eq!(expected().ask_at(&[]), [IpAddr::from([127, 0, 0, 1])]);
    }
}
