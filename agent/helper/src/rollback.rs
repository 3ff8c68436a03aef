//! Back to the other system, by an admin's wish. Decides over RAUC's list of slots; the one order that follows is RAUC's, whose single write
//! of a boot entry a power cut leaves done or not begun. The other system then gets its counted starts like a fresh one, so that a box
//! whose old system does not come up any more returns to this one.

use rauc_client::{BootStatus, Gate, MarkAs, Rauc, RaucError, Slot, SlotState, Which};
use zbus::Connection;

use crate::verb::Refusal;

/// The slot that is to be started next.
///
/// # Errors
/// An install is at work, or there is no other slot, or none that may be started.
pub fn choose(slots: &[Slot], installing: bool) -> Result<&Slot, Refusal> {
    if installing {
        return Err(Refusal::Installing);
    }
    // RAUC must know which one runs, or the other one cannot be told.
    if !slots.iter().any(|slot| slot.state == SlotState::Booted) {
        return Err(Refusal::NoOtherSystem);
    }
    let mut others = slots.iter().filter(|slot| slot.bootname.is_some() && slot.state == SlotState::Inactive && slot.boot_status == BootStatus::Good);
    match (others.next(), others.next()) {
        (Some(other), None) => Ok(other),
        _ => Err(Refusal::NoOtherSystem),
    }
}

/// The slot that is not to be started any more: the one that does not run, while the one that runs is good.
///
/// # Errors
/// An install is at work, or it cannot be told which one that is, or nothing good would be left.
pub fn choose_given_up(slots: &[Slot], installing: bool) -> Result<&Slot, Refusal> {
    if installing {
        return Err(Refusal::Installing);
    }
    if !slots.iter().any(|slot| slot.state == SlotState::Booted && slot.boot_status == BootStatus::Good) {
        return Err(Refusal::NothingGoodLeft);
    }
    let mut others = slots.iter().filter(|slot| slot.bootname.is_some() && slot.state == SlotState::Inactive);
    match (others.next(), others.next()) {
        (Some(other), None) => Ok(other),
        _ => Err(Refusal::NothingGoodLeft),
    }
}

/// Takes an installed system back before its first start: the running one stays the one that starts.
///
/// # Errors
/// As [`choose_given_up`], or RAUC did not do it.
pub async fn give_up(bus: &Connection) -> Result<String, Refusal> {
    let failed = |error: RaucError| Refusal::Io(error.to_string());
    let rauc = Rauc::new(bus).await.map_err(failed)?;
    let (installing, slots) = (rauc.busy().await.map_err(failed)?, rauc.slots().await.map_err(failed)?);
    let other = choose_given_up(&slots, installing)?;
    Gate::new(bus).await.map_err(failed)?.mark(MarkAs::Bad, &Which::Named(other.name.clone())).await.map_err(failed)?;
    Ok(other.bootname.clone().unwrap_or_default())
}

/// Makes the other system the one that starts next. Nothing is restarted.
///
/// # Errors
/// As [`choose`], or RAUC did not do it.
pub async fn go_back(bus: &Connection) -> Result<String, Refusal> {
    let failed = |error: RaucError| Refusal::Io(error.to_string());
    let rauc = Rauc::new(bus).await.map_err(failed)?;
    let (installing, slots) = (rauc.busy().await.map_err(failed)?, rauc.slots().await.map_err(failed)?);
    let other = choose(&slots, installing)?;
    Gate::new(bus).await.map_err(failed)?.mark(MarkAs::Active, &Which::Named(other.name.clone())).await.map_err(failed)?;
    Ok(other.bootname.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(name: &str, state: SlotState, boot_status: BootStatus) -> Slot {
        Slot {
            name: name.to_owned(),
            class: Some("rootfs".into()),
            bootname: Some(name.to_owned()),
            device: None,
            state,
            boot_status,
            status: None,
            version: None,
            bundle_hash: None,
            sha256: None,
            transaction: None,
            installed: None,
        }
    }

    #[test]
    fn the_other_system_is_taken_only_when_it_is_good() {
        let running = slot("a", SlotState::Booted, BootStatus::Good);
        let good = [running.clone(), slot("b", SlotState::Inactive, BootStatus::Good)];
        assert_eq!(choose(&good, false).map(|slot| slot.name.as_str()), Ok("b"));
        for status in [BootStatus::Bad, BootStatus::Unknown] {
            assert_eq!(choose(&[running.clone(), slot("b", SlotState::Inactive, status)], false), Err(Refusal::NoOtherSystem));
        }
        assert_eq!(choose(&[running], false), Err(Refusal::NoOtherSystem));
    }

    #[test]
    fn an_installed_system_is_given_up_only_beside_a_good_one_that_runs() {
        let other = slot("b", SlotState::Inactive, BootStatus::Good);
        let on = |status, installing| {
            let slots = [slot("a", SlotState::Booted, status), other.clone()];
            choose_given_up(&slots, installing).map(|slot| slot.name.clone())
        };
        assert_eq!(on(BootStatus::Good, false), Ok("b".to_owned()));
        assert_eq!(on(BootStatus::Bad, false), Err(Refusal::NothingGoodLeft));
        assert_eq!(on(BootStatus::Good, true), Err(Refusal::Installing));
    }

    #[test]
    fn a_slot_that_is_being_written_is_never_started() {
        let slots = [slot("a", SlotState::Booted, BootStatus::Good), slot("b", SlotState::Inactive, BootStatus::Good)];
        assert_eq!(choose(&slots, true), Err(Refusal::Installing));
    }

    #[test]
    fn without_a_running_slot_no_other_one_can_be_told() {
        let slots = [slot("a", SlotState::Inactive, BootStatus::Good), slot("b", SlotState::Inactive, BootStatus::Good)];
        assert_eq!(choose(&slots, false), Err(Refusal::NoOtherSystem));
    }
}
