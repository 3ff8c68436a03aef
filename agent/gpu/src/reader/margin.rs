//! The one call that the wrapper lacks: how far a card is from slowing itself down. Newer cards tell this instead of thresholds.
#![allow(unsafe_code, reason = "a raw call into the library that the wrapper has open")]

use nvml_wrapper::{
    Device, Nvml,
    error::{NvmlError, nvml_sym, nvml_try},
};
use nvml_wrapper_sys::bindings::nvmlMarginTemperature_t;

/// Degrees left until the nearest slowdown threshold; negative beyond it.
///
/// # Errors
/// What the library says, `FailedToLoadSymbol` where it is too old to have the call.
pub(super) fn degrees_left(nvml: &Nvml, device: &Device<'_>) -> Result<i32, NvmlError> {
    let call = nvml_sym(nvml.lib().nvmlDeviceGetMarginTemperature.as_ref())?;
    // The version is made of size and number as the header's NVML_STRUCT_VERSION makes it.
    let version = u32::try_from(size_of::<nvmlMarginTemperature_t>()).unwrap_or_default() | (1 << 24);
    let mut answer = nvmlMarginTemperature_t { version, marginTemperature: 0 };
    // SAFETY: the handle belongs to this library and lives as long as `device`; the struct is ours, of the layout its version names.
    nvml_try(unsafe { call(device.handle(), &raw mut answer) })?;
    Ok(answer.marginTemperature)
}
