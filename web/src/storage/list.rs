//! `/ui/storage`: what is missing, model storage, disks, and work under way; live.

use askama::Template;
use axum::{extract::State, http::HeaderMap, response::Response};
use warden_domain::{
    Problem,
    ids::TaskId,
    steps::{StepState, Steps},
    storage::{Content, Disk, Presence, Role, Volume},
};

use crate::{
    Web,
    assets::url,
    catalogue::Text,
    refusal::{self, refuse},
    respond,
    shell::Shell,
    visit::Guest,
    wording::{Progress, StateView, UNKNOWN},
};

/// Finished work stays on the page while there is not more of it than this.
const FINISHED_SHOWN: usize = 3;

struct VolumeView {
    name: String,
    serial: String,
    state: StateView,
    path: String,
    free: String,
    reason: String,
    forget_url: String,
}

struct DiskView {
    key: String,
    name: String,
    serial: String,
    size: String,
    role: StateView,
    contents: Vec<String>,
    adopt_url: String,
    import_url: String,
}

struct TaskView {
    title: String,
    state: StateView,
    bar: Option<Progress>,
    steps: Vec<(StateView, String)>,
    failure: String,
    cancel_url: String,
}

#[derive(Template)]
#[template(path = "storage/list.html", blocks = ["live"])]
pub(crate) struct List {
    page: Shell,
    elsewhere: bool,
    degraded: Vec<String>,
    /// The disks cannot be looked at: why, and the way out.
    trouble: Option<(String, String)>,
    volumes: Vec<VolumeView>,
    disks: Vec<DiskView>,
    tasks: Vec<TaskView>,
}

impl List {
    pub(crate) async fn look(web: &Web, guest: &Guest) -> Result<Self, Problem> {
        let t = guest.look.lang.text();
        let (overview, trouble) = match web.storage.overview().await {
            Ok(overview) => (overview, None),
            Err(problem) => (warden_domain::storage::Overview::default(), Some(refusal::words(&problem, t))),
        };
        let may = guest.is_admin();
        Ok(Self {
            elsewhere: overview.elsewhere,
            degraded: overview.degraded,
            trouble,
            volumes: overview.volumes.iter().map(|v| volume(v, may, t)).collect(),
            disks: overview.disks.iter().map(|d| disk(d, may, t)).collect(),
            tasks: tasks(web.tasks.list(), may, t),
            page: Shell::new(web, guest, t.storage_title, "/ui/live/storage").await?,
        })
    }

    pub(crate) const fn shell(&self) -> &Shell {
        &self.page
    }
}

fn volume(volume: &Volume, may: bool, t: &'static Text) -> VolumeView {
    let (word, label) = match &volume.presence {
        Presence::Mounted { .. } => ("running", t.storage_mounted),
        Presence::Mounting => ("loading", t.storage_mounting),
        Presence::Missing => ("failed", t.storage_missing),
        Presence::Unusable { .. } => ("failed", t.storage_unusable),
    };
    let (path, free, reason) = match &volume.presence {
        Presence::Mounted { path, free, total } => {
            let words = match (free, total) {
                (Some(free), Some(total)) => t.storage_free_of(free, total),
                _ => UNKNOWN.to_owned(),
            };
            (path.display().to_string(), words, String::new())
        }
        Presence::Unusable { reason } => (UNKNOWN.to_owned(), UNKNOWN.to_owned(), reason.clone()),
        Presence::Mounting | Presence::Missing => (UNKNOWN.to_owned(), UNKNOWN.to_owned(), String::new()),
    };
    VolumeView {
        name: volume.recorded.model.clone().unwrap_or_else(|| volume.recorded.label.clone()),
        serial: volume.recorded.serial.clone(),
        state: StateView { word, label },
        path,
        free,
        reason,
        forget_url: if may { format!("/ui/storage/volumes/{}/forget", volume.recorded.id) } else { String::new() },
    }
}

fn disk(disk: &Disk, may: bool, t: &'static Text) -> DiskView {
    let (word, label) = match disk.role {
        Role::System => ("stopped", t.storage_role_system),
        Role::Storage => ("running", t.storage_role_storage),
        Role::InUse => ("waiting", t.storage_role_in_use),
        Role::ReadOnly => ("stopped", t.storage_role_read_only),
        Role::Empty => ("stopped", t.storage_role_empty),
        Role::Blank => ("stopped", t.storage_role_blank),
        Role::Foreign => ("waiting", t.storage_role_foreign),
    };
    let url = |yes: bool, url: String| if yes && may { url } else { String::new() };
    DiskView {
        name: disk.model.clone().unwrap_or_else(|| disk.key.clone()),
        serial: disk.serial.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
        size: disk.size.map_or_else(|| UNKNOWN.to_owned(), |s| s.to_string()),
        role: StateView { word, label },
        contents: disk.contents.iter().filter(|c| c.kind.is_some()).map(content).collect(),
        adopt_url: url(matches!(disk.role, Role::Blank | Role::Foreign), format!("/ui/storage/disks/{}/adopt", disk.key)),
        import_url: url(disk.importable, format!("/ui/storage/sources/{}", disk.key)),
        key: disk.key.clone(),
    }
}

fn content(content: &Content) -> String {
    let label = content.label.as_ref().map(|l| format!(" “{l}”")).unwrap_or_default();
    format!("{} {}{label} {}", content.device, content.kind.as_deref().unwrap_or_default(), content.size)
}

/// What runs, and the last of what is over.
fn tasks(all: Vec<(TaskId, Steps)>, may: bool, t: &'static Text) -> Vec<TaskView> {
    let mut finished = 0;
    let ours = all.into_iter().filter(|(_, steps)| matches!(steps.kind.as_str(), "adopt-disk" | "import-model"));
    ours.filter(|(_, steps)| {
        finished += usize::from(steps.over());
        !steps.over() || finished <= FINISHED_SHOWN
    })
    .map(|(id, steps)| task(&id, &steps, may, t))
    .collect()
}

fn task(id: &TaskId, steps: &Steps, may: bool, t: &'static Text) -> TaskView {
    let import = steps.kind == "import-model";
    let state = match (&steps.failure, steps.over()) {
        (Some(_), _) => StateView { word: "failed", label: t.state_failed },
        (None, true) => StateView { word: "running", label: t.storage_done },
        (None, false) => StateView { word: "loading", label: if steps.cancelling { t.storage_cancelling } else { t.state_running } },
    };
    let bar = steps.current().and_then(|step| {
        let progress = step.progress.as_ref()?;
        let total = progress.total.filter(|total| *total > 0)?;
        let per_mille = |n: u64| u32::try_from(n.saturating_mul(1000) / total).unwrap_or(1000);
        let figures = t.storage_bytes_of(warden_domain::units::Bytes(progress.done), warden_domain::units::Bytes(total));
        Some(Progress { label: step.title.clone(), figures, steps: Some((per_mille(progress.done), 1000)) })
    });
    let row = |step: &warden_domain::steps::Step| {
        let word = match step.state {
            StepState::Pending | StepState::Skipped => "stopped",
            StepState::Running => "loading",
            StepState::Done => "running",
            StepState::Failed => "failed",
        };
        (StateView { word, label: step_title(&step.key, t) }, String::new())
    };
    TaskView {
        title: if import { t.storage_task_import.to_owned() } else { t.storage_task_adopt.to_owned() },
        state,
        bar,
        steps: steps.steps.iter().map(row).collect(),
        failure: steps.failure.clone().unwrap_or_default(),
        cancel_url: if may && import && !steps.over() && !steps.cancelling { format!("/ui/storage/tasks/{id}/cancel") } else { String::new() },
    }
}

fn step_title(key: &str, t: &'static Text) -> &'static str {
    match key {
        "check" => t.storage_step_check,
        "table" => t.storage_step_table,
        "format" => t.storage_step_format,
        "record" => t.storage_step_record,
        "mount" => t.storage_step_mount,
        "open" => t.storage_step_open,
        "copy" => t.storage_step_copy,
        "compare" => t.storage_step_compare,
        "register" => t.storage_step_register,
        _ => t.storage_step_close,
    }
}

/// `GET /ui/storage`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    match List::look(&web, &guest).await {
        Ok(list) => respond::page(&list),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}
