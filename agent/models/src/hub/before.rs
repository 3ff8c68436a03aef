//! What can be told of a choice before it is fetched: whether the hub hands it out, whether it is a whole model, and what it was trained for.

use warden_domain::{Problem, ProblemKind, engine::EngineKind, units::Tokens};

use super::{Chosen, Fault, HubRoom, Repo, header::Unread, told::Header};
use crate::{gguf, inspect::no_whole_model};

impl HubRoom {
    /// The context that a choice was trained for, as far as its first bytes tell. What the hub does not hand out, or is no whole model, is
    /// refused with its sentence; a fault that passes tells nothing, and the download itself has more patience.
    pub(crate) async fn before(&self, chosen: &Chosen) -> Result<Option<Tokens>, Problem> {
        let Chosen { discovery, choice, config } = chosen;
        let repo = Repo { name: discovery.repo.clone(), revision: discovery.revision.clone() };
        let refused = |fault: Fault| if fault.passes() { Ok(None) } else { Err(fault.problem(&self.subject(&repo))) };
        // A gated repository shows its list to everybody: only a file tells whether the hub hands it out. The header is one such answer,
        // unless it is known already, maybe from the time of another token; then one byte tells.
        if let Some(first) = choice.files.first().filter(|file| file.size.0 > 0) {
            let probe = async {
                let wanted = self.file(&discovery.repo, &discovery.commit, &first.path)?;
                let header_follows = choice.engine == EngineKind::LlamaCpp && self.known(&wanted).is_none();
                if header_follows { Ok(()) } else { self.client().piece(&wanted, 0, 1).await.map(drop) }
            };
            if let Err(fault) = probe.await {
                return refused(fault);
            }
        }
        if choice.engine == EngineKind::Vllm {
            return Ok(config.as_ref().and_then(|config| config.trained));
        }
        match self.header(discovery, choice, false).await {
            Ok(header) => told(&header, &format!("{} of {}", choice.filename, repo.name)),
            Err(Unread::Hub(fault)) => refused(fault),
            Err(Unread::File(gguf::Fault::Unreadable)) => Ok(None),
            Err(Unread::File(fault)) => Err(bad(&format!("{} of {} cannot be used: {fault}", choice.filename, repo.name))
                .hint("Choose another file, or tell the owner of the repository.")),
        }
    }
}

fn told(header: &Header, what: &str) -> Result<Option<Tokens>, Problem> {
    match no_whole_model(header.kind.as_deref(), header.architecture.as_deref()) {
        Some((why, hint)) => Err(bad(&format!("{what} {why}")).hint(hint)),
        None => Ok(header.trained),
    }
}

fn bad(sentence: &str) -> Problem {
    Problem::new(ProblemKind::BadModelFile, format!("{sentence}.")).param("filename")
}
