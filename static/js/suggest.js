// Suggestions of the search: each is for the word that is being typed, after the words before it.
"use strict";

document.addEventListener("input", ({ target }) => {
  if (target.id !== "q" || !target.list) return;
  const before = target.value.replace(/\S*$/, "");
  for (const option of target.list.options) option.value = before + option.dataset.term;
});
