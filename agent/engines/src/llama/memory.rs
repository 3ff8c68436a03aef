//! The memory that llama.cpp says it took, by device and use.
//!
//! Lines of one run in, bytes out. A run may look for a fit before it loads; what it tells then is taken back when the load begins. One
//! device may tell of several buffers of one kind (a model with a sliding window has two stores of tokens): they add up.

use std::collections::BTreeMap;

use warden_domain::units::Bytes;

use super::line::{Level, parse};

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// The model's weights.
    Weights,
    /// Tokens of conversations, and states of models that keep some.
    Context,
    /// Room to compute in.
    Compute,
    /// Answers on their way out.
    Output,
}

/// What was taken, by device (`CPU`, `CUDA0`, `CPU_Mapped`…) and use; empty when the log tells of nothing.
#[must_use]
pub fn taken<'a>(lines: impl IntoIterator<Item = &'a str>) -> BTreeMap<(String, Use), Bytes> {
    let mut taken: BTreeMap<(String, Use), Bytes> = BTreeMap::new();
    for line in lines.into_iter().map(parse).filter(|line| line.level == Level::Info) {
        if line.text.starts_with("llama_model_loader: loaded meta data") {
            taken.clear();
        }
        if let Some((device, purpose, bytes)) = buffer(line.text) {
            let sum = taken.entry((device.to_owned(), purpose)).or_insert(Bytes(0));
            sum.0 = sum.0.saturating_add(bytes);
        }
    }
    taken
}

/// `llama_kv_cache:        CPU KV buffer size =    24.00 MiB`
fn buffer(text: &str) -> Option<(&str, Use, u64)> {
    const KINDS: &[(&str, Use)] = &[
        (" model buffer size", Use::Weights),
        (" KV buffer size", Use::Context),
        (" RS buffer size", Use::Context),
        (" compute buffer size", Use::Compute),
        (" output buffer size", Use::Output),
    ];
    let (_, rest) = text.split_once(": ")?;
    let (what, size) = rest.split_once('=')?;
    let (device, purpose) = KINDS.iter().find_map(|(end, purpose)| Some((what.trim().strip_suffix(end)?.trim(), *purpose)))?;
    let mib: f64 = size.trim().strip_suffix("MiB")?.trim().parse().ok()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be a size that fits")]
    (mib.is_finite() && (0.0..1e9).contains(&mib)).then_some((device, purpose, (mib * 1_048_576.0).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = include_str!("../../../../tests/fixtures/engine-logs/llama.cpp/start-fit.log");

    fn mib(of: &BTreeMap<(String, Use), Bytes>, device: &str, purpose: Use) -> f64 {
        (of[&(device.to_owned(), purpose)].0 as f64 / 1_048_576.0 * 100.0).round() / 100.0
    }

    #[test]
    fn two_stores_of_tokens_on_one_device_add_up() {
        let taken = taken(LOG.lines());
        assert_eq!(mib(&taken, "CPU", Use::Context), 84.0);
        assert_eq!(mib(&taken, "CPU_Mapped", Use::Weights), 235.16);
        assert_eq!(mib(&taken, "CPU_REPACK", Use::Weights), 12.66);
        assert_eq!(mib(&taken, "CPU", Use::Compute), 21.28);
        assert_eq!(mib(&taken, "CPU", Use::Output), 4.0);
    }

    #[test]
    fn what_a_look_for_a_fit_told_is_not_counted_twice() {
        let twice = format!("{LOG}{LOG}");
        assert_eq!(taken(twice.lines()), taken(LOG.lines()));
        assert!(taken(["a prompt: CPU KV buffer size = 24.00 MiB", ""]).is_empty());
    }
}
