//! What a channel or bundle says, for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};
use warden_bundle::Contents;
use warden_domain::units::Bytes;
use warden_trust::Entry;

/// As text.
pub(crate) fn text(found: &Contents) -> String {
    let (release, timestamp) = (&found.release, &found.timestamp);
    let mut out = String::new();
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line(format!("release    {} of channel {} for {}", release.version, release.channel, release.compatible));
    line(format!("issued     {}   valid until {}", release.issued, release.expires));
    line(format!("timestamp  {} of {}   fresh until {}", timestamp.version, timestamp.issued, timestamp.expires));
    if let (Some(first), Some(last)) = (found.roots.first(), found.roots.last()) {
        let whose = if last.development { "DEVELOPMENT keys" } else { "production keys" };
        line(format!("roots      {} to {}, {whose}, valid until {}", first.version, last.version, last.expires));
    }
    for signers in &found.signers {
        let ids: Vec<String> = signers.key_ids.iter().map(|id| id.to_string().chars().take(12).collect()).collect();
        line(format!("signed by  {}: {} (not checked; use verify)", signers.document, ids.join(", ")));
    }
    line(format!("floor      OS {}", release.floor));
    for digest in &release.revoked.digests {
        line(format!("withdrawn  target {digest}"));
    }
    for key_id in &release.revoked.key_ids {
        line(format!("withdrawn  key {key_id}"));
    }
    for entry in &release.entries {
        let here = if present(found, entry) { "here" } else { "not here" };
        line(format!("target     {}   {}   {here}", entry.subject(), Bytes(entry.bytes)));
        line(format!("           {}", entry.sha256));
    }
    out
}

/// As one JSON document.
pub(crate) fn json(found: &Contents) -> Value {
    let targets: Vec<Value> = found
        .release
        .entries
        .iter()
        .map(|e| json!({"kind": e.kind, "name": e.name, "version": e.version, "sha256": e.sha256, "bytes": e.bytes, "present": present(found, e)}))
        .collect();
    json!({
        "compatible": found.release.compatible, "channel": found.release.channel, "release": found.release.version,
        "issued": found.release.issued, "expires": found.release.expires, "floor": found.release.floor,
        "timestamp": found.timestamp.version, "fresh_until": found.timestamp.expires,
        "root": found.roots.last().map(|r| r.version), "development": found.roots.last().map(|r| r.development),
        "revoked": found.release.revoked, "targets": targets, "bytes": found.bytes,
    })
}

fn present(found: &Contents, entry: &Entry) -> bool {
    found.targets.iter().any(|(digest, _)| *digest == entry.sha256)
}
