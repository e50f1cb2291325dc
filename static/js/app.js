// Basics of every page. Links and forms also work without scripts.
"use strict";

const all = (what, where = document) => [...where.querySelectorAll(what)];
const one = (what, where = document) => where.querySelector(what);
const made = (tag, properties) => Object.assign(document.createElement(tag), properties);
const root = document.documentElement;
const main = one("main");
const shown = performance.now();

// --- Announcements: one live region for screen readers, and toasts that disappear

const voice = made("p", { className: "vh", role: "status" });
main.append(voice);
const say = (text) => { voice.textContent = text; };

/** Put the toasts where they cover nothing: below the list in the split view, above the buttons of the bar, or below the page. */
function settle(toasts) {
  if (toasts && isSplit() && !panel.hidden) panel.before(toasts);
  else if (toasts) (one(".decide") ?? main).prepend(toasts);
}

function toast() {
  settle(one(".toasts"));
  const toasts = all(".toast");
  if (toasts.length) setTimeout(() => say(toasts.map((it) => it.textContent).join(" ")), 300);
  for (const it of toasts) setTimeout(() => it.remove(), 1000 * (it.dataset.seconds ?? 8));
}

// --- Time: shown in the reader's zone, counted down by the server's clock

const skew = Date.parse(document.body.dataset.now) - Date.now() || 0;
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

const PARTS = { year: "numeric", timeZoneName: "short" };
for (const part of ["month", "day", "hour", "minute", "second"]) PARTS[part] = "2-digit";

function localise(where) {
  for (const time of all("time[datetime]", where)) {
    const at = new Date(time.dateTime);
    const local = at.toLocaleString("sv", PARTS);
    time.title = `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
    if (time.textContent.endsWith(" UTC") && !document.body.dataset.zone) time.textContent = local;
  }
}

function countDown() {
  for (const time of all("time[data-countdown]")) {
    const left = Math.ceil((Date.parse(time.dateTime) - Date.now() - skew) / 1000);
    const [size, unit] = UNITS.find(([size]) => left >= size) ?? [];
    const rest = size >= 3600 ? size / 20 : 0; // 7 days are not 6 a minute later
    time.textContent = size ? `in ${Math.floor((left + rest) / size)} ${unit}` : "now";
    const deadline = time.dataset.countdown !== "undo"; // only the time to decide is urgent
    if (deadline) time.parentElement.dataset.left = left < 60 ? "none" : left < 600 ? "little" : "enough";
    for (const mark of [300, 60]) {
      if (deadline && time.before > mark && left <= mark) {
        const what = one(".t", time.closest(".row") ?? main) ?? one("h1");
        say(`Expires in ${mark / 60} min: ${what.textContent}`);
      }
    }
    if (time.before > 0 && left <= 0) document.dispatchEvent(new Event("expired"));
    time.before = left;
  }
}

// --- Forms: a button is disabled after its form was sent, until the page is shown again

document.addEventListener("submit", (event) => {
  const { target, submitter } = event;
  if (target.method !== "post" || !submitter) return;
  // The second click of a double click may land on the request, or on the second step, that opened after the first.
  const opened = (target.closest(".decide") && one(".toast a")) || submitter.name === "confirmed";
  if (opened && performance.now() < shown + 1000) return event.preventDefault();
  setTimeout(() => { submitter.disabled = true; }); // a disabled button would not be sent along
  sent.push(submitter);
});
const sent = [];
addEventListener("pageshow", () => {
  for (const button of sent.splice(0)) button.disabled = false;
});

// --- Preferences: saved in this browser for all pages

function kept(name, value) {
  try {
    if (value) localStorage.setItem(name, value);
    else if (value === "") localStorage.removeItem(name);
    return localStorage.getItem(name) ?? "";
  } catch {
    return value ?? "";
  }
}

function prefer(name, value) {
  const chosen = kept(name, value);
  if (chosen) root.dataset[name] = chosen;
  else delete root.dataset[name];
  for (const field of all(`[data-preference=${name}]`)) field.value = chosen;
}

for (const name of ["theme", "keys", "density"]) prefer(name);
for (const field of all("[data-preference]")) {
  field.onchange = () => prefer(field.dataset.preference, field.value);
}

// --- Start

/** Show the parts that work only with scripts. */
function uncover(where) {
  for (const part of all(".scripted", where)) part.hidden = false;
}

// After all scripts have read the page as the server sent it.
document.addEventListener("DOMContentLoaded", () => {
  uncover(document);
  toast();
  localise(document);
  countDown();
  setInterval(countDown, 1000);
});
