// The page of a request: copies values, and opens the reason when it is needed.
"use strict";

document.addEventListener("click", async ({ target }) => {
  const button = target.closest?.("[data-json]");
  if (!button) return;
  const value = JSON.parse(button.dataset.json);
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  const word = button.firstChild;
  word.textContent = done ? "Copied" : "Not copied";
  say(word.textContent);
  setTimeout(() => { word.textContent = "Copy"; }, 2000);
});

// --- The reason of a denial: hidden until Deny is pressed, so that the bar is one row

function writeReason() {
  const field = one("#reason");
  field?.closest(".decide")?.classList.add("writing");
  field?.focus();
}

document.addEventListener("click", (event) => {
  const field = event.target.closest?.(".decide .no .deny") && one("#reason");
  if (!field || field.offsetParent) return;
  event.preventDefault();
  writeReason();
});

/** Open the reason if it holds text, after drafts are restored. */
function showReason() {
  if (one("#reason")?.value) writeReason();
}

document.addEventListener("DOMContentLoaded", () => (location.hash === "#to-deny" ? writeReason() : showReason()));
