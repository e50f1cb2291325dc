// Split view: on a wide screen the chosen request opens beside the list, and the next one after a decision.
// Narrow screens and pages without scripts keep the list and the request on two pages.
"use strict";

const wide = matchMedia("(min-width: 1181px)");
const panel = one("#panel");
const list = () => one("[data-live=inbox]");
const isSplit = () => Boolean(panel && wide.matches && list());
const rowOf = (id) => one(`[data-id="${id}"] .t`, list());
const idOf = (address) => new URL(address, location).pathname.split("/")[2];
const isRequest = (link) => /^\/a\/[\w-]+\/$/.test(link.pathname);

let opened = ""; // the id of the request in the panel
let opening = null; // the request for it, while it is under way
let missing = null; // the link of the one that could not be loaded
let filledAt = 0; // when the panel last showed another request, or the editor another step
let quiet = false; // the focus returns to the list, and the panel stays as it is

/** Show a request beside the list. The focus stays in the list. */
async function openBeside(link) {
  const id = idOf(link.href);
  if (id !== opened) await load(link, id);
  delete panel.dataset.unasked; // only now: the request before was not turned to
  if (opened === id) remember(link);
}

/** Show the first request of the list. Until the reader turns to it, it counts neither as read nor as looked at. */
function openFirst() {
  const link = one(".row .t", list());
  if (!link) return;
  link.closest(".row").setAttribute("aria-current", "true");
  panel.dataset.unasked = "";
  panel.hidden = false; // its room is taken before the answer is here
  load(link, idOf(link.href));
}

async function load(link, id) {
  opening?.abort();
  opening = new AbortController();
  const { signal } = opening;
  opened = id;
  missing = null;
  panel.inert = true; // it still shows the request before
  try {
    const answer = await fetch(link.href, { headers: { "HX-Request": "true" }, signal });
    if (answer.status >= 500) throw answer;
    if (answer.redirected || !answer.ok) return location.assign(link.href);
    fill(await answer.text());
  } catch (problem) {
    if (problem.name === "AbortError") return;
    offline ||= !(problem instanceof Response);
    empty(link);
    show(line());
  }
}

/** Take the request before out of the panel: its row is not marked any more, and no key may reach it. */
function empty(link) {
  opened = "";
  missing = link;
  const note = made("div", { className: "outage" });
  const again = made("button", { className: "btn sm", type: "button", textContent: "Try again" });
  again.onclick = () => openBeside(link);
  note.append(made("p", { role: "alert", textContent: "Could not load." }), again);
  const news = one(".toasts");
  panel.replaceChildren(note);
  panel.hidden = panel.inert = false;
  settle(news);
}

/** Close the panel, for a request that the filter has taken out of the list. */
function close() {
  opening?.abort();
  opened = "";
  missing = null;
  panel.replaceChildren();
  panel.hidden = true;
  settle(one(".toasts"));
}

/** Keep the open request in the address, for a reload and for Back. */
function remember(link) {
  const address = new URL(location);
  address.searchParams.set("open", idOf(link.href));
  history.replaceState(history.state, "", address);
}

function fill(text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  const region = one("[data-live=approval]", page);
  const parts = region ? [region] : [...(one("main", page) ?? page.body).children].filter((it) => !it.matches(".top, .toasts"));
  const news = one(".toasts", page);
  const toasts = news ?? one(".toasts");
  one(".toasts")?.remove();
  panel.replaceChildren(...parts);
  panel.hidden = panel.inert = false;
  settle(toasts);
  panel.scrollTop = 0;
  filledAt = performance.now();
  restore(panel);
  showReason();
  uncover(panel);
  window.htmx?.process(panel);
  watch();
  localise(panel);
  countDown();
  if (news) toast();
}

/** Send a form of the panel, then show what follows: the next request, or the same one with the error. */
async function send(form, submitter) {
  const body = new FormData(form, submitter);
  const address = submitter.getAttribute("formaction") ?? form.getAttribute("action");
  let answer, text;
  delete panel.dataset.unasked;
  hold();
  try {
    // The redirect after it keeps the headers, so that the server sends the request alone, with the toast.
    const headers = { "HX-Request": "true", "HX-Target": "panel" };
    answer = await fetch(address, { method: "POST", body, headers });
    if (answer.status >= 500) throw answer;
    text = await answer.text();
  } catch {
    show("off");
    submitter.disabled = false;
    return release();
  }
  if (new URL(answer.url).pathname.startsWith("/login/")) return location.assign(location.href);
  opening?.abort(); // its answer would come into the panel after this one
  opened = idOf(answer.url);
  fill(text);
  answer.redirected ? choose(rowOf(opened)) : showProblem();
  release();
}

/** Choose the row of the open request. Without one no row is marked, and the list shows its next page if this one ends. */
function choose(link) {
  if (link) remember(link);
  quiet = true;
  (link ?? current())?.focus();
  quiet = false;
  if (!link) current()?.closest(".row").setAttribute("aria-current", "false"); // j and k go on from here
  list().again = Boolean(link || hasMore()); // it is fetched once, with the next page or by itself
  if (!list().again) turnToOpen();
}

/** Go to the field that the server asks for, or to the error. */
function showProblem() {
  const field = one("[autofocus], #confirm", panel);
  field ? field.focus({ preventScroll: true }) : one("[role=alert], h1", panel)?.scrollIntoView({ block: "center" });
}

// --- Start

if (panel) {
  document.addEventListener("focusin", ({ target }) => {
    const link = target.closest(".row .t");
    if (isSplit() && !quiet && link && list().contains(link)) openBeside(link);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='/a/']");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    if (!isSplit() || !isRequest(link) || !main.contains(link) || (event.detail === 0 && link.closest(".row"))) return; // Enter opens the page
    event.preventDefault();
    const row = list().contains(link) ? link : rowOf(idOf(link.href));
    if (panel.contains(link) && idOf(link.href) === opened) opened = ""; // back from its second step
    row ? row.focus() : current()?.closest(".row").setAttribute("aria-current", "false");
    openBeside(link);
  });
  document.addEventListener("submit", (event) => {
    const { target: form, submitter } = event;
    if (event.defaultPrevented || !submitter || form.method !== "post" || !isSplit()) return;
    if (!panel.contains(form) && !form.closest(".toast")) return;
    event.preventDefault();
    // The second click of a double click may land on the request, or on the second step, that opened after the first.
    const opened = (form.id && one(".toast a")) || submitter.name === "confirmed";
    const again = panel.contains(form) && opened && performance.now() < filledAt + 1000;
    again ? setTimeout(() => { submitter.disabled = false; }) : send(form, submitter);
  });
  document.addEventListener("htmx:afterSettle", () => {
    one(".outside", panel)?.remove();
    if (!opened || rowOf(opened)) return;
    if (!typed(panel)) return close();
    panel.prepend(made("p", { className: "note outside", role: "status", textContent: "The list does not show this request any more. Your text keeps it open." }));
  });
  for (const name of ["pointerdown", "wheel", "focusin"]) {
    panel.addEventListener(name, () => { delete panel.dataset.unasked; }, { passive: true });
  }
  document.addEventListener("reconnected", () => missing && openBeside(missing));
  document.addEventListener("DOMContentLoaded", () => {
    const asked = new URLSearchParams(location.search).get("open");
    if (!isSplit()) return;
    const row = asked && rowOf(asked);
    row ? row.focus() : openFirst();
  });
}
