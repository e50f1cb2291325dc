// Runs before the page is painted: the chosen colours, and the news that scripts work.
"use strict";
document.documentElement.dataset.scripted = "";
try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {} // no storage: the system's colours
