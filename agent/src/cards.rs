//! Joins the GPU reader: a service on the appliance, a child of this process on a dev machine.

use std::{path::PathBuf, sync::Arc};

use warden_domain::{change::Changes, gpu::Gpus};
use warden_gpu::{Child, GpuClient, Source};

use crate::config::{Config, Profile};

/// Where `warden-gpu.service` tells.
const SERVICE_SOCKET: &str = "/run/warden-gpu/reader.sock";
/// The reader's program, as it lies beside this one.
const PROGRAM: &str = "warden-gpu";

/// Begins to listen to the reader of this machine.
pub(crate) fn open(config: &Config, changes: &Changes) -> Arc<dyn Gpus> {
    let source = match config.profile {
        Profile::Appliance => Source::Service(SERVICE_SOCKET.into()),
        Profile::Dev => Source::Child(Child { program: program(), folder: config.runtime_dir.clone(), library: library(config) }),
    };
    GpuClient::start(source, changes.clone())
}

/// As seen from everywhere: the child has another working folder.
fn library(config: &Config) -> Option<PathBuf> {
    config.gpu_library.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()))
}

fn program() -> PathBuf {
    std::env::current_exe().map_or_else(|_| PROGRAM.into(), |own| own.with_file_name(PROGRAM))
}
