// The page of updates: sends a bundle to the box in pieces, and goes on where an earlier try stopped. In: the form with its file and its
// texts in data attributes. Out: calls of /api/updates/uploads, text nodes and a progress bar.
"use strict";

(() => {
  const form = document.getElementById("upload");
  if (!form) return;
  const words = form.dataset;
  const input = document.getElementById("bundle");
  const said = document.getElementById("upload-said");
  const box = document.getElementById("upload-progress");
  const bar = document.getElementById("upload-bar");
  const stop = document.getElementById("upload-stop");
  const submit = form.querySelector("button[type=submit]");
  const csrf = document.querySelector('meta[name="csrf"]')?.content ?? "";
  const PIECE = 8 * 1024 * 1024;
  const TRIES = 6;
  let running = null;

  const size = (bytes) => {
    const names = ["B", "KiB", "MiB", "GiB", "TiB"];
    let step = 0;
    while (bytes >= 1024 && step < names.length - 1) { bytes /= 1024; step += 1; }
    return `${step ? bytes.toFixed(1) : bytes} ${names[step]}`;
  };
  // The server's sentence when there is one, else what the status means.
  class Refused extends Error {}
  const call = async (method, path, body, type) => {
    const headers = { "X-CSRF-Token": csrf };
    if (type) headers["Content-Type"] = type;
    const response = await fetch(path, { method, headers, body, signal: running.signal });
    if (response.ok) return response.status === 204 ? null : response.json();
    let sentence = words.status.replace("{status}", response.status);
    try {
      const detail = (await response.json()).detail ?? {};
      sentence = [detail.message, detail.hint].filter(Boolean).join(" ") || sentence;
    } catch { /* not JSON: the status has to do */ }
    const error = response.status >= 500 && response.status !== 507 ? new Error(sentence) : new Refused(sentence);
    error.status = response.status;
    throw error;
  };
  const json = (value) => JSON.stringify(value);

  const found = async (file) => {
    const all = (await call("GET", "/api/updates")).state.uploads;
    return all.find((upload) => upload.name === file.name && upload.size_bytes === file.size);
  };
  const send = async (file) => {
    const begun = Date.now();
    let upload = (await found(file)) ?? (await call("POST", "/api/updates/uploads", json({ name: file.name, size_bytes: file.size }), "application/json"));
    const path = `/api/updates/uploads/${upload.id}`;
    const first = upload.received_bytes;
    let failures = 0;
    document.getElementById("upload-name").textContent = file.name;
    box.hidden = false;
    while (upload.received_bytes < file.size) {
      const at = upload.received_bytes;
      try {
        upload = await call("PUT", `${path}?offset=${at}`, file.slice(at, at + PIECE), "application/octet-stream");
        failures = 0;
      } catch (error) {
        if (error.name === "AbortError" || (error instanceof Refused && error.status !== 409)) throw error;
        failures += 1;
        if (failures >= TRIES) throw error;
        await new Promise((done) => setTimeout(done, 500 * 2 ** failures));
        upload = await call("GET", path);
      }
      const rate = (upload.received_bytes - first) / Math.max(1, (Date.now() - begun) / 1000);
      bar.value = Math.floor((upload.received_bytes * 1000) / file.size);
      document.getElementById("upload-figures").textContent = `${size(upload.received_bytes)} / ${size(file.size)} · ${size(rate)}/s`;
    }
    await call("POST", `${path}/take`, json({ install: false }), "application/json");
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const file = input.files?.[0];
    if (!file || running) return;
    running = new AbortController();
    submit.disabled = true;
    stop.hidden = false;
    said.textContent = "";
    try {
      await send(file);
      said.textContent = words.sent;
      input.value = "";
    } catch (error) {
      said.textContent = error.name === "AbortError" || error instanceof TypeError ? words.broken : error.message;
    }
    running = null;
    submit.disabled = false;
    stop.hidden = true;
    box.hidden = true;
  });
  stop.addEventListener("click", () => running?.abort());
})();
