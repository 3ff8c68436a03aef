//! The words of issue codes in the reader's language. A new code does not compile until it has words here.

use warden_domain::issue::{IssueCode, Said};

use crate::catalogue::Text;

/// What is wrong, in a few words.
pub(crate) const fn title(code: IssueCode, t: &Text) -> &'static str {
    match code {
        IssueCode::DataDiskFull => t.issue_data_disk_full,
        IssueCode::DataDiskNearlyFull => t.issue_data_disk_nearly_full,
        IssueCode::DataDiskReadOnly => t.issue_data_disk_read_only,
        IssueCode::DataDiskMissing => t.issue_data_disk_missing,
        IssueCode::ModelDiskMissing => t.issue_model_disk_missing,
        IssueCode::StateDiskNearlyFull => t.issue_state_disk_nearly_full,
        IssueCode::ModelFailed => t.issue_model_failed,
        IssueCode::ModelWaiting => t.issue_model_waiting,
        IssueCode::ModelFileMissing => t.issue_model_file_missing,
        IssueCode::ModelFileChanged => t.issue_model_file_changed,
        IssueCode::EngineMissing => t.issue_engine_missing,
        IssueCode::NoNetworkAddress => t.issue_no_network_address,
        IssueCode::NoDefaultRoute => t.issue_no_default_route,
        IssueCode::UnitFailed => t.issue_unit_failed,
        IssueCode::TimeServiceStopped => t.issue_time_service_stopped,
        IssueCode::ClockNotSynchronised => t.issue_clock_not_synchronised,
        IssueCode::BootFellBack => t.issue_boot_fell_back,
        IssueCode::ChannelStale => t.issue_channel_stale,
        IssueCode::UpdateFailed => t.issue_update_failed,
        IssueCode::SecureBootOff => t.issue_secure_boot_off,
        IssueCode::CertificateEnding => t.issue_certificate_ending,
        IssueCode::AlertNotDelivered => t.issue_alert_not_delivered,
    }
}

/// What to do. For models the engine's own hint, where there is one, knows more than a general sentence.
pub(crate) fn todo(code: IssueCode, hint: &str, t: &Text) -> String {
    let general = match code {
        IssueCode::DataDiskFull => t.todo_data_disk_full,
        IssueCode::DataDiskNearlyFull => t.todo_data_disk_nearly_full,
        IssueCode::DataDiskReadOnly => t.todo_data_disk_read_only,
        IssueCode::DataDiskMissing => t.todo_data_disk_missing,
        IssueCode::ModelDiskMissing => t.todo_model_disk_missing,
        IssueCode::StateDiskNearlyFull => t.todo_state_disk_nearly_full,
        IssueCode::ModelFailed => t.todo_model_failed,
        IssueCode::ModelWaiting => t.todo_model_waiting,
        IssueCode::ModelFileMissing => t.todo_model_file_missing,
        IssueCode::ModelFileChanged => t.todo_model_file_changed,
        IssueCode::EngineMissing => t.todo_engine_missing,
        IssueCode::NoNetworkAddress => t.todo_no_network_address,
        IssueCode::NoDefaultRoute => t.todo_no_default_route,
        IssueCode::UnitFailed => t.todo_unit_failed,
        IssueCode::TimeServiceStopped => t.todo_time_service_stopped,
        IssueCode::ClockNotSynchronised => t.todo_clock_not_synchronised,
        IssueCode::BootFellBack => t.todo_boot_fell_back,
        IssueCode::ChannelStale => t.todo_channel_stale,
        IssueCode::UpdateFailed => t.todo_update_failed,
        IssueCode::SecureBootOff => t.todo_secure_boot_off,
        IssueCode::CertificateEnding => t.todo_certificate_ending,
        IssueCode::AlertNotDelivered => t.todo_alert_not_delivered,
    };
    match code {
        IssueCode::ModelFailed | IssueCode::ModelWaiting if !hint.is_empty() => hint.to_owned(),
        _ => general.to_owned(),
    }
}

/// What is wrong, with figures. What the system or an engine said of it (`why`) stays as it was said.
pub(crate) fn said(said: &Said, t: &Text) -> String {
    match said {
        Said::Text { text } => text.clone(),
        Said::DataDiskFull { free, total } => t.said_data_disk_full(free, total),
        Said::DataDiskNearlyFull { free, total } => t.said_data_disk_nearly_full(free, total),
        Said::DataDiskReadOnly {} => t.said_data_disk_read_only.to_owned(),
        Said::DataDiskMissing {} => t.said_data_disk_missing.to_owned(),
        Said::ModelDiskMissing { disk } => t.said_model_disk_missing(disk),
        Said::ModelDiskUnusable { disk, why } => t.said_model_disk_unusable(disk, why),
        Said::StateDiskNearlyFull { free, total } => t.said_state_disk_nearly_full(free, total),
        Said::StateDiskReadOnly {} => t.said_state_disk_read_only.to_owned(),
        Said::ModelFailed { model, why } => t.said_model_failed(model, why),
        Said::ModelWaiting { model, why } => t.said_model_waiting(model, why),
        Said::ModelFileMissing { model, why } => t.said_model_file_missing(model, why),
        Said::ModelFileChanged { model, now, before } => t.said_model_file_changed(before, model, now),
        Said::EngineNotInstalled { engine, model } => t.said_engine_not_installed(engine, model),
        Said::EngineBroken { engine, model, why } => t.said_engine_broken(engine, model, why),
        Said::NoNetworkAddress {} => t.said_no_network_address.to_owned(),
        Said::NoDefaultRoute { addresses } => t.said_no_default_route(addresses),
        Said::UnitFailed { unit } => t.said_unit_failed(unit),
        Said::TimeServiceStopped { state } => t.said_time_service_stopped(state),
        Said::ClockNotSynchronised {} => t.said_clock_not_synchronised.to_owned(),
        Said::BootFellBack { why } => t.said_boot_fell_back(why),
        Said::UpdateWentBack { version, why } => t.said_update_went_back(version, why),
        Said::SecureBootOff {} => t.said_secure_boot_off.to_owned(),
        Said::CertificateEnding { days } => t.said_certificate_ending(days),
        Said::CertificateEnded {} => t.said_certificate_ended.to_owned(),
        Said::AlertNotDelivered { waiting, tries } => t.said_alert_not_delivered(tries, waiting),
        Said::AlertRefused { waiting, tries, said } => t.said_alert_refused(said, tries, waiting),
    }
}

#[cfg(test)]
mod tests {
    use warden_domain::units::Bytes;

    use super::*;
    use crate::catalogue::{EN, HI};

    /// One of each.
    fn all() -> Vec<Said> {
        let word = |text: &str| text.to_owned();
        let (free, total) = (Bytes(3 << 30), Bytes(64 << 30));
        vec![
            Said::text("as it was said"),
            Said::DataDiskFull { free, total },
            Said::DataDiskNearlyFull { free, total },
            Said::DataDiskReadOnly {},
            Said::DataDiskMissing {},
            Said::ModelDiskMissing { disk: word("WD-1") },
            Said::ModelDiskUnusable { disk: word("WD-1"), why: word("(why)") },
            Said::StateDiskNearlyFull { free, total },
            Said::StateDiskReadOnly {},
            Said::ModelFailed { model: word("tiny"), why: word("(why)") },
            Said::ModelWaiting { model: word("tiny"), why: word("(why)") },
            Said::ModelFileMissing { model: word("tiny"), why: word("(why)") },
            Said::ModelFileChanged { model: word("tiny"), now: 2048, before: 1024 },
            Said::EngineNotInstalled { engine: word("llama.cpp"), model: word("tiny") },
            Said::EngineBroken { engine: word("llama.cpp"), model: word("tiny"), why: word("(why)") },
            Said::NoNetworkAddress {},
            Said::NoDefaultRoute { addresses: word("10.0.2.15") },
            Said::UnitFailed { unit: word("u1.service") },
            Said::TimeServiceStopped { state: word("inactive") },
            Said::ClockNotSynchronised {},
            Said::BootFellBack { why: word("(why)") },
            Said::UpdateWentBack { version: word("1.4.0"), why: word("(why)") },
            Said::SecureBootOff {},
            Said::CertificateEnding { days: 3 },
            Said::CertificateEnded {},
            Said::AlertNotDelivered { waiting: 2, tries: 4 },
            Said::AlertRefused { waiting: 2, tries: 4, said: word("status 503") },
        ]
    }

    #[test]
    fn the_pages_say_in_english_what_the_api_says() {
        let forms: Vec<&str> = all().iter().map(Said::form).collect();
        assert_eq!(forms, Said::FORMS, "one of each, in the order of the table");
        for one in all() {
            assert_eq!(said(&one, &EN), one.to_string());
        }
    }

    #[test]
    fn a_sentence_in_hindi_is_another_one_with_the_same_figures() {
        for one in all().iter().skip(1) {
            let (english, hindi) = (one.to_string(), said(one, &HI));
            assert!(hindi.chars().any(|c| ('\u{900}'..='\u{97f}').contains(&c)), "{hindi}");
            let figures = |text: &str| {
                let mut digits: Vec<char> = text.chars().filter(char::is_ascii_digit).collect();
                digits.sort_unstable();
                digits
            };
            assert_eq!(figures(&english), figures(&hindi), "{hindi}");
        }
    }
}
