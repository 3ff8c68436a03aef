// The chat page: sends the conversation to the box and shows the answer while it arrives.
// In: the form, the model list, texts in data attributes. Out: text nodes only; nothing the model writes is ever read as HTML.
"use strict";

(() => {
  const page = document.getElementById("talk"); // carries the texts
  if (!page) return;
  const words = page.dataset;
  const form = document.getElementById("composer");
  const input = document.getElementById("message");
  const model = document.getElementById("model");
  const send = document.getElementById("send");
  const stop = document.getElementById("stop");
  const clear = document.getElementById("clear");
  const turns = document.getElementById("turns");
  const empty = document.getElementById("chat-empty");
  const scroll = document.getElementById("scroll");
  const spoken = document.getElementById("spoken");
  const csrf = document.querySelector('meta[name="csrf"]')?.content ?? "";

  let history = [];
  let running = null;

  const make = (name, className, text) => {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const atEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
  const toEnd = () => { scroll.scrollTop = scroll.scrollHeight; };

  const addTurn = (mine, by, text) => {
    const turn = make("article", mine ? "turn mine" : "turn busy");
    turn.append(make("div", "by", by), make("div", "said", text), make("div", "meta"));
    if (mine) turn.lastChild.remove();
    turns.append(turn);
    if (empty) empty.hidden = true;
    if (clear) clear.hidden = false;
    toEnd();
    return turn;
  };

  const busy = (on) => {
    send.hidden = on;
    stop.hidden = !on;
    turns.setAttribute("aria-busy", String(on));
  };

  // The server's sentence when there is one, else what the status means.
  const refusal = async (response) => {
    try {
      const body = await response.json();
      const error = body.error ?? body.detail ?? {};
      const sentence = [error.message, error.hint].filter(Boolean).join(" ");
      if (sentence) return sentence;
    } catch { /* not JSON: the status has to do */ }
    return words.status.replace("{status}", response.status);
  };

  // Server-sent events out of a byte stream: one yielded object per `data:` block, `null` at `[DONE]`.
  async function* events(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const data = block.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
        if (!data) continue;
        if (data === "[DONE]") { yield null; return; }
        yield JSON.parse(data);
      }
    }
  }

  const ask = async (text) => {
    history.push({ role: "user", content: text });
    addTurn(true, words.you, text);
    const name = model.value;
    const turn = addTurn(false, name, "");
    const said = turn.querySelector(".said");
    const meta = turn.querySelector(".meta");
    meta.textContent = words.thinking;
    const started = performance.now();
    running = new AbortController();
    busy(true);

    let answer = "";
    let usage = null;
    let finished = false;
    let firstAt = null;
    const fail = (sentence) => {
      const line = make("p", "error", sentence);
      line.setAttribute("role", "alert");
      said.after(line);
    };
    try {
      const response = await fetch("/api/chat/completions", {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-CSRF-Token": csrf },
        body: JSON.stringify({ model: name, messages: history, stream: true, stream_options: { include_usage: true } }),
        signal: running.signal,
      });
      if (response.status === 401) { window.location.reload(); return; }
      if (!response.ok) {
        fail(await refusal(response));
      } else {
        for await (const event of events(response.body)) {
          if (event === null) { finished = true; break; }
          if (event.error) { fail(event.error.message ?? words.broken); finished = true; break; }
          if (event.usage) usage = event.usage;
          const piece = event.choices?.[0]?.delta?.content;
          if (!piece) continue;
          firstAt ??= performance.now();
          const follow = atEnd();
          answer += piece;
          said.append(document.createTextNode(piece));
          meta.textContent = "";
          if (follow) toEnd();
        }
        if (!finished) fail(words.broken);
      }
    } catch (error) {
      if (error.name !== "AbortError") fail(words.offline);
    }

    const stopped = running.signal.aborted;
    running = null;
    busy(false);
    turn.classList.remove("busy");
    const seconds = (performance.now() - started) / 1000;
    const figures = [];
    if (stopped) figures.push(words.stopped);
    if (usage && Number.isFinite(usage.completion_tokens)) figures.push(words.tokens.replace("{n}", usage.completion_tokens));
    if (answer) figures.push(words.seconds.replace("{n}", seconds.toFixed(1)));
    if (usage && firstAt !== null && usage.completion_tokens > 1) {
      const rate = usage.completion_tokens / Math.max((performance.now() - firstAt) / 1000, 0.001);
      figures.push(words.rate.replace("{n}", rate.toFixed(rate < 10 ? 1 : 0)));
    }
    meta.textContent = figures.join(" · ");
    if (answer) {
      history.push({ role: "assistant", content: answer });
      spoken.textContent = answer;
    } else {
      history.pop();
      if (!said.textContent) said.remove();
    }
    turn.dataset.done = "true";
    if (atEnd()) toEnd();
    input.focus();
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (!text || running || !model.value) return;
    input.value = "";
    ask(text);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  stop.addEventListener("click", () => running?.abort());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running) running.abort();
  });
  clear?.addEventListener("click", () => {
    running?.abort();
    history = [];
    turns.replaceChildren();
    if (empty) empty.hidden = false;
    clear.hidden = true;
    input.focus();
  });
  for (const starter of document.querySelectorAll("[data-starter]")) {
    starter.addEventListener("click", () => {
      input.value = starter.textContent.trim();
      input.focus();
    });
  }
})();
