// The installed app: its page without a network, and the number of requests that wait on its icon.
"use strict";

navigator.serviceWorker?.register("/sw.js").catch(() => {}); // a private window may refuse it
{
  const count = one("[data-count=mine]");
  const show = () => {
    const waiting = Number.parseInt(count.textContent.replaceAll(",", ""), 10) || 0;
    const done = waiting ? navigator.setAppBadge?.(waiting) : navigator.clearAppBadge?.();
    done?.catch(() => {}); // the system has no badges
  };
  if (count) {
    show();
    new MutationObserver(show).observe(count, { childList: true, characterData: true, subtree: true });
  }
  document.addEventListener("submit", ({ target }) => {
    if (target.getAttribute("action") === "/logout/") navigator.clearAppBadge?.().catch(() => {});
  });
}
