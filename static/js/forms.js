// The other forms of a request: they open by a key, and show the text that the agent would receive.
"use strict";

/** Open the card with this id, and go to its text. */
function openForm(id) {
  goTo(one(`details#${id} textarea`));
}

/** Open the folds around a field, and go to it. */
function goTo(field) {
  for (let fold = field?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  field?.closest("[popover]")?.showPopover();
  field?.scrollIntoView({ block: "center" });
  field?.focus({ preventScroll: true });
}

document.addEventListener("input", ({ target }) => {
  const told = target.id && one(`[data-receives="${CSS.escape(target.id)}"]`);
  if (told) told.textContent = target.value || "…";
});

document.addEventListener("DOMContentLoaded", () => {
  const [, id] = /^#to-(changes|ask|write)$/.exec(location.hash) ?? [];
  if (id) openForm(id);
});
