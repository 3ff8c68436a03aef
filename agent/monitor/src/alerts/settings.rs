//! The settings of alerts in the store: where to, what about, and the secret that signs. The secret leaves this module only into the
//! signature, and once to whoever made it.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use warden_domain::{Secret, alert::AlertConfig, ids::random_bytes, issue::IssueCode};
use warden_store::{StoreError, rusqlite::Connection, settings};

const WEBHOOK: &str = "alerts.webhook";
const SECRET: &str = "alerts.secret";

/// Reads the settings; what was never set, or cannot be understood, is off.
pub(crate) fn read(db: &Connection) -> Result<AlertConfig, StoreError> {
    let text = settings::get(db, WEBHOOK)?.unwrap_or_default();
    let mut config = parse(&text);
    config.has_secret = settings::get(db, SECRET)?.is_some();
    Ok(config)
}

/// Writes the settings, without the secret.
pub(crate) fn write(db: &Connection, config: &AlertConfig) -> Result<(), StoreError> {
    settings::set(db, WEBHOOK, &render(config))
}

/// The secret, if there is one.
pub(crate) fn secret(db: &Connection) -> Result<Option<Secret<String>>, StoreError> {
    Ok(settings::get(db, SECRET)?.map(Secret::new))
}

/// Makes and keeps a new secret.
pub(crate) fn new_secret(db: &Connection) -> Result<Secret<String>, StoreError> {
    let secret = format!("whsec_{}", URL_SAFE_NO_PAD.encode(random_bytes::<32>()));
    settings::set(db, SECRET, &secret)?;
    Ok(Secret::new(secret))
}

fn render(config: &AlertConfig) -> String {
    let codes = config.codes.as_ref().map(|codes| codes.iter().map(|code| code.as_str()).collect::<Vec<_>>());
    json!({"enabled": config.enabled, "url": config.url, "codes": codes}).to_string()
}

fn parse(text: &str) -> AlertConfig {
    let value: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    let codes = value["codes"].as_array().map(|codes| codes.iter().filter_map(|code| IssueCode::from_stored(code.as_str()?)).collect());
    AlertConfig {
        enabled: value["enabled"].as_bool().unwrap_or(false),
        url: value["url"].as_str().unwrap_or_default().to_owned(),
        codes,
        has_secret: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_the_way_through_the_store() {
        let config = AlertConfig {
            enabled: true,
            url: "http://ops.example/".into(),
            codes: Some(vec![IssueCode::ModelFailed, IssueCode::DataDiskFull]),
            has_secret: false,
        };
        assert_eq!(parse(&render(&config)), config);
        assert_eq!(parse(&render(&AlertConfig { codes: None, ..config.clone() })).codes, None);
    }

    #[test]
    fn settings_that_cannot_be_read_send_nothing() {
        for text in ["", "null", "{", "[]", "{\"enabled\":\"yes\"}"] {
            assert!(!parse(text).enabled, "{text}");
        }
    }
}
