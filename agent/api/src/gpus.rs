//! GPU cards as the reader told them last. Answers from memory, whatever the driver does.

use axum::{Json, extract::State};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use warden_access::http::SignedIn;
use warden_domain::{
    clock,
    gpu::{GpuCard, GpuHolder, GpuNotice, GpuReport, PcieLink},
    units::{Bytes, MilliWatts},
};

use crate::ApiParts;

/// All cards and how far to trust them. `null` is what the driver does not tell.
#[derive(Debug, Serialize, ToSchema)]
pub struct GpusDocument {
    /// `starting`, `live`, `stale` (the cards are the last known ones), `no_library` (no NVIDIA driver here) or `failed`.
    reading: &'static str,
    /// For `stale`: since when the driver, or the reader, has not answered.
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    /// When the cards were read.
    #[schema(value_type = Option<String>, format = DateTime)]
    probed_at: Option<Timestamp>,
    /// Why they are not as of now.
    probe_error: Option<String>,
    /// True when the cards are a simulation for development.
    simulated: bool,
    /// Version of the driver.
    driver: Option<String>,
    /// Cards that are gone or cannot be offered, a sentence each.
    notices: Vec<String>,
    gpus: Vec<GpuPart>,
}

/// One card.
#[derive(Debug, Serialize, ToSchema)]
pub struct GpuPart {
    /// Its place in the driver's list; may change at a restart.
    index: u32,
    /// Its identity, as model layouts name it.
    uuid: String,
    name: Option<String>,
    /// Address on the PCI bus.
    pci: Option<String>,
    memory_total_mib: Option<u64>,
    memory_used_mib: Option<u64>,
    memory_free_mib: Option<u64>,
    /// Share of time in which it computed, 0 to 100.
    utilization_pct: Option<f64>,
    temperature_c: Option<u64>,
    /// Where this very card slows itself down.
    temperature_limit_c: Option<u64>,
    power_w: Option<f64>,
    /// What it may draw.
    power_limit_w: Option<f64>,
    pcie: PciePart,
    /// Who holds its memory.
    holders: Option<Vec<HolderPart>>,
}

/// Its link to the host.
#[derive(Debug, Serialize, ToSchema)]
pub struct PciePart {
    /// Lanes in use.
    width: Option<u32>,
    /// Lanes that card and slot could use.
    width_max: Option<u32>,
    /// Generation in use; a card at rest lowers it.
    generation: Option<u32>,
    generation_max: Option<u32>,
    /// True when fewer lanes are in use than could be.
    narrow: Option<bool>,
}

/// A process that holds memory.
#[derive(Debug, Serialize, ToSchema)]
pub struct HolderPart {
    pid: u32,
    /// Name of the program.
    process: Option<String>,
    memory_mib: Option<u64>,
}

const fn mib(bytes: Bytes) -> u64 {
    bytes.0 / (1024 * 1024)
}

#[allow(clippy::cast_precision_loss, reason = "a card draws less than 2^53 milliwatts")]
fn watts(power: MilliWatts) -> f64 {
    power.0 as f64 / 1000.0
}

fn part(card: &GpuCard) -> GpuPart {
    let free = card.memory_total.zip(card.memory_used).map(|(total, used)| mib(Bytes(total.0.saturating_sub(used.0))));
    GpuPart {
        index: card.index,
        uuid: card.id.to_string(),
        name: card.name.clone(),
        pci: card.pci.clone(),
        memory_total_mib: card.memory_total.map(mib),
        memory_used_mib: card.memory_used.map(mib),
        memory_free_mib: free,
        utilization_pct: card.utilisation_ratio.map(|ratio| (ratio * 1000.0).round() / 10.0),
        temperature_c: card.temperature.map(|degrees| degrees.0),
        temperature_limit_c: card.temperature_limit.map(|degrees| degrees.0),
        power_w: card.power.map(watts),
        power_limit_w: card.power_cap.map(watts),
        pcie: pcie(card.link),
        holders: card.holders.as_ref().map(|holders| holders.iter().map(holder).collect()),
    }
}

fn pcie(link: PcieLink) -> PciePart {
    PciePart {
        width: link.width_now,
        width_max: link.width_max,
        generation: link.generation_now,
        generation_max: link.generation_max,
        narrow: link.narrow(),
    }
}

fn holder(holder: &GpuHolder) -> HolderPart {
    HolderPart { pid: holder.pid, process: holder.name.clone(), memory_mib: holder.memory.map(mib) }
}

fn sentence(notice: &GpuNotice) -> String {
    match notice {
        GpuNotice::Gone { id, index, name } => {
            format!("The card {} (number {index}, {id}) was there and is gone.", name.as_deref().unwrap_or("of unknown kind"))
        }
        GpuNotice::Doubled { id, index } => format!("Card number {index} tells the identity {id} of an earlier one and is left out."),
        GpuNotice::Unnamed { index, cause } => format!("Card number {index} does not tell its identity ({cause}) and is left out."),
    }
}

fn document(report: &GpuReport) -> GpusDocument {
    let snapshot = &report.snapshot;
    GpusDocument {
        reading: snapshot.reading.as_str(),
        since: report.since(clock::now()),
        probed_at: report.read_at,
        probe_error: snapshot.reading.cause().map(ToOwned::to_owned),
        simulated: snapshot.simulated,
        driver: snapshot.driver.clone(),
        notices: report.notices.iter().map(sentence).collect(),
        gpus: snapshot.cards.iter().map(part).collect(),
    }
}

/// The cards of this machine. Never waits for the driver.
#[utoipa::path(get, path = "/api/system/gpus", tag = "system", responses((status = 200, body = GpusDocument)))]
pub async fn show(State(parts): State<ApiParts>, _: SignedIn) -> Json<GpusDocument> {
    Json(document(&parts.gpus.report()))
}
