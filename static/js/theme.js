// Runs before the page is painted: the chosen colours, the reader's time zone, and the news that scripts work.
"use strict";
// The days of the history are those of the reader's zone.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone) document.cookie = `abeyance_zone=${zone}; path=/; max-age=31536000; samesite=lax`;
document.documentElement.dataset.scripted = "";
try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {} // no storage: the system's colours
