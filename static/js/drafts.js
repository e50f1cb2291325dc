// Drafts: what was typed is kept while a person logs in again, and put back into its form.
"use strict";

const DRAFT = "draft";
const fields = (where) => all("textarea, input:not([type=hidden], [type=password], [type=search])", where);
const texts = (where) => fields(where).filter((it) => !["checkbox", "radio"].includes(it.type));
// A field that was sent and refused holds what was typed, and nothing of it is known to the browser.
const refused = (where) => one(".error, [data-refused]", where);
const edited = (where) =>
  texts(where).filter((it) => it.value && (refused(where) || it.value !== it.defaultValue));
const typed = (where) => edited(where).map((it) => it.value).join("\n");
const who = () => one(".rail .who")?.textContent;

function stored(value) {
  try {
    const before = sessionStorage.getItem(DRAFT);
    if (value) sessionStorage.setItem(DRAFT, value);
    else sessionStorage.removeItem(DRAFT);
    return before;
  } catch {
    return null;
  }
}

function keepDraft() {
  const draft = edited(main).map(({ form, name, value }) => [form?.getAttribute("action"), name, value]);
  stored(JSON.stringify({ who: who(), draft }));
}

/** A region that is not to be had any more: its page again, by way of the login where the session is over. */
function leave(region, answer) {
  const approval = region.dataset.live === "approval"; // its address may be that of a form
  const page = approval ? region.dataset.src.slice(0, -1) : location.pathname + location.search;
  if (!new URL(answer.url).pathname.startsWith("/login/")) return location.assign(page);
  const unsent = typed(main) ? "&unsent=1" : "";
  keepDraft();
  location.assign(`/login/?next=${encodeURIComponent(page)}${unsent}`);
}

document.addEventListener("submit", ({ target }) => {
  if (target.method === "post") keepDraft();
});

document.addEventListener("DOMContentLoaded", () => {
  const kept = JSON.parse(stored() ?? "null");
  if (!one("[data-unsent]") || kept?.who !== who()) return;
  for (const [action, name, value] of kept.draft) {
    const field = texts(main).find((it) => it.name === name && it.form?.getAttribute("action") === action);
    if (field) field.value = value;
  }
});
