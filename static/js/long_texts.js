// At high risk Approve waits until the end of each long text of the call was in view. Without scripts it does not wait.
"use strict";
{
  const ended = new Set(); // the texts whose end was in view

  const isLong = (text) => !one(".json, .tree", text) && (one(".long", text) || text.offsetHeight > innerHeight / 2);
  const barTop = () => one(".decide").getBoundingClientRect().top;

  /** Return the long texts of the open request whose end was not in view yet. */
  function unread() {
    const bar = one(".decide[data-risk=high]:not(:has(.second))");
    const address = bar?.closest("[data-live]")?.dataset.src;
    return all(".proposed .args dd").filter((text, number) => {
      const key = `${address} ${number}`;
      if (!address || ended.has(key) || !isLong(text)) return false;
      const { bottom } = text.getBoundingClientRect();
      const isEnd = bottom > 0 && bottom <= barTop() && !one(".long:not([open])", text);
      if (isEnd) ended.add(key);
      return !isEnd;
    });
  }

  function update() {
    const waits = unread().length > 0;
    const button = one(".decide .yes .approve");
    if (waits) button?.setAttribute("aria-disabled", "true");
    else button?.removeAttribute("aria-disabled");
    if (!waits) one("#read-first")?.remove();
  }

  /** Say what to read, and go on in it by most of a screen. */
  function goOn(text) {
    const name = text.previousElementSibling.textContent.trim();
    const note = one("#read-first") ?? made("p", { id: "read-first", className: "why" });
    note.textContent = `High risk: read ${name} to its end first.`;
    one(".decide .in").before(note);
    say(note.textContent);
    one(".long", text)?.setAttribute("open", "");
    const { top, bottom } = text.getBoundingClientRect();
    const part = isSplit() && !panel.hidden ? panel : window;
    if (top > barTop() / 2 || bottom < 0) text.scrollIntoView();
    else part.scrollBy(0, 0.6 * barTop());
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.(".decide .yes .approve");
    const [text] = button ? unread() : [];
    if (!text) return;
    event.preventDefault();
    goOn(text);
    update();
  });
  for (const name of ["scroll", "toggle", "swapped"]) document.addEventListener(name, update, { capture: true, passive: true });
  addEventListener("resize", update);
  new MutationObserver(update).observe(panel ?? main, { childList: true });
  document.addEventListener("DOMContentLoaded", update);
}
