// The rows of the inbox: closed ones are struck. The next page takes the place of the list without a page load.
"use strict";

// --- What a refresh of an open list brings

function merge(region, fresh) {
  const closed = one("[data-closed]", fresh);
  for (const row of closed ? rows(closed) : []) strike(one(`[data-id="${row.dataset.id}"]`, region), row);
  closed?.remove();
  for (const row of rows(fresh)) unstrike(one(`[data-id="${row.dataset.id}"].gone`, region), row);
  recount(fresh);
  remark(region, fresh);
  const shown = ids(region);
  const added = one("[data-same]", fresh) ? 0 : newRows(shown, rows(fresh), one("[data-next]", region));
  if (!added) withdraw(region);
  else if (!shown) swap(region, fresh);
  else offer(region, fresh, `${added} new${byKeys() ? ", press . to show" : ": show"}`);
}

/** Count the rows that are not shown; before a next page not those after the last one that is. */
function newRows(shown, found, next) {
  const isNew = found.map((row) => !shown.includes(row.dataset.id));
  return (next ? isNew.slice(0, isNew.lastIndexOf(false) + 1) : isNew).filter(Boolean).length;
}

function strike(row, verdict) {
  if (row.classList.contains("gone")) return;
  row.style.minHeight = `${row.getBoundingClientRect().height}px`; // so that the rows below do not move
  row.classList.add("gone");
  one(".side", row).replaceWith(one(".side", verdict));
  say(`${one(".t", row).textContent}: ${one(".side", row).textContent}`);
}

/** A decision was undone: its row waits again. */
function unstrike(row, fresh) {
  if (!row) return;
  row.style.minHeight = "";
  row.classList.remove("gone");
  one(".side", row).replaceWith(one(".side", fresh));
  localise(row);
  say(`${one(".t", row).textContent}: waits again`);
}

// --- Pages

let turning = false;

/** Show another page of the list, unless rows are selected: the selection would be lost. Return whether it is shown. */
async function turn(address) {
  if (turning || one("#batch[data-any]")) return false;
  turning = true;
  try {
    const answer = await fetch(address, { headers: { "HX-Request": "true" } });
    if (answer.redirected || !answer.ok) return location.assign(address);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    one("#list").replaceWith(one("#list", page));
    history.replaceState(history.state, "", address);
    uncover(one("#list"));
    watch();
    localise(one("#list"));
    recount(inbox());
    document.dispatchEvent(new CustomEvent("swapped", { detail: [] }));
    return true;
  } catch {
    show("off");
    return false;
  } finally {
    turning = false;
  }
}

/** After the last row: choose the first one of the next page. */
async function turnOn() {
  const next = one(".pager [data-next]", inbox());
  if (next && (await turn(next.href))) links()[0]?.focus();
}

/** Tell whether rows after the chosen one wait. */
function hasMore() {
  const found = links();
  return found.slice(found.indexOf(current()) + 1).some((link) => !link.closest(".gone"));
}

/** Show the page with the open request and choose its row: the next page, the first one after the last. */
async function turnToOpen() {
  const page = one(".pager [data-next]", inbox()) ?? one(".pager [data-start]", inbox());
  if (!(await turn(page?.href ?? inbox().dataset.src))) return;
  const link = rowOf(opened); // another request may be open by now
  if (link) remember(link);
  link?.focus();
}
