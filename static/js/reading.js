// How a request is read: measured in this browser, and sent with the decision. It stops while the tab is hidden.
"use strict";
{
  const kept = (store, most) => ({
    read() {
      try {
        return new Map(JSON.parse(store().getItem("reading") ?? "[]"));
      } catch {
        return new Map();
      }
    },
    write(map) {
      try {
        store().setItem("reading", JSON.stringify([...map].slice(-most)));
      } catch {} // no storage: only this page is measured
    },
  });
  const opened = kept(() => sessionStorage, 50);
  const listed = kept(() => localStorage, 500);
  const key = (id) => `${who()} ${id}`;
  const [requests, rowsSeen] = [opened.read(), listed.read()];
  let [current, last] = ["", performance.now()];
  let isUnasked = false; // the current request opened by itself

  const idIn = (address) => /^\/a\/([\w-]{36})\//.exec(address ?? "")?.[1] ?? "";
  const region = () => one("[data-live=approval]");
  const open = () => idIn(region()?.dataset.src ?? one("main > .stack form[action^='/a/']")?.getAttribute("action"));

  function isInView(element) {
    const { top, bottom, height } = element.getBoundingClientRect();
    const shown = Math.min(bottom, innerHeight) - Math.max(top, 0);
    return height > 0 && shown >= Math.min(height, innerHeight) / 2;
  }

  function ofRequest(id) {
    const found = requests.get(key(id)) ?? { opened: Date.now(), visible: 0, sections: {} };
    requests.set(key(id), found);
    return found;
  }

  function measure() {
    const now = performance.now();
    const past = Math.min(now - last, 2000); // nothing is read while the machine sleeps
    last = now;
    if (document.hidden) return;
    if (current) ofRequest(current).visible += past;
    const before = current;
    current = open();
    if (isUnasked && current !== before) requests.delete(key(before)); // it opened by itself, and another one was chosen
    isUnasked = Boolean(region()?.closest("[data-unasked]"));
    if (current) {
      const { sections } = ofRequest(current);
      for (const section of all("section[aria-labelledby]", region() ?? main)) {
        const name = section.getAttribute("aria-labelledby");
        sections[name] ||= isInView(section);
      }
      opened.write(requests);
    }
    const fresh = all("[data-live=inbox] [data-id]").filter((it) => !rowsSeen.has(key(it.dataset.id)) && isInView(it));
    for (const row of fresh) rowsSeen.set(key(row.dataset.id), Date.now());
    if (fresh.length) listed.write(rowsSeen);
  }

  function add(event) {
    const { target: form, submitter } = event;
    const address = submitter?.getAttribute("formaction") ?? form.getAttribute("action");
    const id = idIn(address);
    if (form.method !== "post" || !id || /\/undo\//.test(address)) return;
    measure();
    const { opened: at, visible, sections } = ofRequest(id);
    const seen = rowsSeen.get(key(id));
    const now = Date.now();
    const field = one("input[name=reading]", form) ?? made("input", { type: "hidden", name: "reading" });
    field.value = JSON.stringify({ seen: seen && now - seen, opened: now - at, visible: Math.round(visible), sections });
    form.append(field);
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { // the time until now was in front
      const past = Math.min(performance.now() - last, 2000);
      if (current) ofRequest(current).visible += past;
      opened.write(requests);
    }
    last = performance.now();
  });
  document.addEventListener("submit", add, true);
  addEventListener("pagehide", measure);
  document.addEventListener("DOMContentLoaded", () => {
    measure();
    setInterval(measure, 500);
  });
}
