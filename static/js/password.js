// Shows a typed password on request, and hides it again before it is sent.
"use strict";

for (const button of document.querySelectorAll("[data-shows]")) {
  const field = document.getElementById(button.dataset.shows);
  const show = (shown) => {
    field.type = shown ? "text" : "password";
    button.setAttribute("aria-pressed", String(shown));
  };
  button.hidden = false;
  button.onclick = () => show(field.type === "password");
  field.form.addEventListener("submit", () => show(false));
}
