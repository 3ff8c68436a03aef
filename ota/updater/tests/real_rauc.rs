//! The genuine RAUC service of the builder root refuses what the updater must refuse: a stranger's image, a plain one, one with a hook. Its
//! slots are files; nothing is ever written to them. It needs root, loop devices and a builder root; where one of them is missing these tests
//! say so and pass, unless `WARDEN_NEED_RAUC` is set. An install that goes through needs device-mapper and is shown in a virtual machine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set itself up should stop")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rauc_client::Rauc;
use support::bus::Bus;
use support::server::Server;
use support::{Bench, Publisher, quick};
use warden_domain::Problem;
use warden_domain::change::Changes;
use warden_domain::tasks::Tasks;
use warden_domain::update::{UpdatePhase, UpdateSettings, Updates};
use warden_update_record::Slot;
use warden_updater::{BeforeFacts, Host, Machine, Parts, UpdateRoom};

/// Runs a program of the builder root with the test's folders in their place; nothing is left in the root.
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

/// The service with everything in one folder, which the box's files share.
struct Service {
    rauc: Rauc,
    root: PathBuf,
    folder: tempfile::TempDir,
    child: Child,
    _bus: Bus,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Service {
    async fn new() -> Option<Self> {
        let root = builder_root();
        let able = root.is_some() && fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0) && Path::new("/dev/loop-control").exists();
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
             get-state) echo good ;;\nset-state) true ;;\nget-current) echo a ;;\nesac\n"
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
        let child = start.stderr(fs::File::create(top.join("service.log")).unwrap()).spawn().unwrap();
        let service = Self { rauc, root, folder, child, _bus: bus };
        for _ in 0..600 {
            if service.rauc.compatible().await.is_ok() {
                return Some(service);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the service did not come up: {}", fs::read_to_string(service.folder.path().join("service.log")).unwrap_or_default());
    }

    fn bundle(&self, signer: &str, format: &str, more: &str) -> Vec<u8> {
        let top = self.folder.path();
        let content = top.join("content");
        fs::create_dir(&content).unwrap();
        fs::write(content.join("root.img"), support::bytes("root", 600_000)).unwrap();
        fs::write(content.join("hook.sh"), "#!/bin/sh\nexit 0\n").unwrap();
        fs::set_permissions(content.join("hook.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        let hook = if more.is_empty() { "" } else { "[hooks]\nfilename=hook.sh\n" };
        let manifest =
            format!("[update]\ncompatible=test-box\nversion=1.1.0\n[bundle]\nformat={format}\n{hook}[image.rootfs]\nfilename=root.img\n{more}");
        fs::write(content.join("manifest.raucm"), manifest).unwrap();
        let made = top.join("made.raucb");
        let option = |what: &str, file: String| format!("--{what}={}/{file}", top.display());
        let (cert, key, ring) =
            (option("cert", format!("{signer}.crt")), option("key", format!("{signer}.key")), option("keyring", format!("{signer}.crt")));
        inside(&self.root, top, &["rauc", "bundle", &cert, &key, &ring, content.to_str().unwrap(), made.to_str().unwrap()]);
        fs::read(made).unwrap()
    }
}

struct RealHost(Service);

#[async_trait]
impl Host for RealHost {
    fn cannot_install(&self) -> Option<String> {
        None
    }
    async fn rauc(&self) -> Result<Rauc, Problem> {
        Ok(self.0.rauc.clone())
    }
    async fn clock_confirmed(&self) -> bool {
        false
    }
    async fn before(&self) -> BeforeFacts {
        BeforeFacts::default()
    }
    fn in_flight(&self) -> usize {
        0
    }
    async fn restart(&self) -> Result<(), Problem> {
        panic!("nothing is to be restarted here")
    }
    async fn other_slot_next(&self) -> Result<(), Problem> {
        panic!("nobody goes back here")
    }
    async fn other_slot_never(&self) -> Result<(), Problem> {
        panic!("nothing is installed here")
    }
    async fn keep_data(&self) -> Result<(), Problem> {
        Ok(())
    }
    async fn confirmed(&self) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn the_genuine_service_and_the_updater_refuse_and_write_nothing() {
    let cases = [
        ("stranger", "verity", "", "signature verification failed"),
        ("ours", "plain", "", "takes only \"verity\""),
        ("ours", "verity", "hooks=post-install\n", "brings a program along"),
    ];
    for (signer, format, more, words) in cases {
        let Some(service) = Service::new().await else { return };
        let image = service.bundle(signer, format, more);
        let slots = service.folder.path().to_owned();
        let publisher = Publisher::new("real");
        publisher.publish(1, "", &[("os", "lm-warden", "1.1.0", &image, "data_schema = 9")]);
        let server = Server::start(&publisher.path("www")).await;
        let bench = Bench::new(&publisher, false).await;
        let mut places = bench.places();
        // RAUC sees only its own folder of this machine.
        places.files = slots.join("updates");
        let changes = Changes::new();
        let tasks = Tasks::new(changes.clone());
        let room = UpdateRoom::open(Parts {
            places,
            machine: Machine {
                version: "1.0.0".into(),
                slot: Some(Slot::A),
                boot_id: "one".into(),
                counted: false,
                id: "box-1".into(),
                data_needs: 1,
            },
            host: Arc::new(RealHost(service)),
            changes,
            tasks: tasks.clone(),
            rules: quick(),
            stall: support::PATIENCE,
            left_behind: None,
        })
        .await
        .unwrap();
        let run = support::Run { room, tasks };
        run.room.configure(UpdateSettings { channel_url: Some(server.address.clone()), ..UpdateSettings::default() }).await.unwrap();
        assert_eq!(run.check().await, None);
        let failure = run.install().await.unwrap();
        assert!(failure.contains(words), "{signer} {format}: {failure}");
        let view = run.wait(UpdatePhase::Idle).await;
        assert_eq!(view.history[0].outcome, "failed");
        assert_eq!(view.slots.iter().filter(|slot| slot.running).count(), 1);
        for slot in ["slot-a", "slot-b"] {
            assert_eq!(fs::read(slots.join(slot)).unwrap(), vec![0; 1 << 20], "{signer} {format}: {slot} was written");
        }
        assert_eq!(fs::read_to_string(slots.join("primary")).unwrap(), "a");
    }
}
