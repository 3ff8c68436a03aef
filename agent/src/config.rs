//! The agent's one configuration file: TOML with defaults in code, a few environment overrides kept from the Docker product.
//!
//! In: a file path (optional) and the environment. Out: a checked `Config`. Reads nothing else and creates nothing.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use warden_gateway::GatewayLimits;
use warden_serving::ServingRules;

/// Version of the agent, as shown everywhere.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where the agent runs; decides the engine runner and what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// A developer's machine: engines are detached processes, console URL and claim code go to standard output.
    Dev,
    /// The appliance: engines are systemd units, the claim code is on the local screen.
    Appliance,
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Bind this address.
    Address(SocketAddr),
    /// Take the sockets systemd hands over.
    Systemd,
}

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the agent runs.
    pub profile: Profile,
    /// Where to listen.
    pub listen: Listen,
    /// Small, precious state: the database.
    pub state_dir: PathBuf,
    /// Replaceable data: `models/` lies in it.
    pub data_dir: PathBuf,
    /// Where the process runner finds engines (dev only).
    pub engines_dir: PathBuf,
    /// Sockets: engines' and the local screen's.
    pub runtime_dir: PathBuf,
    /// Folders besides `data_dir/models` from which models may be registered (dev only).
    pub model_roots: Vec<PathBuf>,
    /// Stop engines when the agent ends; `make run` wants it, the appliance never.
    pub stop_engines_on_exit: bool,
    /// How long requests in flight may go on after SIGTERM.
    pub drain: std::time::Duration,
    /// Names, besides addresses and loopback, under which the console may be reached.
    pub host_names: Vec<String>,
    /// Folder with `root.json` and `build.json`: whose updates this box takes.
    pub update_trust_dir: PathBuf,
    /// How patient the watchdog of engines is.
    pub serving: ServingRules,
    /// Bounds of the data plane.
    pub gateway: GatewayLimits,
    /// Another NVML library than the installed one (dev only).
    pub gpu_library: Option<PathBuf>,
    /// Address of the hub of models until the settings name another; `None` = the public one.
    pub hub_endpoint: Option<String>,
    /// A download that gets next to nothing for so long is begun anew.
    pub download_stall: std::time::Duration,
}

/// The file as written; every key is optional.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    profile: Option<Profile>,
    listen: Option<String>,
    state_dir: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    engines_dir: Option<PathBuf>,
    runtime_dir: Option<PathBuf>,
    model_roots: Option<Vec<PathBuf>>,
    stop_engines_on_exit: Option<bool>,
    drain_seconds: Option<u64>,
    host_names: Option<Vec<String>>,
    update_trust_dir: Option<PathBuf>,
    hub_endpoint: Option<String>,
    download_stall_seconds: Option<u64>,
    gpu_library: Option<PathBuf>,
    #[serde(default)]
    serving: Serving,
    #[serde(default)]
    gateway: GatewayTable,
}

/// The table `[serving]`; times in seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Serving {
    stuck_after_s: Option<f64>,
    silent_after_s: Option<f64>,
    hang_after_s: Option<f64>,
    restarts: Option<u32>,
    restart_window_s: Option<f64>,
    restart_pause_s: Option<f64>,
}

/// The table `[gateway]`; times in seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct GatewayTable {
    client_pause_s: Option<f64>,
    keep_alive_s: Option<f64>,
    engine_pause_s: Option<f64>,
    body_pause_s: Option<f64>,
    body_whole_s: Option<f64>,
}

/// A time that was asked for, or the usual one.
fn time(name: &'static str, asked: Option<f64>, usual: Duration) -> Result<Duration, ConfigError> {
    match asked {
        None => Ok(usual),
        Some(seconds) if (0.1..=1_000_000.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Some(seconds) => Err(value(name, &seconds.to_string(), "seconds from 0.1 to 1000000")),
    }
}

impl GatewayTable {
    fn checked(&self) -> Result<GatewayLimits, ConfigError> {
        let usual = GatewayLimits::default();
        Ok(GatewayLimits {
            client_pause: time("gateway.client_pause_s", self.client_pause_s, usual.client_pause)?,
            engine_pause: time("gateway.engine_pause_s", self.engine_pause_s, usual.engine_pause)?,
            body_pause: time("gateway.body_pause_s", self.body_pause_s, usual.body_pause)?,
            body_whole: time("gateway.body_whole_s", self.body_whole_s, usual.body_whole)?,
            keep_alive: time("gateway.keep_alive_s", self.keep_alive_s, usual.keep_alive)?,
            ..usual
        })
    }
}

impl Serving {
    fn checked(&self) -> Result<ServingRules, ConfigError> {
        let usual = ServingRules::default();
        Ok(ServingRules {
            stuck_after: time("serving.stuck_after_s", self.stuck_after_s, usual.stuck_after)?,
            silent_after: time("serving.silent_after_s", self.silent_after_s, usual.silent_after)?,
            hang_after: time("serving.hang_after_s", self.hang_after_s, usual.hang_after)?,
            restarts: self.restarts.unwrap_or(usual.restarts),
            restart_window: time("serving.restart_window_s", self.restart_window_s, usual.restart_window)?,
            restart_pause: time("serving.restart_pause_s", self.restart_pause_s, usual.restart_pause)?,
            stop_again: usual.stop_again,
        })
    }
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}: {cause}. Give the path of an existing file with --config.")]
    Read {
        /// The path given.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// It is not the TOML we know.
    #[error("the configuration {path} is not valid: {cause}")]
    Parse {
        /// The path given.
        path: PathBuf,
        /// What and where.
        cause: String,
    },
    /// A value makes no sense.
    #[error("the configuration value {name} = {value:?} cannot be used: {why}")]
    Value {
        /// Which key or variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// Why not.
        why: String,
    },
}

impl Config {
    /// Reads the file (defaults when `None`) and applies the environment.
    ///
    /// # Errors
    /// `ConfigError` names the file or value and why it cannot be used.
    pub fn load(path: Option<&Path>, env: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let file = match path {
            None => File::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|cause| ConfigError::Read { path: path.into(), cause })?;
                toml::from_str(&text).map_err(|cause| ConfigError::Parse { path: path.into(), cause: cause.to_string() })?
            }
        };
        Self::from_parts(file, env)
    }

    fn from_parts(file: File, env: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let profile = file.profile.unwrap_or(Profile::Dev);
        let mut listen = parse_listen(file.listen.as_deref().unwrap_or("127.0.0.1:8080"))?;
        if let Some(port) = env("WARDEN_PORT").filter(|p| !p.is_empty()) {
            let port: u16 = port.parse().map_err(|_| value("WARDEN_PORT", &port, "a port is a number from 1 to 65535"))?;
            if let Listen::Address(address) = &mut listen {
                address.set_port(port);
            }
        }
        let state_dir = file.state_dir.unwrap_or_else(|| "target/run/state".into());
        let data_dir = match env("VW_DATA_DIR").filter(|d| !d.is_empty()) {
            Some(dir) => dir.into(),
            None => file.data_dir.unwrap_or_else(|| "target/run/data".into()),
        };
        let runtime_dir = file.runtime_dir.unwrap_or_else(|| state_dir.join("runtime"));
        let config = Self {
            profile,
            listen,
            engines_dir: file.engines_dir.unwrap_or_else(|| data_dir.join("engines")),
            runtime_dir,
            model_roots: file.model_roots.unwrap_or_default(),
            stop_engines_on_exit: file.stop_engines_on_exit.unwrap_or(false),
            drain: std::time::Duration::from_secs(file.drain_seconds.unwrap_or(20)),
            host_names: file.host_names.unwrap_or_default(),
            update_trust_dir: file.update_trust_dir.unwrap_or_else(|| match profile {
                Profile::Appliance => "/usr/lib/warden/update".into(),
                Profile::Dev => state_dir.join("update-trust"),
            }),
            serving: file.serving.checked()?,
            gateway: file.gateway.checked()?,
            hub_endpoint: file.hub_endpoint,
            download_stall: std::time::Duration::from_secs(file.download_stall_seconds.unwrap_or(30).max(1)),
            state_dir,
            data_dir,
            gpu_library: file.gpu_library,
        };
        if let Some(library) = config.gpu_library.as_ref().filter(|_| profile == Profile::Appliance) {
            return Err(value("gpu_library", &library.to_string_lossy(), "the appliance reads its cards through its own driver only"));
        }
        if config.drain.as_secs() > 600 {
            return Err(value("drain_seconds", &config.drain.as_secs().to_string(), "at most 600"));
        }
        Ok(config)
    }

    /// The folder models are looked for in.
    #[must_use]
    pub fn models_dir(&self) -> PathBuf {
        self.data_dir.join("models")
    }
}

fn parse_listen(text: &str) -> Result<Listen, ConfigError> {
    if text == "systemd" {
        return Ok(Listen::Systemd);
    }
    text.parse().map(Listen::Address).map_err(|_| value("listen", text, "use ADDRESS:PORT such as 127.0.0.1:8080, or \"systemd\""))
}

fn value(name: &'static str, value: &str, why: &str) -> ConfigError {
    ConfigError::Value { name, value: value.into(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let env: Vec<(String, String)> = env.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        Config::from_parts(toml::from_str(text).unwrap(), |name| env.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()))
    }

    #[test]
    fn without_a_file_a_dev_machine_listens_on_loopback_only() {
        let config = parse("", &[]).unwrap();
        assert_eq!(config.profile, Profile::Dev);
        assert_eq!(config.listen, Listen::Address("127.0.0.1:8080".parse().unwrap()));
        assert!(!config.stop_engines_on_exit);
    }

    #[test]
    fn patience_with_engines_can_be_set_and_a_value_without_sense_is_refused_by_name() {
        let config = parse("[serving]\nstuck_after_s = 4\nrestarts = 1", &[]).unwrap();
        assert_eq!((config.serving.stuck_after, config.serving.restarts), (Duration::from_secs(4), 1));
        assert_eq!(config.serving.hang_after, ServingRules::default().hang_after);
        assert!(parse("[serving]\nhang_after_s = 0", &[]).unwrap_err().to_string().contains("serving.hang_after_s"));
        assert_eq!(
            (config.gateway.keep_alive, parse("[gateway]\nkeep_alive_s = 0.5", &[]).unwrap().gateway.keep_alive),
            (Duration::from_secs(10), Duration::from_millis(500))
        );
        assert!(parse("[gateway]\nkeep_alive_s = 0", &[]).unwrap_err().to_string().contains("gateway.keep_alive_s"));
    }

    #[test]
    fn times_of_the_data_plane_can_be_set_and_are_the_products_otherwise() {
        let config = parse("[gateway]\nclient_pause_s = 2.5", &[]).unwrap();
        assert_eq!(config.gateway.client_pause, Duration::from_millis(2500));
        assert_eq!((config.gateway.engine_pause, parse("", &[]).unwrap().gateway.client_pause), (Duration::from_secs(300), Duration::from_secs(60)));
        assert!(parse("[gateway]\nclient_pause_s = 0", &[]).unwrap_err().to_string().contains("gateway.client_pause_s"));
    }

    #[test]
    fn the_docker_products_variables_still_work() {
        let config = parse("", &[("WARDEN_PORT", "9999"), ("VW_DATA_DIR", "/srv/d")]).unwrap();
        assert_eq!(config.listen, Listen::Address("127.0.0.1:9999".parse().unwrap()));
        assert_eq!(config.models_dir(), PathBuf::from("/srv/d/models"));
    }

    #[test]
    fn the_appliance_takes_no_foreign_gpu_library() {
        assert!(parse("gpu_library = \"/x/lib.so\"", &[]).unwrap().gpu_library.is_some());
        let error = parse("profile = \"appliance\"\nlisten = \"systemd\"\ngpu_library = \"/x/lib.so\"", &[]).unwrap_err().to_string();
        assert!(error.contains("gpu_library"), "{error}");
    }

    #[test]
    fn a_misspelt_key_is_refused_and_named() {
        let error = toml::from_str::<File>("sate_dir = \"/x\"").unwrap_err().to_string();
        assert!(error.contains("sate_dir"), "{error}");
    }

    #[test]
    fn a_bad_address_says_what_is_expected() {
        let error = parse("listen = \"8080\"", &[]).unwrap_err().to_string();
        assert!(error.contains("ADDRESS:PORT"), "{error}");
    }
}
