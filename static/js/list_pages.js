// Pages of the inbox: the next one takes the place of the list, without a page load, when its rows are passed or done.
"use strict";

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
  return found.slice(found.indexOf(chosen()) + 1).some((link) => !link.closest(".gone"));
}

/** Show the page with the open request and choose its row: the next page, the first one after the last. */
async function turnToOpen() {
  const page = one(".pager [data-next]", inbox()) ?? one(".pager [data-start]", inbox());
  if (!(await turn(page?.href ?? inbox().dataset.src))) return;
  const link = rowOf(opened); // another request may be open by now
  if (link) remember(link);
  link?.focus();
}
