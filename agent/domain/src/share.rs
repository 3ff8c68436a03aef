//! What vLLM takes of cards, and when it refuses to start on them. Said once, for the verdict before a download, for the load and for the launch.
//!
//! Figures of cards, a model's heads and an admin's arguments in; a sentence out where the engine would refuse.

use crate::units::Bytes;

/// The share of each card's memory that vLLM may take when the admin says nothing: the engine's own default, said outright at each launch.
pub const CARD_SHARE: f64 = 0.92;

/// The flag that says the share, and its other name.
pub const SHARE_FLAGS: [&str; 2] = ["--gpu-memory-utilization", "--device-memory-utilization"];

/// What to do about a card that is too full.
pub const TOO_FULL_HINT: &str =
    "Unload what else holds the card, choose another one, or add --gpu-memory-utilization with a smaller share to the model's arguments.";

/// What to do about heads that cannot be shared out.
pub const HEADS_HINT: &str = "Choose another number of cards for each replica: 1, 2, 4 and 8 fit most models.";

/// Attention heads of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// All of them.
    pub all: u64,
    /// Those of keys and values; `None` where they are not known or the model keeps none.
    pub kv: Option<u64>,
}

/// What has to be free of a card before vLLM starts on it.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "as the engine reckons it, in doubles")]
pub fn wanted_of_card(total: Bytes, share: f64) -> Bytes {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 1.0 };
    Bytes((total.0 as f64 * share).ceil() as u64)
}

/// The sentence about a card of which too little is free for vLLM to start; `None` when enough is.
#[must_use]
pub fn too_full(card: u32, free: Bytes, total: Bytes, share: f64) -> Option<String> {
    let wanted = wanted_of_card(total, share);
    (free < wanted).then(|| {
        format!(
            "vLLM does not start on card {card}: {free} of its {total} are free, and the engine's share of {share} asks for {wanted} before it \
             looks at the model."
        )
    })
}

/// The sentence about heads that vLLM cannot share out among so many cards; `None` when it can.
#[must_use]
pub fn cannot_share_out(heads: Heads, cards: usize) -> Option<String> {
    let count = u64::try_from(cards).unwrap_or(u64::MAX);
    if count <= 1 {
        return None;
    }
    if !heads.all.is_multiple_of(count) {
        return Some(format!(
            "vLLM does not start: the {} attention heads of this model cannot be shared out evenly among {cards} cards.",
            heads.all
        ));
    }
    let kv = heads.kv.filter(|kv| *kv > 0)?;
    // Fewer heads than cards are kept on several of them, each on as many.
    let even = if kv >= count { kv.is_multiple_of(count) } else { count.is_multiple_of(kv) };
    (!even).then(|| format!("vLLM does not start: the {kv} heads of keys and values of this model cannot be shared out evenly among {cards} cards."))
}

/// The share that an admin's own arguments say, the last one where there are several; `None` when they say none.
///
/// # Errors
/// A sentence when what they say is no share.
#[must_use]
pub fn said(arguments: &[String]) -> Option<Result<f64, String>> {
    let mut found = None;
    for (place, word) in arguments.iter().enumerate() {
        let (name, value) = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
        let whole = name.strip_prefix("--").map(|rest| format!("--{}", rest.replace('_', "-")));
        let Some(name) = SHARE_FLAGS.into_iter().find(|flag| whole.as_deref() == Some(flag)) else { continue };
        let value = value.or_else(|| arguments.get(place + 1).map(String::as_str)).unwrap_or_default();
        let share = value.trim().parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0);
        found = Some(share.ok_or_else(|| format!("`{name}` takes a share above 0 and up to 1, such as 0.85.")));
    }
    found
}

/// The share that a replica with these arguments takes.
#[must_use]
pub fn share_of(arguments: &[String]) -> f64 {
    said(arguments).and_then(Result::ok).unwrap_or(CARD_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn a_card_is_too_full_one_byte_below_its_share() {
        let (total, wanted) = (Bytes(24 * GIB), Bytes(23_708_219_474));
        assert_eq!(wanted_of_card(total, CARD_SHARE), wanted, "24 GiB x 0.92 = 23708219473.92, rounded up");
        assert_eq!(too_full(3, wanted, total, CARD_SHARE), None);
        let sentence = too_full(3, Bytes(wanted.0 - 1), total, CARD_SHARE).unwrap();
        assert!(sentence.contains("card 3") && sentence.contains("0.92") && sentence.contains("24.0 GiB"), "{sentence}");
        assert_eq!(too_full(3, Bytes(10 * GIB), total, 0.4), None, "a smaller share asks for less");
    }

    #[test]
    fn heads_are_shared_out_evenly_or_the_engine_does_not_start() {
        let heads = |all, kv| Heads { all, kv: Some(kv) };
        for (heads, cards, starts) in [
            (heads(32, 8), 1, true),
            (heads(32, 8), 2, true),
            (heads(32, 8), 3, false),
            (heads(32, 8), 16, true),
            (heads(40, 10), 4, false),
            (heads(24, 3), 6, true),
            (heads(24, 3), 4, false),
            (heads(7, 7), 7, true),
            (Heads { all: 32, kv: None }, 4, true),
            (Heads { all: 30, kv: None }, 4, false),
            (heads(u64::MAX, u64::MAX), usize::MAX, true),
        ] {
            assert_eq!(cannot_share_out(heads, cards).is_none(), starts, "{heads:?} on {cards}");
        }
        assert!(cannot_share_out(heads(40, 10), 4).unwrap().contains("10 heads of keys and values"));
    }

    #[test]
    fn the_share_an_admin_says_counts_in_every_spelling() {
        for list in [
            &["--gpu-memory-utilization", "0.5"][..],
            &["--gpu_memory_utilization=0.5"],
            &["--seed", "1", "--device-memory-utilization=0.9", "--gpu-memory_utilization", "0.5"],
        ] {
            assert_eq!(said(&words(list)), Some(Ok(0.5)), "{list:?}");
        }
        assert_eq!(said(&words(&["--seed", "0.5"])), None);
        for bad in ["0", "1.01", "NaN", "inf", "-1", "", "half"] {
            assert!(said(&words(&["--gpu-memory-utilization", bad])).unwrap().is_err(), "{bad}");
        }
        assert!(said(&words(&["--gpu-memory-utilization"])).unwrap().is_err());
        assert!((share_of(&[]) - CARD_SHARE).abs() < f64::EPSILON);
    }
}
