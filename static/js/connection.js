// The connection to the server: live updates, polling without them, and disabled forms while offline.
"use strict";

const WORDS = { live: "Live", poll: "Reconnecting…", off: "Offline" };
const dot = made("span", { className: "live", role: "status" });

function show(state) {
  if (dot.dataset.state !== state) {
    dot.dataset.state = state;
    dot.textContent = WORDS[state];
  }
  if ((state === "off") === Boolean(one("#offline"))) return;
  if (state === "off") {
    const why = made("p", { id: "offline", className: "why", role: "status" });
    why.textContent = "Offline: decisions are not sent";
    (one(".decide") ?? main).append(why);
    for (const button of all(":is(form[method=post] button, button[form]):enabled", main)) {
      button.disabled = true;
      button.setAttribute("aria-describedby", "offline");
    }
  } else {
    one("#offline").remove();
    for (const button of all("[aria-describedby=offline]")) {
      button.disabled = false;
      button.removeAttribute("aria-describedby");
    }
  }
}

// --- Live updates: names of changed runs, one stream per visible tab, else polling

let stream = null;
let tried = 0;
let active = Date.now();
let offline = false;
const line = () => (offline ? "off" : stream?.readyState === 1 ? "live" : "poll");

async function probe() { // a local server works without a network
  offline = await fetch("/healthz").then(() => false, () => true);
  show(line());
}

function listen() {
  if (stream || document.hidden || !regions.length) return;
  tried = Date.now();
  stream = new EventSource("/events/");
  stream.onopen = () => { show("live"); regions.forEach(refresh); }; // refresh for updates missed before
  stream.onerror = () => { hangUp(); show(line()); };
  stream.addEventListener("inbox", () => notify((it) => it.live === "inbox"));
  stream.addEventListener("run", ({ data }) => notify((it) => it.run === data));
}

const notify = (meant) => regions.filter((it) => meant(it.dataset)).forEach(refresh);

function hangUp() {
  stream?.close();
  stream = null;
}

function tick() {
  if (document.hidden) return;
  const now = Date.now();
  if (offline) probe();
  if (now - tried >= 30_000) listen();
  const pace = line() === "live" ? Infinity : now - active < 60_000 ? 3000 : 60_000;
  for (const region of regions) {
    const due = region.dataset.live === "runs" ? 10_000 : pace;
    if (now - region.asked >= due) refresh(region);
  }
}
