// Keyboard shortcuts: single keys. They can be switched off, and never decide a request before it was on the screen.
"use strict";

const inbox = () => one("[data-live=inbox]");
const links = () => all(".row .t", inbox());
const chosen = () => one(".row[aria-current=true] .t", inbox() ?? main);
const current = () => one(".row[aria-current] .t", inbox() ?? main); // marked, or the one before the open request
const isList = () => inbox() && (!isSplit() || panel.hidden);
const searches = one(".rail .search-link");
const follow = (what) => one(what)?.click();

const MOVES = ["j", "k", "ArrowDown", "ArrowUp"];
const ACTS = [..."adcqwetm1234"]; // on the chosen or the open request
const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  ArrowDown: () => step(1),
  ArrowUp: () => step(-1),
  a: () => (isList() ? open("approve") : approve()),
  d: () => (isList() ? open("deny") : writeRemark("deny")),
  c: () => (isList() ? open("changes") : one(".decide .changes") && writeRemark("changes")),
  q: () => (isList() ? open("ask") : openForm("ask")),
  w: () => (isList() ? open("write") : openForm("write")),
  ...Object.fromEntries([1, 2, 3, 4].map((number) => [number, () => isList() || refuse(number)])),
  e: () => (isList() ? follow(".row[aria-current] .t") : follow("[data-edit]")),
  t: () => claim(isList() ? chosen() : null),
  m: () => writeComment(),
  x: () => pick(false),
  X: () => pick(true),
  b: () => one("#batch[data-any] [data-together]")?.click(),
  u: () => follow(".top a[href^='/inbox/']"),
  "/": () => one("input[type=search]")?.focus(),
  ".": () => regions.filter((region) => region.fresh).forEach(reveal),
  "?": () => one("#keys").showModal(),
};

function step(by) {
  if (!inbox()) return follow(by > 0 ? "[rel=next]" : "[rel=prev]");
  const found = links();
  const at = found.indexOf(current());
  if (by > 0 && found.length && at === found.length - 1) return turnOn();
  const next = at < 0 ? 0 : Math.min(Math.max(at + by, 0), found.length - 1);
  found[next]?.focus();
}

function open(what) {
  const link = chosen();
  if (link) location.assign(`${link.href}#to-${what}`);
}

const answerField = () => one("[data-answer] :is(input:not([type=hidden]), select, textarea)");

/** Approve a request that has been visible for a second; at high risk open the second step, or focus the button. */
function approve() {
  const field = one("#confirm") ?? one("#edit .approve") ?? answerField();
  if (field) return field.focus();
  const button = one(".decide .approve:enabled");
  const { risk, steps } = one(".decide")?.dataset ?? {};
  const plain = steps || ["low", "medium"].includes(risk);
  if (plain && performance.now() > filledAt + 1000) button?.click();
  else button?.focus();
}

function pressed(event) {
  const { key, target } = event;
  if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && key === "k" && searches) {
    event.preventDefault();
    return searches.click();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (one("dialog[open]")) return;
  if (target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]")) {
    if (key === "Escape") target.blur();
    return;
  }
  if (root.dataset.keys || !Object.hasOwn(KEYS, key)) return;
  if (key.startsWith("Arrow") && !target.closest("[data-id]")) return; // elsewhere the arrows scroll the page
  if (panel?.inert && ACTS.includes(key)) return; // another request is opening
  if (event.repeat && !MOVES.includes(key)) return; // a key held down decides nothing
  event.preventDefault();
  KEYS[key]();
}

// --- Start

document.addEventListener("keydown", pressed);
document.addEventListener("focusin", ({ target }) => {
  const row = target.closest("[data-live=inbox] .row");
  if (!row || (!isList() && !target.matches(".t"))) return; // a box of another row can be ticked beside the open request
  for (const other of all(".row[aria-current]", inbox())) other.removeAttribute("aria-current");
  row.setAttribute("aria-current", "true");
});
for (const button of all("[data-opens]")) {
  button.onclick = () => one(`#${button.dataset.opens}`).showModal();
}
if (location.hash === "#to-approve") (answerField() ?? one(".decide .approve"))?.focus();
