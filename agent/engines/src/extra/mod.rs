//! More arguments for an engine, as an admin gives them: which are the box's own and are refused.
//!
//! In: an engine and a list of arguments. Out: nothing, or one sentence per refused argument. Pure, and strict on purpose: whatever could
//! be read as one of the box's own flags by the engine's parser is refused, in every spelling that parser takes. Code is imported by the
//! one setting that says so, and files are named that lie beside the model, or not at all.

mod llama;
mod spelling;
mod value;
mod vllm;

use std::path::Path;

use warden_domain::{Problem, ProblemKind, engine::EngineKind, share};

use spelling::{Flag, Grammar, Word};
use value::Kind;

/// Most arguments a model may have besides the box's own.
const MOST: usize = 64;
/// Longest argument, in bytes: the launcher's own limit is above it.
const LONGEST: usize = 4096;

/// Why a flag is not the admin's to set. The sentence ends what begins with the flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Listening,
    Access,
    Model,
    Name,
    Window,
    Cards,
    Telling,
    Text,
    Outside,
    Life,
    File,
    Trust,
    Code,
    Path,
}

impl Why {
    const fn sentence(self) -> &'static str {
        match self {
            Self::Listening => "says where the engine listens, and the box decides that",
            Self::Access => "says who may ask the engine, and the box decides that: keys are made on the page Keys",
            Self::Model => "says which model is loaded, and the box decides that: register the other model instead",
            Self::Name => "says under which name the model is served, and the box decides that: change the model's name instead",
            Self::Window => "says how long or how many conversations may be, and the box decides that: set the model's context and slots instead",
            Self::Cards => "says which cards or machines are used, and the box decides that: set the model's cards and replicas instead",
            Self::Telling => "changes what the engine tells the box, which then could no longer show how it is",
            Self::Text => "writes what people say to the model into a log, which the box never does",
            Self::Outside => "lets the engine reach or serve something besides its model, which the box never does",
            Self::Life => "makes the engine end, sleep or wait by itself, and the box decides that",
            Self::Trust => {
                "lets code that lies beside the model run, which is a setting of its own: an administrator who is signed in sets trust_remote_code of this one model"
            }
            Self::Code => "makes the engine load code by its name or file, which the box never does",
            Self::Path => "reads or writes files by their path, which the box never does for a model's arguments",
            Self::File => "takes arguments from a file, which the box cannot check: write them here",
        }
    }
}

/// One of the box's own flags: its names with their dashes, and why.
type Owned = (&'static [&'static str], Why);

/// Checks arguments that are to be added to the box's own.
///
/// # Errors
/// `Invalid` for the field `extra_args`, with one sentence per refused argument.
pub fn check_extra_args(engine: EngineKind, extra: &[String]) -> Result<(), Problem> {
    let (grammar, owned): (Grammar, &[Owned]) = match engine {
        EngineKind::LlamaCpp => (Grammar::Exact, llama::OWNED),
        EngineKind::Vllm => (Grammar::Argparse, vllm::OWNED),
    };
    let mut refused: Vec<String> = Vec::new();
    if extra.len() > MOST {
        refused.push(format!("There are {} additional arguments; at most {MOST} are taken.", extra.len()));
    }
    let mut say = |verdict: Result<(), String>| {
        if let Err(sentence) = verdict
            && !refused.contains(&sentence)
        {
            refused.push(sentence);
        }
    };
    let mut before = Before::Nothing;
    for (place, argument) in extra.iter().enumerate() {
        if argument.len() > LONGEST || argument.contains('\0') {
            say(Err(format!("An additional argument is longer than {LONGEST} bytes or holds a zero byte; no engine takes that.")));
        }
        match grammar.word(argument) {
            Word::Value if place == 0 => {
                say(Err(format!("`{}` is no flag: additional arguments begin with one, such as `--seed`.", shown(argument))));
                before = Before::Refused;
            }
            Word::Value => before = before.then(argument, &mut say),
            Word::End => say(Err("`--` ends the flags of an engine; what follows would be read as something else.".to_owned())),
            Word::Flag(flag) => {
                before.ends(&mut say);
                let verdict = judge(engine, owned, argument, &flag);
                before = match (&verdict, kind(engine, &flag)) {
                    (Err(_), _) => Before::Refused,
                    (Ok(()), Some(Kind::Nothing)) => Before::Done(flag.written),
                    (Ok(()), Some(kind)) if flag.value.is_none() => Before::Flag(flag.written, kind),
                    (Ok(()), Some(_)) => Before::Done(flag.written),
                    (Ok(()), None) => Before::Free,
                };
                say(verdict);
            }
        }
    }
    before.ends(&mut say);
    if engine == EngineKind::Vllm {
        // The share of cards decides whether a load is begun at all, so it is read here too.
        refused.extend(share::said(extra).and_then(Result::err));
    }
    if refused.is_empty() {
        return Ok(());
    }
    Err(Problem::new(ProblemKind::Invalid, refused.join(" ")).hint("Take these out of the additional arguments and save again.").param("extra_args"))
}

/// What the word before was.
enum Before {
    Nothing,
    /// Refused already; what belongs to it is not looked at.
    Refused,
    /// A flag of an engine whose values are not looked at.
    Free,
    /// A flag that still needs its value.
    Flag(String, Kind),
    /// A flag that has all it takes.
    Done(String),
}

impl Before {
    /// A value follows.
    fn then(self, word: &str, say: &mut impl FnMut(Result<(), String>)) -> Self {
        match self {
            Self::Flag(flag, kind) => {
                say(value::check(kind, word).map_err(|why| format!("`{flag}` {why}.")));
                Self::Done(flag)
            }
            Self::Done(flag) => {
                say(Err(format!("`{}` belongs to no flag: `{flag}` has all that it takes.", shown(word))));
                Self::Refused
            }
            other => other,
        }
    }

    /// Another flag follows, or nothing.
    fn ends(&self, say: &mut impl FnMut(Result<(), String>)) {
        if let Self::Flag(flag, _) = self {
            say(Err(format!("`{flag}` needs a value.")));
        }
    }
}

/// What follows a flag that is the admin's; `None` where that is not looked at.
fn kind(engine: EngineKind, flag: &Flag) -> Option<Kind> {
    match engine {
        EngineKind::LlamaCpp => llama::BESIDE.iter().any(|name| flag.is_wholly(name)).then_some(Kind::Beside),
        EngineKind::Vllm => {
            let named =
                |names: &[&str], kind: Kind| names.iter().any(|name| flag.is_wholly(name) || (kind == Kind::Nothing && flag.is_opposite_of(name)));
            vllm::ALLOWED.iter().find(|(names, kind)| named(names, *kind)).map(|(_, kind)| *kind)
        }
    }
}

fn judge(engine: EngineKind, owned: &[Owned], argument: &str, flag: &Flag) -> Result<(), String> {
    if let Some((name, why)) = owned.iter().find_map(|(names, why)| Some((names.iter().find(|name| flag.is(name))?, why))) {
        return Err(told(&flag.written, name, *why));
    }
    if flag.split_badly {
        return Err(format!("`{}` holds a flag and its value in one; write them as two arguments.", shown(argument)));
    }
    match (engine, kind(engine, flag), &flag.value) {
        (EngineKind::LlamaCpp, Some(_), Some(_)) => Err(format!("`{}`: this engine takes a flag and its value as two arguments.", shown(argument))),
        (EngineKind::LlamaCpp, ..) => Ok(()),
        (EngineKind::Vllm, Some(_), _) if flag.dotted => {
            Err(format!("`{}` names a part of a value; write the value whole, as JSON.", shown(&flag.written)))
        }
        (EngineKind::Vllm, Some(kind), Some(value)) => value::check(kind, value).map_err(|why| format!("`{}` {why}.", shown(&flag.written))),
        (EngineKind::Vllm, Some(_), None) => Ok(()),
        (EngineKind::Vllm, None, _) => {
            let cut = owned.iter().find_map(|(names, why)| Some((names.iter().find(|name| flag.may_be_short_for(name))?, why)));
            Err(match cut {
                Some((name, why)) => told(&flag.written, name, *why),
                None => format!("`{}` is not among the arguments of vLLM that this box passes on.", shown(&flag.written)),
            })
        }
    }
}

/// The arguments with the files that lie beside the model named by their whole paths. `folder` is the model's own.
pub(crate) fn placed(engine: EngineKind, extra: &[String], folder: &Path) -> Vec<String> {
    let grammar = if engine == EngineKind::Vllm { Grammar::Argparse } else { Grammar::Exact };
    let whole = |name: &str| folder.join(name).display().to_string();
    let mut beside = false;
    let place = |argument: &String| match grammar.word(argument) {
        Word::Flag(flag) => {
            beside = kind(engine, &flag) == Some(Kind::Beside);
            match flag.value.as_deref().filter(|_| beside) {
                Some(name) if value::is_file_name(name) => format!("{}={}", flag.written, whole(name)),
                _ => argument.clone(),
            }
        }
        _ if std::mem::take(&mut beside) && value::is_file_name(argument) => whole(argument),
        _ => argument.clone(),
    };
    extra.iter().map(place).collect()
}

fn told(written: &str, name: &str, why: Why) -> String {
    if written == name {
        format!("`{name}` {}.", why.sentence())
    } else {
        format!("`{}` is read as `{name}`, which {}.", shown(written), why.sentence())
    }
}

fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(60).collect()
}

#[cfg(test)]
mod tests;
