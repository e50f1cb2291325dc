// The map of a run: an opened step is read beside it, and its row is marked.
"use strict";

document.addEventListener("htmx:afterSettle", ({ target, detail }) => {
  if (target.id !== "step") return;
  const before = one(".wf [aria-current]");
  before?.removeAttribute("aria-current");
  if (target.hidden) return before?.focus();
  detail.requestConfig.elt.setAttribute("aria-current", "true");
  target.focus();
});
