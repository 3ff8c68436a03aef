//! The words of issue codes in the reader's language. A new code does not compile until it has words here.

use warden_domain::issue::IssueCode;

use crate::catalogue::Text;

/// What is wrong, in a few words.
pub(crate) const fn title(code: IssueCode, t: &Text) -> &'static str {
    match code {
        IssueCode::DataDiskFull => t.issue_data_disk_full,
        IssueCode::DataDiskNearlyFull => t.issue_data_disk_nearly_full,
        IssueCode::DataDiskReadOnly => t.issue_data_disk_read_only,
        IssueCode::DataDiskMissing => t.issue_data_disk_missing,
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
