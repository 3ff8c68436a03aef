//! A stand-in for RAUC that behaves as the real one cannot be made to: ends before its answer, forgets its end signal, stops moving, goes away.
//! Everything the real service can show is in `tests/real.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

mod support;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rauc_client::{Gate, InstallArgs, MarkAs, Rauc, RaucError, Which};
use support::Bus;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, fdo};

#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// The end signal is sent before the call is answered.
    EndsAtOnce,
    /// Idle again, and no end signal ever.
    ForgetsItsEnd,
    /// At work for ever.
    Stalls,
    /// At work for others.
    Busy,
}

struct Fake {
    manner: Manner,
    working: Arc<Mutex<bool>>,
    error: &'static str,
}

#[zbus::interface(name = "de.pengutronix.rauc.Installer")]
impl Fake {
    async fn install_bundle(
        &self,
        _source: String,
        _args: std::collections::HashMap<String, zbus::OwnedVariant>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> fdo::Result<()> {
        match self.manner {
            Manner::EndsAtOnce => Self::completed(&emitter, i32::from(!self.error.is_empty())).await?,
            Manner::Stalls => *self.working.lock().unwrap() = true,
            Manner::ForgetsItsEnd | Manner::Busy => {}
        }
        Ok(())
    }

    async fn mark(&self, _state: String, _slot: String) -> fdo::Result<(String, String)> {
        Err(fdo::Error::AccessDenied("not you".to_owned()))
    }

    #[zbus(property)]
    async fn operation(&self) -> String {
        let working = self.manner == Manner::Busy || *self.working.lock().unwrap();
        if working { "installing" } else { "idle" }.to_owned()
    }

    #[zbus(property)]
    async fn last_error(&self) -> String {
        self.error.to_owned()
    }

    #[zbus(signal)]
    async fn completed(emitter: &SignalEmitter<'_>, result: i32) -> zbus::Result<()>;
}

struct Bench {
    rauc: Rauc,
    client: Connection,
    service: Option<Connection>,
    _bus: Bus,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn new(manner: Manner, error: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bus = Bus::start(folder.path());
        let fake = Fake { manner, working: Arc::new(Mutex::new(false)), error };
        let service = bus.builder().serve_at("/", fake).name("de.pengutronix.rauc").build().await.unwrap();
        let client = bus.builder().build().await.unwrap();
        Self { rauc: Rauc::new(&client).await.unwrap(), client, service: Some(service), _bus: bus, _folder: folder }
    }

    async fn install(&self, stall: Duration) -> Result<(), RaucError> {
        self.rauc.install(Path::new("/x.raucb"), &InstallArgs::default(), stall, |_| ()).await
    }
}

#[tokio::test]
async fn an_install_that_ends_before_its_answer_is_not_missed() {
    Bench::new(Manner::EndsAtOnce, "").await.install(Duration::from_secs(60)).await.unwrap();
    let failed = Bench::new(Manner::EndsAtOnce, "signature verification failed").await.install(Duration::from_secs(60)).await.unwrap_err();
    assert!(matches!(&failed, RaucError::Failed { reason } if reason == "signature verification failed"));
    assert!(failed.to_string().contains("The running system was not touched"), "{failed}");
}

#[tokio::test]
async fn an_end_without_a_signal_is_read_from_the_state() {
    Bench::new(Manner::ForgetsItsEnd, "").await.install(Duration::from_millis(200)).await.unwrap();
    assert!(matches!(Bench::new(Manner::ForgetsItsEnd, "no").await.install(Duration::from_millis(200)).await, Err(RaucError::Failed { .. })));
}

#[tokio::test]
async fn an_install_that_does_not_move_is_given_up() {
    assert!(matches!(Bench::new(Manner::Stalls, "").await.install(Duration::from_millis(300)).await, Err(RaucError::Stalled(_))));
}

#[tokio::test]
async fn a_service_that_goes_away_ends_the_wait() {
    let mut bench = Bench::new(Manner::Stalls, "").await;
    let service = bench.service.take();
    let gone = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        service.unwrap().graceful_shutdown().await;
    });
    assert!(matches!(bench.install(Duration::from_secs(60)).await, Err(RaucError::Gone)));
    gone.await.unwrap();
}

#[tokio::test]
async fn a_second_install_is_not_begun() {
    assert!(matches!(Bench::new(Manner::Busy, "").await.install(Duration::from_secs(1)).await, Err(RaucError::Busy)));
}

#[tokio::test]
async fn a_mark_that_the_bus_denies_says_who_may() {
    let bench = Bench::new(Manner::EndsAtOnce, "").await;
    let denied = Gate::new(&bench.client).await.unwrap().mark(MarkAs::Good, &Which::Booted).await.unwrap_err();
    assert!(matches!(denied, RaucError::Denied { .. }), "{denied}");
    assert!(denied.to_string().contains("Only the health gate and root"));
}

#[tokio::test]
async fn an_install_can_run_as_a_task_of_its_own() {
    let bench = Bench::new(Manner::EndsAtOnce, "").await;
    let rauc = bench.rauc.clone();
    let args = InstallArgs::default();
    let task = tokio::spawn(async move { rauc.install(Path::new("/x.raucb"), &args, Duration::from_secs(60), |_| ()).await });
    task.await.unwrap().unwrap();
}
