//! NVML's C functions. A handle is the place of a card plus one; other handles are refused. What the scenario does not tell is
//! `NOT_SUPPORTED`, as a driver says it.

use std::{
    collections::HashMap,
    ffi::{c_char, c_int, c_uint},
    sync::{Mutex, OnceLock, PoisonError},
};

use nvml_wrapper_sys::bindings::*;

use crate::scenario::{Card, Scenario};

/// How the library tells that it is none.
const NVML_VERSION: &str = "12.550.163.01-simulated";
const MIB: u64 = 1024 * 1024;

const FINE: nvmlReturn_t = nvmlReturn_enum_NVML_SUCCESS;
const REFUSED: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
const BAD: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
const SHORT: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE;
const LOST: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST;

fn scenario() -> Option<&'static Scenario> {
    static SCENARIO: OnceLock<Option<Scenario>> = OnceLock::new();
    SCENARIO.get_or_init(|| Scenario::beside_this_library().inspect_err(|cause| eprintln!("simulated NVML: no scenario: {cause}")).ok()).as_ref()
}

/// How often a call was made for a card, this time included.
fn times(call: &'static str, card: u32) -> u32 {
    static TIMES: OnceLock<Mutex<HashMap<(&'static str, u32), u32>>> = OnceLock::new();
    let mut times = TIMES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let count = times.entry((call, card)).or_insert(0);
    *count += 1;
    *count
}

/// The card behind a handle. Does not return when the scenario says that this call hangs now.
fn card(call: &'static str, device: nvmlDevice_t) -> Result<&'static Card, nvmlReturn_t> {
    let scenario = scenario().ok_or(nvmlReturn_enum_NVML_ERROR_UNINITIALIZED)?;
    let index = u32::try_from(device.addr()).ok().and_then(|handle| handle.checked_sub(1)).ok_or(BAD)?;
    let card = scenario.card.get(index as usize).ok_or(BAD)?;
    if let Some(hang) = scenario.hang.as_ref().filter(|hang| hang.call == call && hang.card == index)
        && times(call, index) > hang.after
    {
        loop {
            std::thread::park();
        }
    }
    Ok(card)
}

fn answered(done: Result<(), nvmlReturn_t>) -> nvmlReturn_t {
    done.err().unwrap_or(FINE)
}

/// Writes a value where the caller wants it.
///
/// # Safety
/// `to` is null or may be written.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), nvmlReturn_t> {
    if to.is_null() {
        return Err(BAD);
    }
    // SAFETY: not null, and the caller's to write by NVML's contract.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a text with its end into a buffer of a length.
///
/// # Safety
/// `to` is null or holds `length` bytes.
unsafe fn put_text(to: *mut c_char, length: c_uint, text: &str) -> Result<(), nvmlReturn_t> {
    if to.is_null() {
        return Err(BAD);
    }
    if text.len() >= length as usize {
        return Err(SHORT);
    }
    for (place, byte) in text.bytes().chain([0]).enumerate() {
        // SAFETY: `place` is at most `text.len()`, which was compared with the length above.
        unsafe { to.add(place).write(byte.cast_signed()) };
    }
    Ok(())
}

/// Functions that tell one figure of a card.
macro_rules! figures {
    ($($call:ident: $field:ident),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $call(device: nvmlDevice_t, to: *mut c_uint) -> nvmlReturn_t {
            answered(card(stringify!($call), device).and_then(|card| {
                // SAFETY: NVML's contract: the caller's to write.
                unsafe { put(to, card.$field.ok_or(REFUSED)?) }
            }))
        }
    )*};
}

figures! {
    nvmlDeviceGetMinorNumber: minor,
    nvmlDeviceGetPowerUsage: power_mw,
    nvmlDeviceGetEnforcedPowerLimit: power_cap_mw,
    nvmlDeviceGetPowerManagementLimit: power_cap_mw,
    nvmlDeviceGetCurrPcieLinkWidth: width_now,
    nvmlDeviceGetMaxPcieLinkWidth: width_max,
    nvmlDeviceGetCurrPcieLinkGeneration: generation_now,
    nvmlDeviceGetMaxPcieLinkGeneration: generation_max,
}

/// Functions that tell one text of a card.
macro_rules! texts {
    ($($call:ident: $field:ident),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $call(device: nvmlDevice_t, to: *mut c_char, length: c_uint) -> nvmlReturn_t {
            answered(card(stringify!($call), device).and_then(|card| {
                // SAFETY: NVML's contract: the buffer has this length.
                unsafe { put_text(to, length, card.$field.as_deref().ok_or(REFUSED)?) }
            }))
        }
    )*};
}

texts! {
    nvmlDeviceGetName: name,
    nvmlDeviceGetUUID: uuid,
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    match scenario() {
        Some(scenario) => scenario.refuse_start.unwrap_or(FINE),
        None => nvmlReturn_enum_NVML_ERROR_UNKNOWN,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    FINE
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(to: *mut c_char, length: c_uint) -> nvmlReturn_t {
    let driver = scenario().map_or("", |scenario| scenario.driver.as_str());
    // SAFETY: NVML's contract: the buffer has this length.
    answered(unsafe { put_text(to, length, driver) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetNVMLVersion(to: *mut c_char, length: c_uint) -> nvmlReturn_t {
    // SAFETY: NVML's contract: the buffer has this length.
    answered(unsafe { put_text(to, length, NVML_VERSION) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetProcessName(pid: c_uint, to: *mut c_char, length: c_uint) -> nvmlReturn_t {
    let holders = scenario().into_iter().flat_map(|scenario| &scenario.card).flat_map(|card| &card.holder);
    let name = holders.filter(|holder| holder.pid == pid).find_map(|holder| holder.name.as_deref());
    match name {
        // SAFETY: NVML's contract: the buffer has this length.
        Some(name) => answered(unsafe { put_text(to, length, name) }),
        None => nvmlReturn_enum_NVML_ERROR_NOT_FOUND,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(to: *mut c_uint) -> nvmlReturn_t {
    let count = scenario().map_or(0, |scenario| c_uint::try_from(scenario.card.len()).unwrap_or(0));
    // SAFETY: NVML's contract: the caller's to write.
    answered(unsafe { put(to, count) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut nvmlDevice_t) -> nvmlReturn_t {
    const CALL: &str = "nvmlDeviceGetHandleByIndex_v2";
    let handle = std::ptr::without_provenance_mut(index as usize + 1);
    answered(card(CALL, handle).and_then(|card| {
        if card.lost_after.is_some_and(|after| times("handed out", index) > after) {
            return Err(LOST);
        }
        // SAFETY: NVML's contract: the caller's to write.
        unsafe { put(to, handle) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, to: *mut nvmlPciInfo_t) -> nvmlReturn_t {
    answered(card("nvmlDeviceGetPciInfo_v3", device).and_then(|card| {
        let address = card.pci.as_deref().ok_or(REFUSED)?;
        let mut bus_id: [c_char; 32] = [0; 32];
        // SAFETY: the buffer is ours and has this length.
        unsafe { put_text(bus_id.as_mut_ptr(), 32, address)? };
        let info = nvmlPciInfo_t { busIdLegacy: [0; 16], domain: 0, bus: 0, device: 0, pciDeviceId: 0, pciSubSystemId: 0, busId: bus_id };
        // SAFETY: NVML's contract: the caller's to write.
        unsafe { put(to, info) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, to: *mut nvmlMemory_v2_t) -> nvmlReturn_t {
    answered(card("nvmlDeviceGetMemoryInfo_v2", device).and_then(|card| {
        if to.is_null() {
            return Err(BAD);
        }
        // SAFETY: not null, and filled in by the caller by NVML's contract.
        let version = unsafe { (*to).version };
        if version as usize != size_of::<nvmlMemory_v2_t>() | (2 << 24) {
            return Err(nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        let (total, used) = (card.memory_total_mib.ok_or(REFUSED)? * MIB, card.memory_used_mib.ok_or(REFUSED)? * MIB);
        // SAFETY: NVML's contract: the caller's to write.
        unsafe { put(to, nvmlMemory_v2_t { version, total, reserved: 0, free: total.saturating_sub(used), used }) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, to: *mut nvmlUtilization_t) -> nvmlReturn_t {
    answered(card("nvmlDeviceGetUtilizationRates", device).and_then(|card| {
        // SAFETY: NVML's contract: the caller's to write.
        unsafe { put(to, nvmlUtilization_t { gpu: card.utilisation_percent.ok_or(REFUSED)?, memory: 0 }) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(device: nvmlDevice_t, _sensor: nvmlTemperatureSensors_t, to: *mut c_uint) -> nvmlReturn_t {
    answered(card("nvmlDeviceGetTemperature", device).and_then(|card| {
        // SAFETY: NVML's contract: the caller's to write.
        unsafe { put(to, card.temperature_c.ok_or(REFUSED)?) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperatureThreshold(device: nvmlDevice_t, which: nvmlTemperatureThresholds_t, to: *mut c_uint) -> nvmlReturn_t {
    answered(card("nvmlDeviceGetTemperatureThreshold", device).and_then(|card| {
        #[allow(non_upper_case_globals, reason = "names of the C header")]
        let degrees = match which {
            nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_SLOWDOWN => card.slowdown_c,
            nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_GPU_MAX => card.gpu_max_c,
            nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR => card.acoustic_c,
            _ => None,
        };
        // SAFETY: NVML's contract: the caller's to write.
        unsafe { put(to, degrees.ok_or(REFUSED)?) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMarginTemperature(device: nvmlDevice_t, to: *mut nvmlMarginTemperature_t) -> nvmlReturn_t {
    answered(card("nvmlDeviceGetMarginTemperature", device).and_then(|card| {
        let margin: c_int = card.margin_c.ok_or(REFUSED)?;
        if to.is_null() {
            return Err(BAD);
        }
        // SAFETY: not null, and filled in by the caller by NVML's contract.
        let version = unsafe { (*to).version };
        if version as usize != size_of::<nvmlMarginTemperature_t>() | (1 << 24) {
            return Err(nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        // SAFETY: NVML's contract: the caller's to write.
        unsafe { put(to, nvmlMarginTemperature_t { version, marginTemperature: margin }) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(device: nvmlDevice_t, count: *mut c_uint, to: *mut nvmlProcessInfo_t) -> nvmlReturn_t {
    answered(card("nvmlDeviceGetComputeRunningProcesses_v3", device).and_then(|card| {
        if card.holders_refused {
            return Err(REFUSED);
        }
        if count.is_null() {
            return Err(BAD);
        }
        // SAFETY: not null, and filled in by the caller by NVML's contract.
        let room = unsafe { *count } as usize;
        // SAFETY: as above.
        unsafe { put(count, c_uint::try_from(card.holder.len()).map_err(|_| BAD)?)? };
        if card.holder.is_empty() {
            return Ok(());
        }
        if room < card.holder.len() || to.is_null() {
            return Err(SHORT);
        }
        for (place, holder) in card.holder.iter().enumerate() {
            let info = nvmlProcessInfo_t {
                pid: holder.pid,
                usedGpuMemory: holder.memory_mib.map_or(u64::MAX, |mib| mib * MIB),
                gpuInstanceId: u32::MAX,
                computeInstanceId: u32::MAX,
            };
            // SAFETY: `place` is below the number of entries that the caller made room for.
            unsafe { to.add(place).write(info) };
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: nvmlDevice_t, count: *mut c_uint, _to: *mut nvmlProcessInfo_t) -> nvmlReturn_t {
    answered(card("nvmlDeviceGetGraphicsRunningProcesses_v3", device).and_then(|card| {
        if card.holders_refused {
            return Err(REFUSED);
        }
        // SAFETY: NVML's contract: the caller's to write.
        unsafe { put(count, 0) }
    }))
}
