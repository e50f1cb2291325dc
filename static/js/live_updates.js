// Live pages: regions that are fetched again and swapped without losing typed text or focus.
"use strict";

const regions = all("[data-live]");

let held = false; // a decision is under way: the server answers it first, and what it changes is fetched after it

// --- Live regions: swapped so that nothing moves under the cursor

async function refresh(region) {
  region.again = region.busy || held;
  if (region.again) return;
  region.busy = true;
  region.asked = Date.now();
  try {
    const known = region.dataset.live === "inbox" ? `known=${ids(region, ":not(.gone)")}${one("[data-next]", region) ? "&more=" : ""}` : "";
    const headers = { "HX-Request": "true" };
    const address = addressOf(region);
    const answer = await fetch(address + known, { headers });
    if (answer.redirected || answer.status === 404) return leave(region, answer); // no longer readable
    if (answer.status >= 500) throw answer;
    failing = false;
    const text = await answer.text();
    if (address === addressOf(region)) receive(region, text);
    else region.again = true; // a step was opened meanwhile
    show(line());
  } catch (problem) {
    failing = problem instanceof Response;
    offline = !failing;
    show(line());
  }
  setTimeout(() => {
    region.busy = false;
    if (region.again) refresh(region);
  }, 500);
}

// A step that opened beside the map is in the address of the page, and stays open.
const addressOf = (region) => region.dataset.src ?? location.pathname + location.search;

function hold() {
  held = true;
}

function release() {
  held = false;
  for (const region of regions) if (region.again && !region.busy) refresh(region);
}

function receive(region, text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  const fresh = one(region.id ? `#${region.id}` : `[data-live=${region.dataset.live}]`, page);
  if (!fresh || !region.isConnected) return;
  if (region.dataset.live === "inbox") return merge(region, fresh);
  const print = essence(fresh);
  if (print === region.print) return;
  const news = region.print !== null; // a refused form is compared with its first refresh
  region.print = print;
  const over = region.dataset.status === "pending" && fresh.dataset.status !== "pending";
  if (!news && !over) return;
  const kept = typed(region) || refused(region) || altered(region) || one("#edit", region);
  if (kept && over) return announce(region, fresh);
  const used = kept || (!region.own && one(":focus:not([tabindex='-1'])", region));
  region.own = false;
  if (used && !over) return offer(region, fresh, `${newComments(region, fresh)}. Show`);
  withdraw(region);
  swap(region, fresh);
}

function newComments(region, fresh) {
  const [old, now] = [region, fresh].map((it) => all("#comments-list > li", it).length);
  return now > old ? `New here: ${now - old} comment${now - old > 1 ? "s" : ""}` : "This page has changed";
}

const rows = (where, which = "") => all(`[data-id]${which}`, where);
const ids = (where, which) => rows(where, which).map((row) => row.dataset.id).join();
// The visible content, without parts that change on every load.
function essence(where) {
  const copy = where.cloneNode(true);
  for (const part of all("[data-teamwork], [data-claims]", copy)) part.remove();
  return copy.innerHTML.replace(/token" value="\w+|(in )?\d+ (d|h|min|s)\b( ago)?|just now|in less than a minute/g, "");
}

function recount(fresh) {
  for (const count of all("[data-count]")) count.textContent = fresh.dataset[count.dataset.count];
  const waiting = fresh.dataset.mine; // 0, or 9,999+ where there are more
  const title = waiting === "0" ? "Inbox" : `Inbox (${waiting})`;
  document.title = document.title.replace(/^\w+( \([\d,]+\+?\))?/, title);
}

const byKeys = () => !root.dataset.keys && !matchMedia("(pointer: coarse)").matches;

function offer(region, fresh, words) {
  region.fresh = fresh;
  region.bar ??= made("div", { className: "new" });
  const button = made("button", { className: "btn main", textContent: words });
  button.onclick = () => reveal(region);
  region.bar.replaceChildren(button);
  (region.closest(".stack") ?? region).before(region.bar);
  say(words);
}

// The typed text stays in its field, and the buttons are disabled, because the request is closed.
function announce(region, fresh) {
  for (const button of all("form button, button[form]", region)) button.disabled = true;
  offer(region, fresh, "Show the request as it is now");
  region.told?.remove();
  region.told = made("div", { className: "stack above" });
  const note = made("div", { className: "note warn" });
  const words = "This request was closed elsewhere. Your text was not sent; it is still below.";
  note.append(made("p", { textContent: words }), ...one(".note[role=status]", fresh).cloneNode(true).childNodes);
  region.told.append(note);
  region.bar.before(region.told);
  localise(region.told);
  note.scrollIntoView({ block: "center" });
  say(note.textContent);
}

function withdraw(region) {
  region.bar?.remove();
  region.told?.remove();
  region.fresh = null;
}

function reveal(region) {
  const fresh = region.fresh;
  withdraw(region);
  swap(region, fresh, true);
}

function swap(region, fresh, focus = region.contains(document.activeElement)) {
  const lost = typed(region);
  const pane = one(".pane:focus", region);
  const current = one("[aria-current=true]", region)?.dataset.id;
  const open = all("details[open][id]", region);
  const detail = all(".cb :checked", region).map((it) => it.value);
  const folded = all(".twig:not([open])", region);
  const news = one(".toasts", region);
  region.replaceChildren(...fresh.childNodes);
  settle(news);
  Object.assign(region.dataset, fresh.dataset);
  if (!fresh.dataset.live) regions.splice(regions.indexOf(region), 1); // its content is final
  for (const { id } of open) one(`#${CSS.escape(id)}`)?.setAttribute("open", "");
  for (const { id } of folded) one(`#${CSS.escape(id)}`)?.removeAttribute("open");
  window.htmx?.process(region);
  document.dispatchEvent(new CustomEvent("swapped", { detail }));
  localise(region);
  const verdict = one(".note[role=status]", region);
  if (lost) {
    const kept = made("div", { className: "note warn" });
    kept.append(made("p", { textContent: "Your text was not sent:" }));
    kept.append(made("p", { className: "raw", textContent: lost }));
    verdict ? verdict.after(kept) : (one(".stack", region) ?? region).prepend(kept);
  }
  if (pane) return one(".pane", region)?.focus({ preventScroll: true });
  if (!focus) return;
  const row = one(`[data-id="${current}"] .t`, region) ?? one("[data-id] .t", region);
  const place = row ?? verdict ?? one("h1, h2", region);
  if (!row) place?.setAttribute("tabindex", "-1");
  place?.focus();
}

// --- Start

function wake() {
  listen();
  regions.forEach(refresh);
}

function begin() {
  for (const region of regions.filter((it) => it.asked === undefined)) {
    region.print = refused(region) ? null : essence(region);
    region.asked = Date.now();
  }
}

/** Find the regions again, after a part of the page was replaced. */
function watch() {
  regions.splice(0, regions.length, ...all("[data-live]"));
  begin();
}

// A filtered list is a new region with its own address.
document.addEventListener("htmx:afterSettle", ({ target }) => {
  all(".new").forEach((bar) => bar.remove());
  watch();
  const region = target.closest("[data-live]");
  if (region) region.print = essence(region);
  localise(main);
  uncover(main);
});

begin();
if (regions.length) one(".top")?.append(dot);
navigator.onLine ? show(line()) : probe();
listen();
setInterval(tick, 1000);
for (const name of ["pointermove", "keydown", "scroll"]) {
  addEventListener(name, () => { active = Date.now(); }, { passive: true });
}
document.addEventListener("expired", wake);
document.addEventListener("visibilitychange", () => (document.hidden ? hangUp() : wake()));
addEventListener("pagehide", hangUp);
addEventListener("pageshow", ({ persisted }) => persisted && wake());
addEventListener("offline", () => { show("off"); probe(); });
addEventListener("online", () => { probe(); wake(); });
