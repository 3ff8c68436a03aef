// The first run of a box as a person does it, in headless Chromium against a running agent.
//
//   node first-run.mjs BASE_URL CLAIM_CODE MODEL [SCREENSHOT_FOLDER]
//
// MODEL is the name of a model file found in the models folder, or a path. The box must not be claimed yet. Walks through claim, model,
// load, key, chat, keys, models and sign-in; most of it by keyboard alone; then looks at every page in both themes on a desk and on a
// phone. Any console error, any breach of the content security policy and any sideways scrolling fails it. Prints one line of JSON.

import { mkdir } from "node:fs/promises";
import path from "node:path";
import { chromium } from "playwright-core";

const [base, code, wantedModel, folder = "target/evidence/browser"] = process.argv.slice(2);
if (!base || !code || !wantedModel) {
  console.error("usage: node first-run.mjs BASE_URL CLAIM_CODE MODEL [SCREENSHOT_FOLDER]");
  process.exit(2);
}
const LOAD_LIMIT_MS = Number(process.env.LOAD_LIMIT_S ?? 900) * 1000;
const ANSWER_LIMIT_MS = Number(process.env.ANSWER_LIMIT_S ?? 180) * 1000;
const ADMIN = "ada";
const PASSWORD = "four quiet words here";

const steps = [];
const figures = {};
const faults = [];
let expecting = null; // a status the next page is meant to have

const check = (holds, sentence) => {
  if (!holds) throw new Error(sentence);
};
const step = async (name, work) => {
  const began = Date.now();
  try {
    await work();
    check(faults.length === 0, faults.join("; "));
    steps.push({ name, passed: true, seconds: (Date.now() - began) / 1000 });
  } catch (error) {
    steps.push({ name, passed: false, seconds: (Date.now() - began) / 1000, why: String(error.message ?? error).split("\n").slice(0, 4).join(" ") });
    throw error;
  }
};

const watch = async (context) => {
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`));
  });
  context.on("page", (page) => {
    page.on("console", (message) => {
      if (message.type() !== "error") return;
      if (expecting && message.text().includes(String(expecting))) return;
      faults.push(`console error on ${new URL(page.url()).pathname}: ${message.text()}`);
    });
    page.on("pageerror", (error) => faults.push(`script error on ${new URL(page.url()).pathname}: ${error.message}`));
  });
};

const type = async (page, ...keys) => {
  for (const key of keys) {
    if (key.startsWith("<")) await page.keyboard.press(key.slice(1, -1));
    else await page.keyboard.type(key);
  }
};
// Presses Tab until the focused element fits; a person without a mouse can get there.
const tabTo = async (page, selector, limit = 60) => {
  for (let i = 0; i < limit; i += 1) {
    if (await page.evaluate((s) => document.activeElement?.matches(s) ?? false, selector)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`the keyboard does not reach ${selector} on ${page.url()}`);
};
const shot = (page, name) => page.screenshot({ path: path.join(folder, `${name}.png`) });

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
let passed = false;
try {
  await mkdir(folder, { recursive: true });
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: "light", locale: "en-US" });
  await watch(context);
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  let secret = "";
  let modelUrl = "";
  let modelName = "";

  await step("an unclaimed box opens its setup", async () => {
    await page.goto(`${base}/`);
    check(new URL(page.url()).pathname === "/ui/setup", `/ led to ${page.url()}`);
    await shot(page, "01-claim");
  });

  await step("a wrong claim code is refused with a sentence", async () => {
    expecting = 403;
    await page.waitForFunction(() => document.activeElement?.id === "claim_code");
    await type(page, "WRONG-CODE", "<Tab>", ADMIN, "<Tab>", PASSWORD, "<Enter>");
    await page.waitForSelector(".notice.failed");
    check((await page.inputValue("#password")) === "", "the password came back with the page");
    await shot(page, "02-wrong-code");
    expecting = null;
  });

  await step("the right code makes the admin, by keyboard", async () => {
    await page.waitForFunction(() => document.activeElement?.id === "claim_code");
    await type(page, code, "<Tab>");
    await page.fill("#username", ADMIN);
    await tabTo(page, "#password");
    await type(page, PASSWORD, "<Enter>");
    await page.waitForURL("**/ui/setup/model");
    await shot(page, "03-model");
  });

  await step("a model is chosen, registered and loaded, by keyboard", async () => {
    const radios = await page.$$eval("input[name=candidate]", (inputs) => inputs.map((i) => ({ value: i.value, name: i.closest("label").querySelector(".name").firstChild.textContent.trim() })));
    const place = radios.findIndex((radio) => radio.value && (radio.name === wantedModel || radio.value === wantedModel || path.basename(radio.value) === wantedModel));
    if (place >= 0) {
      await tabTo(page, "input[name=candidate]");
      for (let i = 0; i < place; i += 1) await page.keyboard.press("ArrowDown");
    } else {
      if (radios.length > 0) {
        await tabTo(page, "input[name=candidate]");
        await page.keyboard.press("ArrowUp"); // round to the last row: another file
      }
      await tabTo(page, "#path");
      await type(page, wantedModel);
    }
    await tabTo(page, "button[type=submit].primary");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/ui/setup/model/*");
    await page.evaluate(() => { window.sameDocument = true; });
    modelUrl = `/ui/models/${new URL(page.url()).pathname.split("/").pop()}`;
  });

  await step("the load is followed live to the end, without a reload", async () => {
    const began = Date.now();
    const seen = new Set();
    for (;;) {
      const state = await page.getAttribute("#live [data-model-state]", "data-model-state");
      if (!seen.has(state)) {
        seen.add(state);
        await shot(page, `04-load-${state}`);
      }
      if (state === "running") break;
      check(state !== "failed", `the load failed: ${await page.innerText("#live")}`);
      check(Date.now() - began < LOAD_LIMIT_MS, `still ${state} after ${LOAD_LIMIT_MS / 1000} s`);
      await page.waitForTimeout(100);
    }
    figures.load_s = (Date.now() - began) / 1000;
    figures.states_seen = [...seen];
    check(await page.evaluate(() => window.sameDocument === true), "the page was loaded anew");
    modelName = (await page.innerText("#live h2")).trim();
  });

  await step("the first key is shown once and works on /v1", async () => {
    await tabTo(page, "#live button.primary");
    await page.keyboard.press("Enter");
    await page.waitForSelector("[data-secret]");
    secret = (await page.innerText("[data-secret]")).trim();
    check(/^vw_[A-Za-z0-9_-]{20,}$/.test(secret), "the key does not look like a key");
    await page.screenshot({ path: path.join(folder, "05-key.png"), mask: [page.locator("[data-secret]"), page.locator(".copy pre")] });
    if (process.env.WITHOUT_V1 !== "1") {
      const listed = await fetch(`${base}/v1/models`, { headers: { Authorization: `Bearer ${secret}` } });
      check(listed.status === 200, `/v1/models answered ${listed.status}`);
      check(JSON.stringify(await listed.json()).includes(modelName), `/v1/models does not list ${modelName}`);
    }
    await page.goto(`${base}/ui/setup/done`);
    check(!(await page.content()).includes(secret), "the key was shown twice");
  });

  await step("an answer streams in the chat, by keyboard", async () => {
    await page.goto(`${base}/ui/chat`);
    await page.waitForFunction(() => document.activeElement?.id === "message");
    await type(page, "Write two", "<Shift+Enter>", "short sentences about the sea.");
    check((await page.inputValue("#message")).includes("\n"), "Shift+Enter did not start a new line");
    const began = Date.now();
    await page.keyboard.press("Enter");
    const lengths = new Set();
    for (;;) {
      const now = await page.evaluate(() => {
        const turn = document.querySelector(".turn:not(.mine)");
        return { length: turn?.querySelector(".said")?.textContent.length ?? 0, done: turn?.dataset.done === "true", error: turn?.querySelector(".error")?.textContent };
      });
      check(!now.error, `the chat shows: ${now.error}`);
      if (now.length > 0) {
        figures.first_words_s ??= (Date.now() - began) / 1000;
        lengths.add(now.length);
      }
      if (now.done) break;
      check(Date.now() - began < ANSWER_LIMIT_MS, `no whole answer after ${ANSWER_LIMIT_MS / 1000} s`);
      await page.waitForTimeout(30);
    }
    figures.answer_s = (Date.now() - began) / 1000;
    figures.answer_characters = Math.max(0, ...lengths);
    figures.answer_pieces_seen = lengths.size;
    check(figures.answer_characters > 0, "the answer is empty");
    check(lengths.size > 1, "the answer came in one piece");
    check(await page.evaluate(() => document.querySelectorAll(".turn .said *").length === 0), "the answer was read as HTML");
    await shot(page, "06-chat");
  });

  await step("an answer can be stopped", async () => {
    await page.fill("#message", "Count slowly from one to five hundred, in words.");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelectorAll(".turn:not(.mine)")[1]?.querySelector(".said")?.textContent.length > 0, null, { timeout: ANSWER_LIMIT_MS });
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => document.querySelectorAll(".turn:not(.mine)")[1]?.dataset.done === "true");
    check(await page.isVisible("#send"), "the send button did not come back");
  });

  await step("a key is made, shown once and revoked in dialogs, by keyboard", async () => {
    await page.goto(`${base}/ui/keys`);
    await tabTo(page, "a[href='/ui/keys/new']");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.getElementById("dialog").open && document.activeElement?.id === "name");
    await type(page, "<Escape>");
    await page.waitForFunction(() => !document.getElementById("dialog").open);
    await tabTo(page, "a[href='/ui/keys/new']");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.activeElement?.id === "name");
    await shot(page, "07-new-key");
    await type(page, "browser-test", "<Enter>");
    await page.waitForSelector("#dialog [data-secret]");
    await page.waitForSelector("#live td:has-text('browser-test')");
    await page.waitForFunction(() => document.activeElement?.matches("#dialog [data-close]"));
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => !document.getElementById("dialog").open);
    const row = page.locator("#live tr", { hasText: "browser-test" });
    await row.locator("a", { hasText: "Revoke" }).focus();
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.getElementById("dialog").open && document.activeElement?.matches("#dialog button[type=submit]"));
    await shot(page, "08-revoke");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#live tr.gone:has-text('browser-test')");
    await page.waitForFunction(() => !document.getElementById("dialog").open);
    await shot(page, "09-keys");
  });

  await step("unload asks first, then the state changes without a reload; load brings it back", async () => {
    await page.goto(`${base}/ui/models`);
    await page.evaluate(() => { window.sameDocument = true; });
    const row = page.locator("#live tr", { hasText: modelName }).first();
    await row.locator("a[aria-haspopup=dialog]").click();
    await page.waitForFunction(() => document.getElementById("dialog").open);
    await shot(page, "10-unload");
    await page.keyboard.press("Enter");
    await page.waitForSelector(`#live tr[data-model-state=stopped]:has-text("${modelName}")`, { timeout: 60_000 });
    await row.locator("button", { hasText: "Load" }).click();
    await page.waitForSelector(`#live tr[data-model-state=running]:has-text("${modelName}")`, { timeout: LOAD_LIMIT_MS });
    check(await page.evaluate(() => window.sameDocument === true), "the page was loaded anew");
    await page.goto(`${base}${modelUrl}`);
    await page.waitForSelector("[data-launch]");
    await shot(page, "11-model");
  });

  await step("sign out, sign in", async () => {
    await page.click(".account button[hx-post='/ui/logout']");
    await page.waitForURL("**/ui/login*");
    await shot(page, "12-login");
    await page.goto(`${base}/ui/keys`);
    check(new URL(page.url()).pathname === "/ui/login", "a page opened without a session");
    await page.waitForFunction(() => document.activeElement?.id === "username");
    await type(page, ADMIN, "<Tab>", PASSWORD, "<Enter>");
    await page.waitForURL("**/ui/keys");
  });

  await step("the theme and the language can be chosen and stay", async () => {
    await page.click(".account .look button[value=dark]");
    await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");
    await page.click(".account .look button[value=hi]");
    await page.waitForFunction(() => document.documentElement.lang === "hi");
    await page.goto(`${base}/ui/`);
    check(await page.evaluate(() => document.documentElement.lang === "hi" && document.documentElement.dataset.theme === "dark"), "the choice was forgotten");
    await shot(page, "13-hindi-dark");
    await page.click(".account .look button[value=en]");
    await page.waitForFunction(() => document.documentElement.lang === "en");
    await page.click(".account .look button[value=auto]");
    await page.waitForFunction(() => document.documentElement.dataset.theme === "auto");
  });

  await step("every page holds in both themes, on a desk and on a phone", async () => {
    // Those of web/src/shell.rs.
    const NAV = 10;
    const state = await context.storageState();
    const grounds = {};
    for (const colorScheme of ["light", "dark"]) {
      for (const [size, viewport] of [["desk", { width: 1280, height: 800 }], ["phone", { width: 390, height: 844 }]]) {
        const other = await browser.newContext({ viewport, colorScheme, locale: "en-US", storageState: state, hasTouch: size === "phone" });
        await watch(other);
        const sheet = await other.newPage();
        for (const [name, where] of [["home", "/ui/"], ["models", "/ui/models"], ["model", modelUrl], ["gpus", "/ui/gpus"], ["add-model", "/ui/models/new"], ["chat", "/ui/chat"], ["keys", "/ui/keys"], ["network", "/ui/network"], ["storage", "/ui/storage"], ["system", "/ui/system"], ["access", "/ui/tls"], ["issues", "/ui/issues"], ["alerts", "/ui/alerts"]]) {
          await sheet.goto(`${base}${where}`);
          await sheet.waitForTimeout(250);
          const over = await sheet.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
          check(over <= 0, `${where} is ${over} px too wide on a ${size}`);
          const nav = await sheet.$$eval(".rail li a", (links) => links.filter((l) => l.getBoundingClientRect().height >= 30).length);
          check(nav === NAV, `the navigation shows ${nav} of ${NAV} pages on ${where}, ${size}`);
          await shot(sheet, `page-${name}-${colorScheme}-${size}`);
        }
        grounds[colorScheme] = await sheet.evaluate(() => getComputedStyle(document.body).backgroundColor);
        await other.close();
      }
    }
    check(grounds.light !== grounds.dark, "both themes look the same");
  });

  await step("an address that is no page says so", async () => {
    expecting = 404;
    const response = await page.goto(`${base}/ui/no-such-page`);
    check(response.status() === 404, `status ${response.status()}`);
    await shot(page, "14-not-found");
    expecting = null;
  });
  passed = true;
} catch (error) {
  const open = browser.contexts()[0]?.pages()[0];
  if (open) await shot(open, "failure").catch(() => {});
  console.error(error);
} finally {
  await browser.close();
}
console.log(JSON.stringify({ passed, steps, figures }));
process.exit(passed ? 0 : 1);
