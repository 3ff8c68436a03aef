// Small manners of every page: dialogs, copy buttons, exact times on hover, logs that stay at their end, a word when the line drops.
// It only reacts to events; what is shown comes from the server. It never builds HTML from text.
"use strict";

(() => {
  const dialog = () => document.getElementById("dialog");

  // A fragment that arrived in the dialog opens it; an empty one closes it.
  const settleDialog = () => {
    const box = dialog();
    if (!box) return;
    const filled = box.childElementCount > 0;
    if (filled && !box.open) box.showModal();
    if (!filled && box.open) box.close();
    if (filled) box.querySelector("[autofocus]")?.focus();
  };
  const exactTimes = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      const text = moment.toLocaleString(document.documentElement.lang, { dateStyle: "medium", timeStyle: "medium" });
      if (time.title !== text) time.title = text;
    }
  };
  // A log follows its end unless somebody scrolled up to read.
  const following = new WeakMap();
  const followLogs = (root) => {
    for (const log of root.querySelectorAll(".log")) {
      if (!following.has(log)) {
        following.set(log, true);
        log.addEventListener("scroll", () => following.set(log, log.scrollHeight - log.scrollTop - log.clientHeight < 24));
      }
      if (following.get(log)) log.scrollTop = log.scrollHeight;
    }
  };
  const settle = () => {
    settleDialog();
    exactTimes(document);
    followLogs(document);
  };

  document.addEventListener("DOMContentLoaded", () => {
    exactTimes(document);
    followLogs(document);
    dialog()?.addEventListener("close", () => dialog().replaceChildren());
  });
  document.addEventListener("htmx:finally:swap", settle);

  // Sent by the server (HX-Trigger) when an action is done.
  document.addEventListener("warden:done", () => {
    if (dialog()?.open) dialog().close();
    document.getElementById("flash")?.replaceChildren();
  });

  document.addEventListener("click", async (event) => {
    const close = event.target.closest("[data-close]");
    if (close && dialog()?.open) {
      event.preventDefault();
      dialog().close();
      return;
    }
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const box = button.closest(".copy");
    const source = box?.querySelector("code, pre");
    if (!source) return;
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      // No clipboard without TLS: select the text, so that the keyboard can copy it.
      const range = document.createRange();
      range.selectNodeContents(source);
      const selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      if (!document.execCommand("copy")) return;
      selection.removeAllRanges();
      button.focus();
    }
    box.classList.add("copied");
    setTimeout(() => box.classList.remove("copied"), 2000);
  });

  // The live line: a session that ended sends people to the login page, anything else shows that the page is not live now.
  document.addEventListener("htmx:sse:error", (event) => {
    if (event.detail?.status === 401) window.location.reload();
    document.body.classList.add("offline");
  });
  document.addEventListener("htmx:sse:after:connection", () => document.body.classList.remove("offline"));
})();
