// The other forms of a request: they open by a key, and show the text that the agent would receive.
"use strict";

/** Open the card with this id, and go to its text. */
function openForm(id) {
  const card = one(`details#${id}`);
  if (!card) return;
  card.open = true;
  one("textarea", card)?.focus();
  card.scrollIntoView({ block: "center" });
}

document.addEventListener("input", ({ target }) => {
  const told = target.id && one(`[data-receives="${CSS.escape(target.id)}"]`);
  if (told) told.textContent = target.value || "…";
});

document.addEventListener("DOMContentLoaded", () => {
  const [, id] = /^#to-(changes|ask|write)$/.exec(location.hash) ?? [];
  if (id) openForm(id);
});
