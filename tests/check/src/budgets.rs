//! How exposed each unit of the appliance may be, as `systemd-analyze security` counts (0 is a sealed box, 10 is none). Pure; used by
//! the case on the built root and by the test on the plain files.

/// Unit file and its budget.
pub const BUDGETS: &[(&str, f64)] = &[
    ("warden-agent.service", 2.0),
    ("warden-engine@.service", 3.5),
    ("warden-gpu.service", 5.0),
    ("warden-helper.service", 5.0),
    ("warden-console@.service", 5.0),
    ("warden-reset.service", 5.0),
    ("warden-health.service", 2.0),
    ("warden-trial-failed.service", 5.0),
    ("warden-boot-rule.service", 5.0),
    ("warden-firewall.service", 5.0),
    ("warden-plain.service", 5.0),
];

/// Units without a budget, and why.
pub const EXEMPT: &[(&str, &str)] = &[
    ("warden-dirs@.service", "it makes folders with owners as root before anything else runs, and ends"),
    ("warden-install.service", "it writes whole disks, from a stick only, where nothing else runs"),
];

/// The number of a verdict.
#[must_use]
pub fn exposure_of(said: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.contains("Overall exposure level"))?;
    line.split_whitespace().find_map(|word| word.parse().ok())
}
