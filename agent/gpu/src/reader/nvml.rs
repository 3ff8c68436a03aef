//! Inside NVML: opens the library, reads round after round, starts anew when it refuses. Runs on a thread of its own and may hang in
//! any call; each is noted on the board for as long as it lasts.

use std::{
    cell::Cell,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nvml_wrapper::{
    Device, Nvml,
    enum_wrappers::device::{TemperatureSensor, TemperatureThreshold},
    enums::device::UsedGpuMemory,
    error::NvmlError,
    struct_wrappers::device::ProcessInfo,
};
use warden_domain::{
    gpu::{GpuCard, GpuHolder, PcieLink},
    ids::GpuId,
    units::{Bytes, Celsius, MilliWatts},
};

use super::{
    board::{Board, Facts},
    cards::{Entry, Seen, merge_holders, pci_address, program, slows_at, sort_out},
    margin,
};

/// From one round to the next.
const EVERY: Duration = Duration::from_secs(1);
/// Until a library that refused is opened again.
const AGAIN: Duration = Duration::from_secs(5);
/// Until a library that was not there is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The longest name of a process that is asked for.
const NAME_BYTES: usize = 1024;
/// A simulation tells in the library's version that it is one.
const SIMULATED: &str = "simulated";

/// Never returns.
pub(super) fn read_for_ever(library: &Path, board: &Board) {
    let mut seen = Seen::new();
    loop {
        match board.during_opening("nvmlInit", || Nvml::builder().lib_path(library.as_os_str()).init()) {
            Err(NvmlError::LibloadingError(cause)) => {
                let said = chain(&cause);
                if absent(&said) {
                    board.no_library(format!("The NVIDIA library {} is not on this machine.", library.display()));
                    thread::sleep(LOOK_AGAIN);
                } else {
                    board.failed(format!("The NVIDIA library {} cannot be loaded: {said}.", library.display()));
                    thread::sleep(AGAIN);
                }
            }
            Err(cause) => {
                board.failed(refusal(&cause));
                thread::sleep(AGAIN);
            }
            Ok(nvml) => {
                let cause = read_until_it_refuses(&nvml, board, &mut seen);
                board.failed(refusal(&cause));
                board.during("nvmlShutdown", None, || drop(nvml));
                thread::sleep(AGAIN);
            }
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !said.contains(&more) {
            said = format!("{said}: {more}");
        }
        next = cause.source();
    }
    said
}

/// The loader's words for a file that is not there; every other trouble is a library that is there.
fn absent(said: &str) -> bool {
    said.contains("cannot open shared object file") && said.contains("No such file")
}

fn refusal(cause: &NvmlError) -> String {
    match cause {
        NvmlError::LibRmVersionMismatch => {
            "The NVIDIA driver in the kernel and its library are of different versions. A restart loads the matching one.".to_owned()
        }
        NvmlError::DriverNotLoaded => "The NVIDIA library is there, but the driver is not loaded in the kernel.".to_owned(),
        NvmlError::NoPermission => "The reader may not open the NVIDIA devices.".to_owned(),
        other => format!("The NVIDIA library refuses: {other}."),
    }
}

/// Reads rounds, and returns why there cannot be another.
fn read_until_it_refuses(nvml: &Nvml, board: &Board, seen: &mut Seen) -> NvmlError {
    let version = board.during("nvmlSystemGetNVMLVersion", None, || nvml.sys_nvml_version()).ok();
    let simulated = version.is_some_and(|version| version.contains(SIMULATED));
    let driver = board.during("nvmlSystemGetDriverVersion", None, || nvml.sys_driver_version()).ok();
    loop {
        let begun = Instant::now();
        let count = match board.during("nvmlDeviceGetCount", None, || nvml.device_count()) {
            Ok(count) => count,
            Err(cause) => return cause,
        };
        let entries = (0..count).map(|index| entry(nvml, board, index)).collect();
        let (cards, notices) = sort_out(entries, seen);
        board.post(Facts { driver: driver.clone(), simulated, cards, notices });
        thread::sleep(EVERY.saturating_sub(begun.elapsed()));
    }
}

/// Asks one card; a refusal is `None`, and a card that fell off its bus is remembered.
struct Asking<'a> {
    board: &'a Board,
    index: u32,
    lost: Cell<bool>,
}

impl Asking<'_> {
    fn try_ask<T>(&self, call: &'static str, ask: impl FnOnce() -> Result<T, NvmlError>) -> Result<T, NvmlError> {
        let answer = self.board.during(call, Some(self.index), ask);
        if matches!(answer, Err(NvmlError::GpuLost)) {
            self.lost.set(true);
        }
        answer
    }

    fn ask<T>(&self, call: &'static str, ask: impl FnOnce() -> Result<T, NvmlError>) -> Option<T> {
        self.try_ask(call, ask).ok()
    }
}

fn entry(nvml: &Nvml, board: &Board, index: u32) -> Entry {
    let asking = Asking { board, index, lost: Cell::new(false) };
    let read = asking.try_ask("nvmlDeviceGetHandleByIndex", || nvml.device_by_index(index)).and_then(|device| {
        let id = asking.try_ask("nvmlDeviceGetUUID", || device.uuid())?;
        Ok(card(nvml, &device, &asking, GpuId::from_stored(id)))
    });
    match read {
        _ if asking.lost.get() => Entry::Lost,
        Ok(card) if card.id.as_str().is_empty() => Entry::Unnamed("its identity is empty".to_owned()),
        Ok(card) => Entry::Card(Box::new(card)),
        Err(cause) => Entry::Unnamed(cause.to_string()),
    }
}

fn card(nvml: &Nvml, device: &Device<'_>, asking: &Asking<'_>, id: GpuId) -> GpuCard {
    let memory = asking.ask("nvmlDeviceGetMemoryInfo", || device.memory_info());
    let temperature = asking.ask("nvmlDeviceGetTemperature", || device.temperature(TemperatureSensor::Gpu));
    let power_cap = asking
        .ask("nvmlDeviceGetEnforcedPowerLimit", || device.enforced_power_limit())
        .or_else(|| asking.ask("nvmlDeviceGetPowerManagementLimit", || device.power_management_limit()));
    GpuCard {
        index: asking.index,
        id,
        minor: asking.ask("nvmlDeviceGetMinorNumber", || device.minor_number()),
        name: asking.ask("nvmlDeviceGetName", || device.name()),
        pci: asking.ask("nvmlDeviceGetPciInfo", || device.pci_info()).and_then(|info| pci_address(&info.bus_id)),
        memory_total: memory.as_ref().map(|memory| Bytes(memory.total)),
        memory_used: memory.as_ref().map(|memory| Bytes(memory.used)),
        utilisation_ratio: asking
            .ask("nvmlDeviceGetUtilizationRates", || device.utilization_rates())
            .map(|rates| f64::from(rates.gpu.min(100)) / 100.0),
        temperature: temperature.map(|degrees| Celsius(degrees.into())),
        temperature_limit: temperature_limit(nvml, device, asking, temperature).map(|degrees| Celsius(degrees.into())),
        power: asking.ask("nvmlDeviceGetPowerUsage", || device.power_usage()).map(|power| MilliWatts(power.into())),
        power_cap: power_cap.map(|power| MilliWatts(power.into())),
        link: PcieLink {
            width_now: asking.ask("nvmlDeviceGetCurrPcieLinkWidth", || device.current_pcie_link_width()),
            width_max: asking.ask("nvmlDeviceGetMaxPcieLinkWidth", || device.max_pcie_link_width()),
            generation_now: asking.ask("nvmlDeviceGetCurrPcieLinkGeneration", || device.current_pcie_link_gen()),
            generation_max: asking.ask("nvmlDeviceGetMaxPcieLinkGeneration", || device.max_pcie_link_gen()),
        },
        holders: holders(nvml, device, asking),
    }
}

/// Where the card slows itself down: by its thresholds, or by how far it is from the nearest one.
fn temperature_limit(nvml: &Nvml, device: &Device<'_>, asking: &Asking<'_>, temperature: Option<u32>) -> Option<u32> {
    let told = [TemperatureThreshold::AcousticCurr, TemperatureThreshold::GpuMax, TemperatureThreshold::Slowdown]
        .map(|threshold| asking.ask("nvmlDeviceGetTemperatureThreshold", || device.temperature_threshold(threshold)));
    slows_at(&told).or_else(|| {
        let temperature = temperature?;
        let left = asking.ask("nvmlDeviceGetMarginTemperature", || margin::degrees_left(nvml, device))?;
        temperature.checked_add_signed(left)
    })
}

fn holders(nvml: &Nvml, device: &Device<'_>, asking: &Asking<'_>) -> Option<Vec<GpuHolder>> {
    let named = |processes: Vec<ProcessInfo>| processes.iter().map(|process| holder(nvml, process, asking)).collect::<Vec<_>>();
    let compute = asking.ask("nvmlDeviceGetComputeRunningProcesses", || device.running_compute_processes()).map(named);
    let graphics = asking.ask("nvmlDeviceGetGraphicsRunningProcesses", || device.running_graphics_processes()).map(named);
    merge_holders(compute, graphics)
}

fn holder(nvml: &Nvml, process: &ProcessInfo, asking: &Asking<'_>) -> GpuHolder {
    GpuHolder {
        pid: process.pid,
        name: asking.ask("nvmlSystemGetProcessName", || nvml.sys_process_name(process.pid, NAME_BYTES)).and_then(|told| program(&told)),
        memory: match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
            UsedGpuMemory::Unavailable => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_there_and_broken_is_not_called_absent() {
        assert!(absent("libnvidia-ml.so.1: cannot open shared object file: No such file or directory"));
        assert!(!absent("/x/libnvidia-ml.so.1: file too short"));
        assert!(!absent("/x/libnvidia-ml.so.1: cannot open shared object file: Permission denied"));
    }
}
