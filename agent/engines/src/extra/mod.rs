//! More arguments for an engine, as an admin gives them: which are the box's own and are refused.
//!
//! In: an engine and a list of arguments. Out: nothing, or one sentence per refused argument. Pure, and strict on purpose: whatever could
//! be read as one of the box's own flags by the engine's parser is refused, in every spelling that parser takes.

mod llama;
mod spelling;
mod vllm;

use warden_domain::{Problem, ProblemKind, engine::EngineKind, share};

use spelling::{Grammar, Word};

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
    let (grammar, owned, others): (Grammar, &[Owned], &[&str]) = match engine {
        EngineKind::LlamaCpp => (Grammar::Exact, llama::OWNED, llama::OTHERS),
        EngineKind::Vllm => (Grammar::Argparse, vllm::OWNED, vllm::OTHERS),
    };
    let mut refused: Vec<String> = Vec::new();
    if extra.len() > MOST {
        refused.push(format!("There are {} additional arguments; at most {MOST} are taken.", extra.len()));
    }
    for (place, argument) in extra.iter().enumerate() {
        let verdict = judge(grammar, owned, others, argument, place == 0);
        if let Err(sentence) = verdict
            && !refused.contains(&sentence)
        {
            refused.push(sentence);
        }
    }
    if engine == EngineKind::Vllm {
        refused.extend(share::said(extra).and_then(Result::err));
        refused.extend(extra.iter().filter_map(|argument| cut_short_share(grammar, argument)));
    }
    if refused.is_empty() {
        return Ok(());
    }
    Err(Problem::new(ProblemKind::Invalid, refused.join(" ")).hint("Take these out of the additional arguments and save again.").param("extra_args"))
}

/// The share of cards decides whether a load is begun at all, so it is read here too, and only under its whole name.
fn cut_short_share(grammar: Grammar, argument: &str) -> Option<String> {
    let Word::Flag(flag) = grammar.word(argument) else { return None };
    let whole = share::SHARE_FLAGS.iter().any(|name| flag.is_wholly(name) && !flag.written.contains(['.', '+']));
    let short = share::SHARE_FLAGS.iter().find(|name| flag.is(name) || flag.may_be_short_for(name))?;
    (!whole).then(|| format!("`{}` is read as `{short}`; write it whole.", shown(&flag.written)))
}

fn judge(grammar: Grammar, owned: &[Owned], others: &[&str], argument: &str, first: bool) -> Result<(), String> {
    if argument.len() > LONGEST || argument.contains('\0') {
        return Err(format!("An additional argument is longer than {LONGEST} bytes or holds a zero byte; no engine takes that."));
    }
    match grammar.word(argument) {
        Word::Value if first => Err(format!("`{}` is no flag: additional arguments begin with one, such as `--seed`.", shown(argument))),
        Word::Value => Ok(()),
        Word::End => Err("`--` ends the flags of an engine; what follows would be read as something else.".to_owned()),
        Word::Flag(flag) => {
            for (names, why) in owned {
                if let Some(name) = names.iter().find(|name| flag.is(name)) {
                    return Err(told(&flag.written, name, *why));
                }
            }
            if flag.split_badly {
                return Err(format!("`{}` holds a flag and its value in one; write them as two arguments.", shown(argument)));
            }
            if others.iter().any(|name| flag.is_wholly(name)) {
                return Ok(());
            }
            for (names, why) in owned {
                if let Some(name) = names.iter().find(|name| flag.may_be_short_for(name)) {
                    return Err(told(&flag.written, name, *why));
                }
            }
            Ok(())
        }
    }
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
