//! The message catalogue as Rust: one struct with a field per plain message and a method per message with blanks, so that a page
//! naming a message that does not exist, or filling a blank that is not there, does not compile.
//!
//! A message is `name = "text with {blanks}"` in a section; `name = { one = "…", other = "…" }` has a plural that is chosen by `n`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

/// Languages in the order of the generated `Lang`; the first one is what other languages are measured against.
const LANGUAGES: &[(&str, &str)] = &[("en", "En"), ("hi", "Hi")];

enum Message {
    Plain(String),
    Plural { one: String, other: String },
}

impl Message {
    fn blanks(&self) -> BTreeSet<String> {
        match self {
            Self::Plain(text) => blanks(text),
            Self::Plural { one, other } => blanks(one).into_iter().chain(blanks(other)).chain(["n".to_owned()]).collect(),
        }
    }
}

/// Reads all languages, checks that they agree, and writes the Rust text.
pub fn generate(folder: &Path) -> Result<String, String> {
    let catalogues =
        LANGUAGES.iter().map(|(code, _)| Ok((*code, read(&folder.join(format!("{code}.toml")))?))).collect::<Result<Vec<_>, String>>()?;
    let (reference_code, reference) = catalogues.first().ok_or("no language is named in web/build/messages.rs")?;
    for (code, catalogue) in &catalogues {
        agree(reference_code, reference, code, catalogue)?;
    }

    let mut fields = String::new();
    let mut methods = String::new();
    for (name, message) in reference {
        let blanks = message.blanks();
        if blanks.is_empty() {
            let _ = writeln!(fields, "    pub(crate) {name}: &'static str,");
            continue;
        }
        let arguments = blanks
            .iter()
            .map(|blank| if blank == "n" { "n: u64".to_owned() } else { format!("{blank}: impl std::fmt::Display") })
            .collect::<Vec<_>>()
            .join(", ");
        let _ = writeln!(methods, "    pub(crate) fn {name}(&self, {arguments}) -> String {{\n        match self.lang {{");
        for ((_, variant), (_, catalogue)) in LANGUAGES.iter().zip(&catalogues) {
            let body = match catalogue.get(name) {
                Some(Message::Plain(text)) => format!("format!({})", quoted(text)),
                Some(Message::Plural { one, other }) => {
                    format!("if Lang::{variant}.is_one(n) {{ format!({}) }} else {{ format!({}) }}", quoted(one), quoted(other))
                }
                None => return Err(format!("message {name} vanished")),
            };
            let _ = writeln!(methods, "            Lang::{variant} => {body},");
        }
        methods.push_str("        }\n    }\n");
    }

    let mut out = format!("/// Every text of the console in one language.\npub(crate) struct Text {{\n    pub(crate) lang: Lang,\n{fields}}}\n\n");
    let _ = writeln!(
        out,
        "#[allow(clippy::useless_format, clippy::if_same_then_else, reason = \"written by a program: a plural may need no blank, or no plural\")]\nimpl Text {{\n{methods}}}\n"
    );
    for ((code, variant), (_, catalogue)) in LANGUAGES.iter().zip(&catalogues) {
        let _ = writeln!(out, "pub(crate) static {}: Text = Text {{\n    lang: Lang::{variant},", code.to_uppercase());
        for (name, message) in catalogue {
            if let Message::Plain(text) = message
                && message.blanks().is_empty()
            {
                let _ = writeln!(out, "    {name}: {text:?},");
            }
        }
        out.push_str("};\n");
    }
    Ok(out)
}

fn read(path: &Path) -> Result<BTreeMap<String, Message>, String> {
    println!("cargo::rerun-if-changed={}", path.display());
    let text = fs::read_to_string(path).map_err(|cause| format!("{} could not be read: {cause}", path.display()))?;
    let table: toml::Table = text.parse().map_err(|cause| format!("{} is not TOML: {cause}", path.display()))?;
    let mut messages = BTreeMap::new();
    for (section, entries) in &table {
        let entries = entries.as_table().ok_or_else(|| format!("{}: {section} is not a section", path.display()))?;
        for (name, value) in entries {
            let message = match (value.as_str(), value.as_table()) {
                (Some(text), _) => Message::Plain(text.to_owned()),
                (None, Some(forms)) => match (forms.get("one").and_then(|v| v.as_str()), forms.get("other").and_then(|v| v.as_str())) {
                    (Some(one), Some(other)) => Message::Plural { one: one.to_owned(), other: other.to_owned() },
                    _ => return Err(format!("{}: {section}.{name} needs `one` and `other`", path.display())),
                },
                _ => return Err(format!("{}: {section}.{name} is not a text", path.display())),
            };
            messages.insert(format!("{section}_{name}"), message);
        }
    }
    Ok(messages)
}

fn agree(reference_code: &str, reference: &BTreeMap<String, Message>, code: &str, catalogue: &BTreeMap<String, Message>) -> Result<(), String> {
    for (name, message) in reference {
        let Some(other) = catalogue.get(name) else {
            return Err(format!("message {name} is in web/messages/{reference_code}.toml but not in {code}.toml; translate it"));
        };
        if other.blanks() != message.blanks() {
            return Err(format!("message {name} has other blanks in {code}.toml than in {reference_code}.toml"));
        }
    }
    match catalogue.keys().find(|name| !reference.contains_key(*name)) {
        Some(name) => Err(format!("message {name} is in web/messages/{code}.toml but not in {reference_code}.toml; remove it or add it there")),
        None => Ok(()),
    }
}

fn blanks(text: &str) -> BTreeSet<String> {
    text.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name.to_owned()).collect()
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}
