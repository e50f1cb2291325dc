{% load static %}// The service worker: without a network it shows a page that says so. It keeps that page and its static files, and
// nothing else: no page with data, and no decision, is ever stored or sent later. Forms do not pass through it.
// It also shows what the push service brings; a click opens a page, and decides nothing.
"use strict";

const KEPT = "offline-1";
const PAGE = "{% url 'offline' %}";

async function keep() {
  const page = await fetch(PAGE, { cache: "reload", credentials: "omit" });
  const text = await page.clone().text();
  const files = [...text.matchAll(/(?:href|src)="(\/static\/[^"]+)"/g)].map(([, address]) => address);
  const cache = await caches.open(KEPT);
  await cache.addAll([...new Set(files)]);
  await cache.put(PAGE, page);
}

addEventListener("install", (event) => {
  skipWaiting();
  event.waitUntil(keep());
});

addEventListener("activate", (event) => event.waitUntil(clients.claim()));

addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET") return;
  if (request.mode === "navigate") {
    event.respondWith(fetch(request).catch(() => caches.match(PAGE)));
  } else if (new URL(request.url).pathname.startsWith("/static/")) {
    event.respondWith(fetch(request).catch(async () => (await caches.match(request)) ?? Response.error()));
  }
});

addEventListener("push", (event) => {
  const { title, text, path, tag } = event.data.json();
  event.waitUntil(registration.showNotification(title, { body: text, tag, data: path, icon: "{% static 'img/icon-192.png' %}" }));
});

addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(new URL(event.notification.data, location.origin)));
});

async function open({ origin, href }) {
  if (origin !== location.origin) return;
  const [page] = await clients.matchAll({ type: "window" });
  if (!page) return clients.openWindow(href);
  await page.focus();
  return page.navigate(href);
}
