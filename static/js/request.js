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

// --- The remark: on a phone hidden until Deny is pressed, so that the bar is one row

function writeReason() {
  const field = one("#reason");
  field?.closest(".decide")?.classList.add("writing");
  field?.focus({ preventScroll: true });
  preview();
}

document.addEventListener("click", (event) => {
  const field = event.target.closest?.(".decide .no .deny") && one("#reason");
  const isOpen = field?.closest(".writing");
  if (!field || (field.offsetParent && field.value.trim())) return;
  event.preventDefault();
  if (isOpen) ask(field);
  writeReason();
});

/** Say in our own words that a reason is missing. */
function ask(field) {
  one("#reason-problem")?.remove();
  const note = made("p", { id: "reason-problem", className: "error", textContent: "Not decided: write a reason first." });
  note.setAttribute("role", "alert");
  field.before(note);
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-describedby", note.id);
}

function answered(field) {
  one("#reason-problem")?.remove();
  for (const name of ["aria-invalid", "aria-describedby"]) field.removeAttribute(name);
}

/** Show the text that the agent would receive now; the server wrote the words before it. */
function preview() {
  const [told, field] = [one("[data-told]"), one("#reason")];
  if (told && field) told.textContent = field.value || "…";
}

document.addEventListener("input", ({ target }) => {
  if (target.id !== "reason" || !target.closest(".decide")) return;
  if (target.value.trim()) answered(target);
  preview();
});

// A suggested reason is written into the field, where it can be changed. Without scripts it denies at once.
document.addEventListener("click", (event) => {
  const chosen = event.target.closest?.("button[name=preset]");
  if (!chosen) return;
  event.preventDefault();
  const field = one("#reason");
  const others = all("button[name=preset]").map((it) => it.value);
  const typed = others.includes(field.value) ? "" : field.value.trim();
  field.value = typed ? `${typed} ${chosen.value}` : chosen.value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  writeReason();
});

/** Write the suggested reason of this number, and go to the button that denies with it. */
function refuse(number) {
  const chosen = all("button[name=preset]")[number - 1];
  if (!chosen) return;
  chosen.click();
  one(".decide .no .deny").focus();
}

// Ctrl+Enter sends the form of a text field: an approval if the server asked for the reason of one.
document.addEventListener("keydown", (event) => {
  const { ctrlKey, metaKey, key, target } = event;
  if (key !== "Enter" || !(ctrlKey || metaKey) || event.repeat || !target.matches("[data-live=approval] textarea")) return;
  event.preventDefault();
  if (target.id === "reason" && !target.closest(".writing")) return; // a remark chooses no verdict
  const refused = "approves" in target.dataset && one(".decide .approve");
  const answers = target.form.matches("[data-answer]") && one(target.id === "reason" ? ".decide .deny" : ".decide .approve");
  (refused || answers || one(".deny, button:not([name], .vh)", target.form))?.click();
});

/** Open the reason if it holds text, after drafts are restored, or if the server asks for it. */
function showReason() {
  const field = one("#reason");
  if ((field?.value || field?.autofocus) && !one("#confirm")) writeReason();
}

document.addEventListener("DOMContentLoaded", () => {
  location.hash === "#to-deny" ? writeReason() : showReason();
  one("#confirm")?.focus({ preventScroll: true }); // autofocus would scroll the request away
});
