//! RAUC's interface on a bus of its own, for what the real one cannot be brought to here: installs of verity bundles need device-mapper. What the
//! real one refuses is shown in `real_rauc.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rauc_client::Rauc;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, OwnedVariant, Variant, fdo};

use super::bus::Bus;

/// What the stand-in knows, and what was asked of it.
#[derive(Clone, Debug)]
pub struct State {
    /// `verity`, or what it says instead.
    pub format: &'static str,
    /// Whether the bundle has a hook.
    pub hook: bool,
    /// The product in the bundle.
    pub compatible: &'static str,
    /// The version in the bundle.
    pub version: &'static str,
    /// The end of an install; words when it fails.
    pub error: &'static str,
    /// The install does not make the slot the next one.
    pub forgets_primary: bool,
    /// Transaction and status of the other slot.
    pub installed: Option<String>,
    /// Whether the other slot could be started.
    pub other: &'static str,
    /// The slot that starts next.
    pub primary: &'static str,
    /// Installs that were begun.
    pub installs: usize,
    /// What it says it is doing.
    pub operation: &'static str,
    /// The way to it breaks at the call to install, and it goes on.
    pub breaks: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            format: "verity",
            hook: false,
            compatible: "test-box",
            version: "1.1.0",
            error: "",
            forgets_primary: false,
            installed: None,
            other: "good",
            primary: "rootfs.0",
            installs: 0,
            operation: "idle",
            breaks: false,
        }
    }
}

struct Fake(Arc<Mutex<State>>);

fn of<'a>(value: impl Into<Variant<'a>>) -> OwnedVariant {
    OwnedVariant::try_from(value.into()).unwrap()
}

#[zbus::interface(name = "de.pengutronix.rauc.Installer")]
impl Fake {
    async fn inspect_bundle(&self, _bundle: String, _args: HashMap<String, OwnedVariant>) -> HashMap<String, OwnedVariant> {
        let state = self.0.lock().unwrap().clone();
        let update = HashMap::from([("compatible", Variant::from(state.compatible)), ("version", Variant::from(state.version))]);
        let bundle = HashMap::from([("format", Variant::from(state.format))]);
        let mut all = HashMap::from([("update".to_owned(), of(update)), ("bundle".to_owned(), of(bundle)), ("manifest-hash".to_owned(), of("0"))]);
        if state.hook {
            let hooks = HashMap::from([("filename", Variant::from("hook.sh"))]);
            all.insert("hooks".to_owned(), of(hooks));
        }
        all
    }

    async fn install_bundle(
        &self,
        _source: String,
        args: HashMap<String, OwnedVariant>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> fdo::Result<()> {
        let failed = {
            let mut state = self.0.lock().unwrap();
            state.installs += 1;
            if state.breaks {
                state.operation = "installing";
                return Err(fdo::Error::NoReply("the way broke".to_owned()));
            }
            if state.error.is_empty() {
                let transaction = args.get("transaction-id").and_then(|v| <&str>::try_from(&**v).ok()).unwrap_or_default();
                state.installed = Some(transaction.to_owned());
                if !state.forgets_primary {
                    state.primary = "rootfs.1";
                }
            }
            !state.error.is_empty()
        };
        Self::completed(&emitter, i32::from(failed)).await?;
        Ok(())
    }

    async fn get_slot_status(&self) -> Vec<(String, HashMap<String, OwnedVariant>)> {
        let state = self.0.lock().unwrap().clone();
        let slot = |boot: &str, word: &str, good: &str| {
            HashMap::from([("bootname".to_owned(), of(boot)), ("state".to_owned(), of(word)), ("boot-status".to_owned(), of(good))])
        };
        let mut other = slot("b", "inactive", state.other);
        if let Some(transaction) = &state.installed {
            other.insert("status".to_owned(), of("ok"));
            other.insert("installed.transaction".to_owned(), of(transaction.as_str()));
            other.insert("bundle.version".to_owned(), of(state.version));
        }
        vec![("rootfs.0".to_owned(), slot("a", "booted", "good")), ("rootfs.1".to_owned(), other)]
    }

    async fn get_primary(&self) -> String {
        self.0.lock().unwrap().primary.to_owned()
    }

    #[zbus(property)]
    async fn operation(&self) -> String {
        self.0.lock().unwrap().operation.to_owned()
    }

    #[zbus(property)]
    async fn last_error(&self) -> String {
        self.0.lock().unwrap().error.to_owned()
    }

    #[zbus(property)]
    async fn compatible(&self) -> String {
        "test-box".to_owned()
    }

    #[zbus(signal)]
    async fn completed(emitter: &SignalEmitter<'_>, result: i32) -> zbus::Result<()>;
}

/// The stand-in on its bus.
pub struct Service {
    pub rauc: Rauc,
    pub state: Arc<Mutex<State>>,
    _service: Connection,
    _client: Connection,
    _bus: Bus,
    _folder: tempfile::TempDir,
}

impl Service {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bus = Bus::start(folder.path());
        let state = Arc::new(Mutex::new(State::default()));
        let service = bus.builder().serve_at("/", Fake(state.clone())).name("de.pengutronix.rauc").build().await.unwrap();
        let client = bus.builder().build().await.unwrap();
        let rauc = Rauc::new(&client).await.unwrap();
        Self { rauc, state, _service: service, _client: client, _bus: bus, _folder: folder }
    }

    pub fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    pub fn installs(&self) -> usize {
        self.state.lock().unwrap().installs
    }
}
