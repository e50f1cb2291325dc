// Edit in place: the form of the arguments stands where the call was, and its steps stay in the request.
// Without scripts it is a page of its own.
"use strict";
{
  let remark = ""; // written before the step that has a field for it

  /** Show the step of the editor that the server answered with. Return false if it answered with another page. */
  function showStep(text) {
    const step = one("#edit", new DOMParser().parseFromString(text, "text/html"));
    const place = one("#edit") ?? one(".proposed");
    if (!step || !place) return false;
    remark = one("#reason")?.value || remark;
    settleOutside(one(".decide"));
    place.replaceWith(step);
    filledAt = performance.now();
    keepRemark();
    watch();
    localise(step);
    (one("[aria-invalid], [id^='in.']", step) ?? focusable(step)).focus({ preventScroll: true });
    step.scrollIntoView({ block: "nearest" });
    return true;
  }

  /** Take the bar away: the editor has the buttons and the remark, and no key may decide the call as it was proposed. */
  function settleOutside(bar) {
    const news = bar && one(".toasts", bar);
    bar?.remove();
    settle(news);
  }

  function focusable(step) {
    step.tabIndex = -1;
    return step;
  }

  function keepRemark() {
    const field = one("#edit #reason");
    if (field && !field.value) field.value = remark;
  }

  async function open(link) {
    const answer = await fetch(link.href).catch(() => null);
    if (!answer) return show("off");
    if (!showStep(await answer.text())) location.assign(link.href);
  }

  /** Send the form of the arguments. Another answer than a step shows itself when the browser sends the form again. */
  async function sendArguments(form, submitter) {
    const body = new FormData(form);
    const answer = await fetch(form.getAttribute("action"), { method: "POST", body }).catch(() => null);
    if (answer && showStep(await answer.text())) return;
    submitter.disabled = false;
    answer ? form.submit() : show("off");
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-edit]");
    if (!link || !one(".proposed, .column #edit") || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    open(link);
  });
  document.addEventListener("submit", (event) => {
    const { target: form, submitter } = event;
    if (!form.matches(".column #edit form")) return;
    const decides = /\/approve\//.test(form.getAttribute("action"));
    if (decides && performance.now() > filledAt + 1000) return;
    event.preventDefault(); // the second click of a double click would decide
    if (decides) event.stopImmediatePropagation();
    else sendArguments(form, submitter);
  }, { capture: true });
  document.addEventListener("swapped", keepRemark);
}
