// Asks the browser for a passkey, and sends its answer with the form of the button.
"use strict";

document.addEventListener("click", async ({ target }) => {
  const button = target.closest?.("[data-passkey]");
  const form = button?.form;
  const adds = button?.dataset.passkey === "add";
  if (!form || (adds && !form.reportValidity())) return;
  const problem = form.querySelector("[data-problem]");
  problem.textContent = "";
  try {
    const body = new URLSearchParams({ csrfmiddlewaretoken: form.elements.csrfmiddlewaretoken.value, act: button.dataset.passkey });
    const answer = await fetch(button.dataset.options, { method: "POST", body });
    const { publicKey } = await answer.json();
    const credential = adds
      ? await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(publicKey) })
      : await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(publicKey) });
    form.elements.passkey.value = JSON.stringify(credential);
    form.submit();
  } catch {
    problem.textContent = "No passkey came from the browser. Try again, or use a code.";
  }
});
