//! Doing what the script says: answers whole or in a stream, silences, cuts, deaths.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use warden_fake_engine::script::{Answer, Chat, Script};

use crate::{
    chunks::{self, Form},
    figures::Slot,
    notes::End,
    serve::Body,
    wire::{Request, Wire},
};

fn head(status: u16, content_type: &str, more: &str) -> String {
    let word = match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Scripted",
    };
    // The genuine one sends the last of these too; nobody behind a gateway may see them.
    format!("HTTP/1.1 {status} {word}\r\nserver: llama.cpp\r\naccess-control-allow-origin: *\r\ncontent-type: {content_type}\r\n{more}\r\n")
}

/// A whole answer.
pub async fn plain<S: AsyncRead + AsyncWrite>(wire: &mut Wire<S>, status: u16, content_type: &str, body: &[u8]) -> Result<(), End> {
    wire.send(head(status, content_type, &format!("content-length: {}\r\n", body.len())).as_bytes()).await?;
    wire.body(body, false).await
}

/// A document.
pub async fn json<S: AsyncRead + AsyncWrite>(wire: &mut Wire<S>, status: u16, document: &Value) -> Result<(), End> {
    plain(wire, status, "application/json; charset=utf-8", document.to_string().as_bytes()).await
}

/// Any answer.
pub async fn answer<S: AsyncRead + AsyncWrite>(wire: &mut Wire<S>, answer: &Answer) -> Result<(), End> {
    wire.pause(answer.before_ms).await?;
    let text = answer.json.as_ref().map(Value::to_string).or_else(|| answer.text.clone()).unwrap_or_default();
    let content_type = answer.headers.get("content-type").map_or("application/json; charset=utf-8", String::as_str);
    let mut more = format!("content-length: {}\r\n", text.len());
    for (name, value) in answer.headers.iter().filter(|(name, _)| *name != "content-type") {
        more.push_str(&format!("{name}: {value}\r\n"));
    }
    wire.cut_after_bytes = answer.cut_after_bytes;
    wire.send(head(answer.status, content_type, &more).as_bytes()).await?;
    wire.body(text.as_bytes(), false).await
}

/// An answer of a model.
pub async fn chat<S: AsyncRead + AsyncWrite>(
    wire: &mut Wire<S>,
    slot: Option<&Slot>,
    request: &Request,
    body: &Body,
    script: &Script,
    chat: &Chat,
) -> Result<(), End> {
    let form = Form {
        plain: request.path == "/v1/completions",
        model: body.json["model"].as_str().unwrap_or("scripted").to_owned(),
        usage: body.json["stream_options"]["include_usage"] == true,
        prompt: script.tokens(&body.text),
    };
    (wire.cut_after_bytes, wire.cut_after_events) = (chat.cut_after_bytes, chat.cut_after_events);
    let mut more: String = chat.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    more.push_str("transfer-encoding: chunked\r\n");
    let begin = head(200, "text/event-stream", &more);
    if body.stream && chat.early_head {
        wire.send(begin.as_bytes()).await?;
    }
    wire.pause(chat.before_ms).await?;
    if let Some(slot) = slot {
        let used = chat.usage.unwrap_or_default();
        slot.prompt(used.prompt.unwrap_or(form.prompt), used.cached.unwrap_or(0));
    }
    if body.stream && !chat.early_head {
        wire.send(begin.as_bytes()).await?;
    }
    if let Some(opening) = form.opening().filter(|_| chat.role && body.stream) {
        wire.body(opening.as_bytes(), true).await?;
    }
    say(wire, slot, &form, body.stream, script, chat).await?;
    let said = slot.map_or(0, Slot::so_far);
    if body.stream {
        for piece in form.closing(chat, said) {
            wire.body(piece.as_bytes(), true).await?;
        }
        return wire.send(b"0\r\n\r\n").await;
    }
    match form.whole(chat, said) {
        Ok(document) => json(wire, 200, &document).await,
        Err(error) => {
            let status = error["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
            json(wire, status, &serde_json::json!({ "error": error })).await
        }
    }
}

/// The parts of an answer in their time; sent where it is a stream.
async fn say<S: AsyncRead + AsyncWrite>(
    wire: &mut Wire<S>,
    slot: Option<&Slot>,
    form: &Form,
    stream: bool,
    script: &Script,
    chat: &Chat,
) -> Result<(), End> {
    let mut first = true;
    loop {
        for step in chat.say.iter().map(chunks::step) {
            let pieces = form.pieces(&step).0;
            let tokens = chunks::tokens(script, &step);
            for _ in 0..step.repeat.max(1) {
                if !std::mem::take(&mut first) {
                    wire.pause(chat.between_ms).await?;
                }
                wire.pause(step.pause_ms).await?;
                for piece in pieces.iter().filter(|_| stream) {
                    wire.body(piece.as_bytes(), true).await?;
                }
                slot.inspect(|slot| slot.said(tokens));
                if let Some(how) = step.die {
                    wire.dies = Some(how);
                    return Err(End::Died);
                }
                if step.cut {
                    return Err(End::Cut);
                }
                if step.error.is_some() && !stream {
                    return Ok(());
                }
            }
        }
        if !chat.endless {
            return Ok(());
        }
        // A script without any pause must not keep one processor to itself.
        wire.unless_gone(tokio::task::yield_now()).await?;
    }
}

/// Ends the program.
pub fn die(how: i32) {
    crate::start::log('E', &format!("srv  scripted: the script says to end with {how}"));
    if how < 0 {
        let _cannot_fail = kill(Pid::this(), Signal::SIGKILL);
    }
    std::process::exit(how);
}
