//! How llama.cpp spreads a model over several cards when nobody says otherwise: whole layers, in proportion to what is free of each card.
//! A sum over all cards tells nothing when one of them cannot hold its own part.

use warden_domain::{fit::Verdict, units::Bytes};

use super::{
    amount::Amount,
    llama::{self, Load, PER_CARD},
    place::{Card, Place},
    shape::{Missing, Shape, Weights},
};

/// What one card has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Its place in the list of cards.
    pub(super) card: u32,
    /// What is free of it.
    free: u64,
    /// Layers on it.
    layers: usize,
    bytes: u64,
    most: u64,
}

impl Part {
    pub(super) const fn verdict(&self) -> Verdict {
        if self.most <= self.free {
            Verdict::Fits
        } else if self.bytes <= self.free {
            Verdict::Tight
        } else {
            Verdict::WontFit
        }
    }

    /// The sentence about a card that does not hold its part for sure; `None` when it does.
    pub(super) fn sentence(&self) -> Option<String> {
        let (free, bytes, most) = (Bytes(self.free), Bytes(self.bytes), Bytes(self.most));
        let what = format!("Card {} gets {} of the layers, in proportion to its free memory", self.card, self.layers);
        match self.verdict() {
            Verdict::Fits | Verdict::Unknown => None,
            Verdict::Tight => Some(format!("{what}; with all that comes along they may take {most}, and {free} are free.")),
            Verdict::WontFit => Some(format!("{what}; with all that comes along they take {bytes}, and {free} are free.")),
        }
    }
}

/// For each layer, and for the output behind the last one, which card it goes to.
fn homes(free: &[u64], layers: usize) -> Vec<usize> {
    let all: u128 = free.iter().map(|free| u128::from(*free)).sum();
    let (slots, last) = (layers as u128 + 1, free.len().saturating_sub(1));
    let mut homes = Vec::with_capacity(layers + 1);
    let (mut card, mut before) = (0, 0u128);
    for slot in 0..slots {
        // The first card whose end lies behind this layer's place.
        while card < last && before.saturating_add(free.get(card).copied().map_or(0, u128::from)).saturating_mul(slots) <= slot.saturating_mul(all) {
            before = before.saturating_add(free.get(card).copied().map_or(0, u128::from));
            card += 1;
        }
        homes.push(card);
    }
    homes
}

/// The parts of all cards; none where a card does not tell its memory.
///
/// # Errors
/// Names of figures that are beyond all memory.
pub(super) fn parts(shape: &Shape, files: &Weights, cards: &[Card], load: Load) -> Result<Vec<Part>, Missing> {
    let Some(free) = cards.iter().map(Card::free).collect::<Option<Vec<u64>>>() else { return Ok(Vec::new()) };
    let homes = homes(&free, shape.layers.len());
    let (weights, _) = llama::weight_bytes(files, &Place::Cards(Vec::new()));
    let output = if files.tied == Some(true) { files.embedding } else { files.output }.unwrap_or(0).min(weights);
    let each = Amount::from(weights - output).over(shape.layers.len() as u64);
    let largest = Amount::from(files.largest_layer.unwrap_or(0)).at_least(each);
    let token_memory: Vec<Amount> = shape.layers.iter().map(|layer| load.layer(shape, layer)).collect();
    let compute = llama::compute_once(shape, load);
    let mut parts = Vec::new();
    for (place, (card, free)) in cards.iter().zip(free).enumerate() {
        let on_it = || homes.iter().take(token_memory.len()).zip(&token_memory).filter(|(home, _)| **home == place).map(|(_, kv)| *kv);
        let count = on_it().count();
        // The output matrix goes behind the last layer, the image part to the first card.
        let output = if homes.last() == Some(&place) { output } else { 0 };
        let projector = files.projector.filter(|_| place == 0);
        let fixed = Amount::from(output) + on_it().sum::<Amount>();
        let bytes = fixed + each * count as u64 + compute + PER_CARD.0 + projector.unwrap_or(0);
        // What is free changes until the load, and one layer more goes here then.
        let further = token_memory.iter().copied().fold(Amount::from(0), Amount::at_least);
        let layers = (largest * (count as u64 + 1)).at_most(weights);
        let image = projector.map_or_else(|| Amount::from(0), llama::projector_most);
        let most = (fixed + further + layers + compute * 2 + PER_CARD.2 + image).at_least(bytes);
        let figure = format!("card {}", card.index);
        parts.push(Part { card: card.index, free, layers: count, bytes: bytes.known(&figure)?, most: most.known(&figure)? });
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use warden_domain::fit::KvType;

    use super::*;
    use crate::fit::shape::LayerShape;

    const GIB: u64 = 1 << 30;

    #[test]
    fn layers_go_to_cards_in_proportion_to_what_is_free() {
        assert_eq!(homes(&[10, 10], 3), [0, 0, 1, 1]);
        assert_eq!(homes(&[30, 10], 7), [0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(homes(&[0, 5, 0], 2), [1, 1, 1], "a full card gets none");
        assert_eq!(homes(&[0, 0], 1).len(), 2);
        assert_eq!(homes(&[7], 2), [0, 0, 0]);
        assert_eq!(homes(&[u64::MAX, u64::MAX], 4096).iter().filter(|home| **home == 0).count(), 2049);
    }

    #[test]
    fn each_card_holds_its_layers_and_the_last_one_the_output_too() {
        let layer = LayerShape { kv_heads: 8, key: 128, value: 128, windowed: false };
        let shape = Shape {
            architecture: "llama".to_owned(),
            heads: 32,
            layers: vec![layer; 31],
            window: None,
            embedding: 4096,
            feed_forward: 14336,
            vocabulary: 128_256,
            trained_context: Some(8192),
        };
        let files = Weights {
            all: 33 * GIB,
            embedding: Some(GIB),
            tied: Some(false),
            output: Some(GIB),
            largest_layer: Some(GIB),
            projector: Some(GIB / 2),
            ..Weights::default()
        };
        let card = |index, total| Card { index, total: Some(Bytes(total)), used: Some(Bytes(0)) };
        let load = Load { context: 4096, slots: 1, kv: KvType::F16 };
        let parts = parts(&shape, &files, &[card(0, 24 * GIB), card(1, 24 * GIB)], load).unwrap();
        let kv = 4096 * 8 * 256 * 2;
        let compute = 512 * (3 * 14336 + 5 * 4096) * 4 + 512 * 4096 * 2;
        assert_eq!((parts[0].layers, parts[1].layers), (16, 15));
        assert_eq!(parts[0].bytes, 16 * GIB + 16 * kv + compute + PER_CARD.0 + GIB / 2);
        assert_eq!(parts[1].bytes, 15 * GIB + GIB + 15 * kv + compute + PER_CARD.0);
        assert_eq!(parts[1].most, 16 * GIB + GIB + 16 * kv + 2 * compute + PER_CARD.2);
        assert_eq!(parts[0].verdict(), Verdict::Fits);
    }
}
