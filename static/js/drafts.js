// Drafts: typed text is saved in this tab and restored into its form after a login, on Back and on a reload.
// Browsers may not cache our pages, so they cannot restore it.
"use strict";

const DRAFT = "draft";
const MOST = 50; // fields
const fields = (where) => all("textarea, input:not([type=hidden], [type=password], [type=search], #confirm)", where);
const texts = (where) => fields(where).filter((it) => !["checkbox", "radio"].includes(it.type));
// The server fills a refused field with the typed text, so the browser does not see it as edited.
const refused = (where) => one(".error, [data-refused]", where);
const edited = (where) =>
  texts(where).filter((it) => it.value && (refused(where) || it.value !== it.defaultValue));
const typed = (where) => edited(where).map((it) => it.value).join("\n");
// A tick or choice that differs from the one the server sent.
const ticked = (it) => it.checked !== it.defaultChecked;
const chose = ({ selectedIndex, options }) =>
  selectedIndex !== Math.max(0, [...options].findIndex((it) => it.defaultSelected));
const altered = (where) =>
  all("input:is([type=checkbox], [type=radio])", where).some(ticked) || all("select", where).some(chose);
const who = () => one(".rail .who")?.textContent;

/** The drafts of this tab, after storing `value` if one is given; "" deletes them. */
function stored(value) {
  try {
    if (value) sessionStorage.setItem(DRAFT, value);
    else if (value === "") sessionStorage.removeItem(DRAFT);
    return sessionStorage.getItem(DRAFT);
  } catch {
    return null;
  }
}

const place = ({ form, name }) => `${form?.getAttribute("action") ?? location.pathname} ${name}`;

function drafts() {
  const kept = JSON.parse(stored() ?? "null");
  return new Map(kept?.who === who() ? kept.draft : []);
}

function keepDraft() {
  if (!who()) return; // the login page keeps drafts unchanged
  const draft = drafts();
  for (const field of texts(main)) draft.delete(place(field));
  for (const field of edited(main)) {
    draft.set(place(field), field.value);
    // Save the number of a start form with its fields: if the form is sent twice, it starts one run.
    for (const number of all("input[name=form]", field.form ?? main)) draft.set(place(number), number.value);
  }
  stored(JSON.stringify({ who: who(), draft: [...draft].slice(-MOST) }));
}

/** Reload the page of a region that is no longer readable, through the login if the session has ended. */
function leave(region, answer) {
  const approval = region.dataset.live === "approval"; // its address may be that of a form
  const page = approval ? region.dataset.src.slice(0, -1) : location.pathname + location.search;
  if (!new URL(answer.url).pathname.startsWith("/login/")) return location.assign(page);
  const unsent = typed(main) ? "&unsent=1" : "";
  keepDraft();
  location.assign(`/login/?next=${encodeURIComponent(page)}${unsent}`);
}

document.addEventListener("input", keepDraft);
document.addEventListener("submit", ({ target }) => {
  if (target.getAttribute("action") === "/logout/") stored("");
  else if (target.method === "post") keepDraft();
});

document.addEventListener("DOMContentLoaded", () => {
  const [came] = performance.getEntriesByType("navigation");
  if (!one("[data-unsent]") && came?.type === "navigate") return;
  restore(main);
});

function restore(where) {
  const draft = drafts();
  for (const field of [...texts(where), ...all("input[name=form]", where)]) {
    field.value = draft.get(place(field)) ?? field.value;
  }
}
