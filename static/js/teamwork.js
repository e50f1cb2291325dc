// Other people at the same request: claims, open pages and comments, sent without leaving the page.
"use strict";

const BEAT = 20_000; // the server forgets an open page after 45 s
const strips = () => all("[data-teamwork]").filter((it) => !it.closest("[data-unasked]"));

/** Send a form, or one without fields; return the page that answers it, null if the server refuses or is away. */
async function sendTo(address, body = new FormData()) {
  if (!body.has("csrfmiddlewaretoken")) body.set("csrfmiddlewaretoken", one("[name=csrfmiddlewaretoken]").value);
  const answer = await fetch(address, { method: "POST", body }).catch(() => null);
  if (!answer) show("off");
  if (!answer?.ok || new URL(answer.url).pathname.startsWith("/login/")) return null;
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

const words = (page) => one(".toasts", page)?.textContent.trim() ?? "";

/** Say that the page is open, and show who else is here. A part that is in use stays as it is. */
async function beat(strip) {
  const page = await sendTo(strip.dataset.teamwork);
  for (const part of page ? all("[data-teamwork], [data-claims]", page) : []) {
    const old = one("teamwork" in part.dataset ? "[data-teamwork]" : "[data-claims]");
    if (old && !old.contains(document.activeElement)) old.replaceWith(part);
  }
}

function beats() {
  if (!document.hidden) return Promise.all(strips().map(beat));
}

/** Send a form that decides nothing, and stay here. After a refusal the browser sends it again, to show why. */
async function sendAside(form, submitter) {
  const page = await sendTo(form.action, new FormData(form));
  submitter.disabled = false;
  if (!page) return offline || form.submit();
  say(words(page));
  submitter.blur();
  if (form.dataset.aside === "comment") {
    one("textarea", form).value = "";
    keepDraft();
    for (const region of regions) {
      region.own = true; // what it brings is no news to this reader
      refresh(region);
    }
    return;
  }
  one("#ways:popover-open")?.hidePopover();
  await beats();
}

/** Claim or release the request of a row, or the open one. */
async function claim(link) {
  if (!link) return one("[data-claim]")?.click();
  const act = one("[data-mine]", link.closest(".row")) ? "release" : "claim";
  const page = await sendTo(new URL(`${act}/`, link.href.split("?")[0]));
  if (page) say(words(page));
  regions.forEach(refresh);
}

function writeComment() {
  goTo(one("#comment"));
}

/** The marks of rows that stay where they are. */
function remark(region, fresh) {
  for (const row of rows(fresh)) {
    const [old, now] = [region, fresh].map((it) => one(`[data-id="${row.dataset.id}"] [data-marks]`, it));
    if (old && now && old.outerHTML !== now.outerHTML) old.replaceWith(now.cloneNode(true));
  }
}

document.addEventListener("submit", (event) => {
  const { target: form, submitter } = event;
  if (!form.matches("[data-aside]") || !submitter) return;
  event.preventDefault();
  submitter.disabled = true;
  sendAside(form, submitter);
}, { capture: true });

document.addEventListener("DOMContentLoaded", beats);
document.addEventListener("visibilitychange", beats);
setInterval(beats, BEAT);
