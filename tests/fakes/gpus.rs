//! Cards of a box in memory: two, of which one sits in a narrow slot and is held by somebody.

use std::sync::Arc;

use warden_domain::{
    gpu::{GpuCard, GpuHolder, GpuNotice, GpuReading, GpuReport, GpuSnapshot, Gpus, PcieLink},
    ids::GpuId,
    units::{Bytes, Celsius, MilliWatts},
};

use super::{World, earlier};

impl World {
    /// Puts two cards into the box, read in this way.
    pub fn fit_gpus(&self, reading: GpuReading, simulated: bool) {
        let link = |now| PcieLink { width_now: Some(now), width_max: Some(16), generation_now: Some(1), generation_max: Some(4) };
        let bare = GpuCard {
            index: 0,
            id: GpuId::from_stored("GPU-0"),
            minor: None,
            name: Some("Card <0>".to_owned()),
            pci: Some("0000:01:00.0".to_owned()),
            memory_total: Some(Bytes(24 << 30)),
            memory_used: Some(Bytes(0)),
            utilisation_ratio: None,
            temperature: Some(Celsius(40)),
            temperature_limit: None,
            power: None,
            power_cap: None,
            link: link(16),
            holders: Some(Vec::new()),
        };
        let busy = GpuCard {
            index: 1,
            id: GpuId::from_stored("GPU-1"),
            memory_used: Some(Bytes(20 << 30)),
            utilisation_ratio: Some(0.875),
            temperature: Some(Celsius(82)),
            temperature_limit: Some(Celsius(83)),
            power: Some(MilliWatts(341_500)),
            power_cap: Some(MilliWatts(350_000)),
            link: link(4),
            holders: Some(vec![GpuHolder { pid: 2718, name: Some("python3".to_owned()), memory: Some(Bytes(20 << 30)) }]),
            ..bare.clone()
        };
        let notices = vec![GpuNotice::Gone { id: GpuId::from_stored("GPU-2"), index: 2, name: Some("Card <2>".to_owned()) }];
        let snapshot = Arc::new(GpuSnapshot { reading, driver: Some("550.163.01".to_owned()), simulated, cards: vec![bare, busy] });
        self.edit(|m| m.gpus = Some(GpuReport { snapshot, read_at: Some(earlier(2)), notices }));
    }

    /// The reader says this, and knows no cards.
    pub fn gpu_reading(&self, reading: GpuReading) {
        let snapshot = Arc::new(GpuSnapshot { reading, ..GpuSnapshot::starting() });
        self.edit(|m| m.gpus = Some(GpuReport { snapshot, read_at: None, notices: Vec::new() }));
    }
}

impl Gpus for World {
    fn snapshot(&self) -> Arc<GpuSnapshot> {
        self.report().snapshot
    }

    fn report(&self) -> GpuReport {
        let starting = || GpuReport { snapshot: Arc::new(GpuSnapshot::starting()), read_at: None, notices: Vec::new() };
        self.memory.lock().unwrap().gpus.clone().unwrap_or_else(starting)
    }
}
