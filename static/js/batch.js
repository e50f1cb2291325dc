// Selection: ticks rows of the inbox for a batch, by x, with Shift a range, or all calls of one kind. Counts the ticks.
"use strict";

const MOST_TICKED = 50; // as the server allows
const boxes = () => all(".row:not(.gone) .cb input", inbox() ?? main);
const chosenBox = () => one(".row[aria-current=true]:not(.gone) .cb input", inbox() ?? main);
let lastBox = ""; // the value of the one ticked last, from which a range starts

/** Tick or untick the box of the row with the focus; with `range` all from the last one to it. */
function pick(range) {
  const box = chosenBox();
  if (!box) return;
  box.checked = range || !box.checked;
  spread(box, range);
}

function spread(box, range) {
  const found = boxes();
  const from = found.findIndex((it) => it.value === lastBox);
  const to = found.indexOf(box);
  if (range && from >= 0) {
    for (const it of found.slice(Math.min(from, to), Math.max(from, to) + 1)) it.checked = box.checked;
  }
  lastBox = box.value;
  count();
}

function pickKind() {
  const from = chosenBox() ?? boxes().find((it) => it.checked);
  if (!from) return;
  for (const it of boxes()) it.checked = it.dataset.kind === from.dataset.kind;
  count();
}

/** Show how many are ticked: of the inbox in the bar below it, of a sheet in its buttons. */
function count() {
  const bar = one("#batch");
  if (bar) {
    const number = boxes().filter((it) => it.checked).length;
    const over = number > MOST_TICKED;
    const words = `${number} selected${over ? `, at most ${MOST_TICKED} together` : ""}`;
    if (number || bar.dataset.any) say(words);
    one("[data-selected]", bar).textContent = words;
    one("[data-together]", bar).disabled = over;
    number ? (bar.dataset.any = "") : delete bar.dataset.any;
  }
  for (const place of all("[data-ticked]")) {
    const calls = place.dataset.ticked ? "[data-call]" : "";
    place.textContent = all(`.batch input[name=item]${calls}:checked`).length;
  }
}

// --- Start

document.addEventListener("click", (event) => {
  const { target } = event;
  if (target.matches?.("[data-kind-too]")) pickKind();
  if (target.matches?.(".row .cb input")) spread(target, event.shiftKey);
});
document.addEventListener("change", ({ target }) => {
  if (target.matches(".batch input[name=item]")) count();
});
document.addEventListener("submit", ({ target }) => {
  if (target.id === "batch") for (const it of all(".row.gone .cb input")) it.checked = false;
});
document.addEventListener("swapped", ({ detail }) => {
  for (const it of boxes()) it.checked = detail.includes(it.value);
  count();
});
document.addEventListener("DOMContentLoaded", count);
