//! The genuine RAUC service on a bus of its own, with files as slots: the one of the builder root, which is the version of the image, or the
//! host's. It needs root, loop devices and squashfs; where one of them is missing these tests say so and pass, unless `WARDEN_NEED_RAUC` is set.
//! There is no device-mapper here, so installs use the old bundle format, which the image refuses; that part is shown in a virtual machine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set itself up should stop")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rauc_client::{BootStatus, BundleFormat, Gate, InstallArgs, MarkAs, Progress, Rauc, RaucError, SlotState, Which};
use support::Bus;
use zbus::Connection;

const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a program of the builder root with the test's folder in its place; nothing is left in the root.
const ENTER: &str = r#"set -e
root=$1; folder=$2; shift 2
mount -t tmpfs tmpfs "$root/tmp"; mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder"
mount --rbind /proc "$root/proc"; mount --rbind /dev "$root/dev"
exec chroot "$root" "$@""#;

fn builder_root() -> Option<PathBuf> {
    let cache = std::env::var_os("WARDEN_CACHE").map(PathBuf::from).or_else(|| {
        let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"))).map(|c| c.join("lm-warden"))
    })?;
    let roots = fs::read_dir(cache.join("builder")).ok()?;
    roots.flatten().map(|r| r.path()).find(|r| r.join("usr/bin/rauc").exists() && r.join("usr/bin/mksquashfs").exists())
}

struct Bench {
    rauc: Rauc,
    client: Connection,
    service: Child,
    folder: tempfile::TempDir,
    root: PathBuf,
    _bus: Bus,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.service.kill();
        let _ = self.service.wait();
    }
}

impl Bench {
    async fn new() -> Option<Self> {
        let root = builder_root();
        let able = root.is_some() && nix_root() && Path::new("/dev/loop-control").exists();
        if !able {
            assert!(std::env::var_os("WARDEN_NEED_RAUC").is_none(), "WARDEN_NEED_RAUC is set, and RAUC cannot run here");
            eprintln!("skipped: no builder root with rauc (make image), not root, or no loop devices");
            return None;
        }
        let root = root.unwrap();
        let folder = tempfile::Builder::new().prefix("rauc-").tempdir_in("/tmp").unwrap();
        let top = folder.path();
        let here = top.display();
        fs::create_dir(top.join("mounts")).unwrap();
        fs::write(top.join("primary"), "a").unwrap();
        for slot in ["slot-a", "slot-b"] {
            fs::write(top.join(slot), vec![0; 1 << 20]).unwrap();
        }
        let conf = format!(
            "[system]\ncompatible=test-box\nbootloader=custom\nbundle-formats=verity plain\ndata-directory={here}\nmountprefix={here}/mounts\n\
             [handlers]\nbootloader-custom-backend={here}/backend\n[keyring]\npath={here}/ours.crt\n\
             [slot.rootfs.0]\ndevice={here}/slot-a\ntype=raw\nbootname=a\n[slot.rootfs.1]\ndevice={here}/slot-b\ntype=raw\nbootname=b\n"
        );
        fs::write(top.join("system.conf"), conf).unwrap();
        let backend = format!(
            "#!/bin/sh\ncd {here}\ncase $1 in\nget-primary) cat primary ;;\nset-primary) echo $2 >primary ;;\n\
             get-state) cat state-$2 2>/dev/null || echo good ;;\nset-state) echo $3 >state-$2 ;;\nget-current) echo a ;;\nesac\n"
        );
        fs::write(top.join("backend"), backend).unwrap();
        fs::set_permissions(top.join("backend"), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["ours", "stranger"] {
            let (key, crt) = (format!("{here}/{name}.key"), format!("{here}/{name}.crt"));
            let args = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650", "-subj"];
            inside(&root, top, &[&["openssl"][..], &args, &[&format!("/CN={name}"), "-keyout", &key, "-out", &crt]].concat());
        }
        let bus = Bus::start(top);
        let client = bus.builder().build().await.unwrap();
        let rauc = Rauc::new(&client).await.unwrap();
        let mut start = command(&root, top);
        start.args(["rauc", &format!("--conf={here}/system.conf"), "--override-boot-slot=a", "service"]);
        start.env("DBUS_SYSTEM_BUS_ADDRESS", &bus.address).stdout(Stdio::null());
        let service = start.stderr(fs::File::create(top.join("service.log")).unwrap()).spawn().unwrap();
        let bench = Self { rauc, client, service, folder, root, _bus: bus };
        for _ in 0..300 {
            if bench.rauc.compatible().await.is_ok() {
                return Some(bench);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the service did not come up: {}", fs::read_to_string(bench.folder.path().join("service.log")).unwrap_or_default());
    }

    /// Makes a bundle of a given format, signed by `signer`.
    fn bundle(&self, name: &str, signer: &str, format: &str, more: &str) -> PathBuf {
        let top = self.folder.path();
        let content = top.join(format!("{name}.content"));
        fs::create_dir(&content).unwrap();
        fs::write(content.join("root.img"), image()).unwrap();
        fs::write(content.join("hook.sh"), "#!/bin/sh\nexit 0\n").unwrap();
        fs::set_permissions(content.join("hook.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        let hook = if more.is_empty() { "" } else { "[hooks]\nfilename=hook.sh\n" };
        let manifest =
            format!("[update]\ncompatible=test-box\nversion=2.0\n[bundle]\nformat={format}\n{hook}[image.rootfs]\nfilename=root.img\n{more}");
        fs::write(content.join("manifest.raucm"), manifest).unwrap();
        let made = top.join(format!("{name}.raucb"));
        let option = |what: &str, file: String| format!("--{what}={}/{file}", top.display());
        let (cert, key, ring) =
            (option("cert", format!("{signer}.crt")), option("key", format!("{signer}.key")), option("keyring", format!("{signer}.crt")));
        inside(&self.root, top, &["rauc", "bundle", &cert, &key, &ring, content.to_str().unwrap(), made.to_str().unwrap()]);
        made
    }

    async fn install(&self, bundle: &Path, args: &InstallArgs) -> (Result<(), RaucError>, Vec<Progress>) {
        let mut steps = Vec::new();
        let outcome = self.rauc.install(bundle, args, PATIENCE, |step| steps.push(step)).await;
        (outcome, steps)
    }

    fn slot(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.path().join(name)).unwrap()
    }
}

fn nix_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

fn command(root: &Path, folder: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "/bin/sh", "-c", ENTER, "sh"]).arg(root).arg(folder);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
    command
}

fn inside(root: &Path, folder: &Path, argv: &[&str]) {
    let done = command(root, folder).args(argv).output().unwrap();
    assert!(done.status.success(), "{argv:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn image() -> Vec<u8> {
    (0..600_000_u32).map(|n| u8::try_from(n.wrapping_mul(2_654_435_761) >> 24).unwrap()).collect()
}

#[tokio::test]
async fn an_install_fills_the_other_slot_and_makes_it_the_next_to_boot() {
    let Some(bench) = Bench::new().await else { return };
    assert_eq!(bench.rauc.compatible().await.unwrap(), "test-box");
    assert_eq!(bench.rauc.booted().await.unwrap().as_deref(), Some("a"));
    assert_eq!(bench.rauc.primary().await.unwrap(), "rootfs.0");
    let bundle = bench.bundle("good", "ours", "plain", "");
    let info = bench.rauc.inspect(&bundle).await.unwrap();
    assert_eq!((info.compatible.as_str(), info.version.as_deref(), &info.format), ("test-box", Some("2.0"), &BundleFormat::Plain));
    assert!(!info.runs_code());
    assert_eq!(info.images[0].size.map(|b| b.0), Some(600_000));

    let args = InstallArgs { manifest_hash: info.manifest_hash.clone(), transaction_id: Some("11111111-2222-4333-8444-555555555555".to_owned()) };
    let (outcome, steps) = bench.install(&bundle, &args).await;
    outcome.unwrap();
    assert!(steps.len() > 3 && steps.last().is_some_and(|s| s.percent == 100), "{steps:?}");
    assert!(steps.windows(2).all(|w| w[0].percent <= w[1].percent), "progress never goes back");
    assert_eq!(bench.slot("slot-b")[..600_000], image()[..]);
    assert_eq!(bench.slot("slot-a"), vec![0; 1 << 20], "the running slot is untouched");
    assert_eq!(bench.rauc.primary().await.unwrap(), "rootfs.1");
    let slots = bench.rauc.slots().await.unwrap();
    assert_eq!((slots[0].state, slots[1].state), (SlotState::Booted, SlotState::Inactive));
    assert_eq!((slots[1].version.as_deref(), slots[1].status.as_deref()), (Some("2.0"), Some("ok")));
    assert_eq!(slots[1].transaction, args.transaction_id);
    assert_eq!(slots[1].bundle_hash, info.manifest_hash);
    assert_eq!(bench.rauc.last_error().await.unwrap(), None);
    assert!(!bench.rauc.busy().await.unwrap());
}

#[tokio::test]
async fn a_strangers_bundle_is_refused_with_raucs_reason_and_nothing_is_written() {
    let Some(bench) = Bench::new().await else { return };
    let bundle = bench.bundle("foreign", "stranger", "plain", "");
    let refused = bench.rauc.inspect(&bundle).await.unwrap_err();
    assert!(matches!(&refused, RaucError::Failed { reason } if reason.contains("signature verification failed")), "{refused}");
    let refused = bench.install(&bundle, &InstallArgs::default()).await.0.unwrap_err();
    assert!(matches!(&refused, RaucError::Failed { reason } if reason.contains("signature verification failed")), "{refused}");
    assert_eq!(bench.slot("slot-b"), vec![0; 1 << 20]);
    assert_eq!(bench.rauc.primary().await.unwrap(), "rootfs.0");
    assert!(bench.rauc.last_error().await.unwrap().is_some());
}

#[tokio::test]
async fn another_manifest_than_the_metadata_names_is_refused_and_nothing_is_written() {
    let Some(bench) = Bench::new().await else { return };
    let bundle = bench.bundle("swapped", "ours", "plain", "");
    let args = InstallArgs { manifest_hash: Some("0".repeat(64)), transaction_id: None };
    let refused = bench.install(&bundle, &args).await.0.unwrap_err();
    assert!(matches!(refused, RaucError::OtherManifest { .. }), "{refused}");
    assert_eq!(bench.slot("slot-b"), vec![0; 1 << 20]);
}

#[tokio::test]
async fn a_bundle_with_a_hook_is_known_before_it_runs() {
    let Some(bench) = Bench::new().await else { return };
    let bundle = bench.bundle("hook", "ours", "verity", "hooks=post-install\n");
    let info = bench.rauc.inspect(&bundle).await.unwrap();
    assert_eq!(info.format, BundleFormat::Verity);
    assert!(info.runs_code(), "{info:?}");
}

#[tokio::test]
async fn the_gate_marks_the_booted_slot() {
    let Some(bench) = Bench::new().await else { return };
    let gate = Gate::new(&bench.client).await.unwrap();
    let marked = gate.mark(MarkAs::Bad, &Which::Booted).await.unwrap();
    assert_eq!(marked.slot, "rootfs.0");
    assert_eq!(bench.rauc.slots().await.unwrap()[0].boot_status, BootStatus::Bad);
    gate.mark(MarkAs::Good, &Which::Booted).await.unwrap();
    assert_eq!(bench.rauc.slots().await.unwrap()[0].boot_status, BootStatus::Good);
    gate.mark(MarkAs::Active, &Which::Other).await.unwrap();
    assert_eq!(bench.rauc.primary().await.unwrap(), "rootfs.1");
    assert!(gate.mark(MarkAs::Good, &Which::Named("rootfs.9".to_owned())).await.is_err());
}
