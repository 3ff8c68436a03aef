//! Which cards an engine sees.
//!
//! Ids in, environment out. Cards are named by their ids, never by their places: a place may be another card's after a restart.

use std::collections::BTreeMap;

use warden_domain::ids::GpuId;

/// The environment that shows an engine these cards, in this order, and no other. With none it sees no card at all.
pub(crate) fn environment(gpus: &[GpuId]) -> BTreeMap<String, String> {
    let visible = gpus.iter().map(GpuId::as_str).collect::<Vec<_>>().join(",");
    BTreeMap::from([("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned()), ("CUDA_VISIBLE_DEVICES".to_owned(), visible)])
}
