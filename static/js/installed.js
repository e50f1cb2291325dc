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

// A channel to this browser: its address is what the browser answers.
{
  const form = one("[data-push-key]");
  const isPush = () => form.elements.kind.value === "push";
  const subscribe = async () => {
    if ((await Notification.requestPermission()) !== "granted") throw new Error("it does not allow notifications for this site");
    const { pushManager } = await navigator.serviceWorker.ready;
    await (await pushManager.getSubscription())?.unsubscribe(); // of another key or person
    return pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: form.dataset.pushKey });
  };
  const show = () => {
    form.elements.address.required = !isPush();
    form.elements.address.closest(".field").hidden = isPush();
  };
  if (form) {
    show();
    form.addEventListener("change", show);
    form.addEventListener("submit", async (event) => {
      const { address } = form.elements;
      if (!isPush() || address.value.startsWith("{")) return;
      event.preventDefault();
      try {
        address.value = JSON.stringify(await subscribe());
        form.requestSubmit();
      } catch ({ message }) {
        const problem = one("[role=alert]", form) ?? form.appendChild(made("p", { className: "error" }));
        problem.setAttribute("role", "alert");
        problem.textContent = `This browser gets no notices: ${message}.`;
      }
    });
  }
}
