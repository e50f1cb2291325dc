// Runs before the page is painted: the chosen colours and rows, the reader's time zone, and the news that scripts work.
"use strict";
// The days of the history are those of the reader's zone.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone) document.cookie = `signoff_zone=${zone}; path=/; max-age=31536000; samesite=lax`;
document.documentElement.dataset.scripted = "";
try {
  for (const name of ["theme", "density"]) {
    const chosen = localStorage.getItem(name);
    if (chosen) document.documentElement.dataset[name] = chosen;
  }
} catch {} // no storage: the system's colours
