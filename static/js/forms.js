// The other forms of a request open by a key.
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

document.addEventListener("DOMContentLoaded", () => {
  const [, id] = /^#to-(ask|write)$/.exec(location.hash) ?? [];
  if (id) openForm(id);
});
