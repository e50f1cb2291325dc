// The connection to the server: live updates, polling without them, and disabled forms while offline.
"use strict";

const WORDS = { live: "Live", poll: "Reconnecting…", off: "Offline" };
const DOWN = "The server cannot be reached. Decisions are not sent, and this page may be out of date.";
const dot = made("span", { className: "live", role: "status" });

function show(state) {
  const before = dot.dataset.state;
  if (before !== state) {
    dot.dataset.state = state;
    dot.textContent = WORDS[state];
  }
  if (state === "off") {
    if (one("#offline")) return;
    const box = made("div", { className: "outage" });
    const again = made("button", { className: "btn sm", type: "button", textContent: "Try again" });
    again.onclick = probe;
    box.append(made("p", { id: "offline", role: "status", textContent: DOWN }), again);
    (one(".decide") ?? main).append(box);
    for (const button of all(":is(form[method=post] button, button[form]):enabled", main)) {
      button.disabled = true;
      button.setAttribute("aria-describedby", "offline");
    }
  } else {
    one("#offline")?.parentElement.remove();
    for (const button of all("[aria-describedby=offline]")) {
      button.disabled = false;
      button.removeAttribute("aria-describedby");
    }
    if (before === "off") document.dispatchEvent(new Event("reconnected"));
  }
}

// --- Live updates: names of changed runs, one stream per visible tab, else polling

let stream = null;
let tried = 0;
let active = Date.now();
let offline = false;
let failing = false; // the server answers, but with an error
const line = () => (offline || failing ? "off" : stream?.readyState === 1 ? "live" : "poll");

async function probe() { // a local server works without a network
  offline = await fetch("/healthz").then(() => false, () => true);
  show(line());
  if (!offline) regions.forEach(refresh);
}

// A link would lead to the browser's own error page, away from what the reader has typed or reads.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (!offline || !link || link.origin !== location.origin || link.hash && link.pathname === location.pathname) return;
  event.preventDefault();
  say("Not opened: the server cannot be reached.");
  probe().then(() => { if (!offline) location.assign(link.href); });
}, true);

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
    const due = region.dataset.seconds ? 1000 * region.dataset.seconds : pace;
    if (now - region.asked >= due) refresh(region);
  }
}
