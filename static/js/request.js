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

// --- The remark: one field for every verdict. On a phone it is hidden until one asks for it, so that the bar is one row

/** Go to the remark, for this verdict if one is chosen. */
function writeRemark(verdict = "") {
  const field = one("#reason");
  if (!field?.closest(".decide")) return;
  field.closest(".decide").dataset.writing = verdict;
  one("#ways:popover-open")?.hidePopover();
  field.focus({ preventScroll: true });
  preview();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-writes]");
  const field = button && one("#reason");
  const verdict = button?.dataset.writes;
  if (!field || (verdict && field.offsetParent && field.value.trim())) return;
  event.preventDefault();
  if (verdict && field.closest(".decide").dataset.writing === verdict) ask(field);
  writeRemark(verdict);
});

/** Say in our own words that a reason is missing. */
function ask(field) {
  one("#reason-problem")?.remove();
  const note = made("p", { id: "reason-problem", className: "error", textContent: "Not decided: write a remark first." });
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
  for (const told of all("[data-told]")) told.textContent = one("#reason").value || "…";
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
  writeRemark("deny");
});

/** Write the suggested reason of this number, and go to the button that denies with it. */
function refuse(number) {
  const chosen = all("button[name=preset]")[number - 1];
  if (!chosen) return;
  chosen.click();
  one(".decide .no .deny").focus();
}

// Ctrl+Enter sends the form of a text field.
document.addEventListener("keydown", (event) => {
  const { ctrlKey, metaKey, key, target } = event;
  if (key !== "Enter" || !(ctrlKey || metaKey) || event.repeat || !target.matches("[data-live=approval] textarea")) return;
  event.preventDefault();
  buttonOf(target)?.click();
});

/** A remark belongs to the verdict that asked for it, an approval if the server asked for the reason of one. */
function buttonOf(field) {
  const bar = field.closest(".decide");
  if ("approves" in field.dataset || (!bar && field.form.matches("[data-answer]"))) return one(".decide .approve");
  if (bar) return bar.dataset.writing ? one(`[data-writes=${bar.dataset.writing}]`, bar) : null;
  return one(".deny, button:not([name], .vh)", field.form.contains(field) ? field.form : field.closest("details"));
}

/** Open the remark if it holds text, after drafts are restored, or if the server asks for it. */
function showReason() {
  const field = one("#reason");
  if ((field?.value || field?.autofocus) && !one("#confirm")) writeRemark(one(".decide")?.dataset.writing ?? (field.autofocus ? "deny" : ""));
}

document.addEventListener("DOMContentLoaded", () => {
  const [, verdict] = /^#to-(deny|changes)$/.exec(location.hash) ?? [];
  verdict ? writeRemark(verdict) : showReason();
  one("#confirm")?.focus({ preventScroll: true }); // autofocus would scroll the request away
});
