// The script of the page: it lets a browser in, keeps what is shown as it is now, and
// sends the form and the buttons as JSON. Text comes into the page as text alone, or in
// a document that the server has written; the server's policy lets no script do more.
"use strict";

const keyName = "stint-page-key"; // see browser in signin.go; another port cannot read it
const retryAfter = 5000; // milliseconds until a stream that was refused is tried again
const lookAt = 3000; // milliseconds between two looks at the log of a running task
const lookAround = 15000; // likewise, for what no event tells of, as a pause

const live = document.getElementById("live"); // what is replaced; null for who is not signed in
const said = document.getElementById("said");
const link = document.getElementById("link");
const form = document.getElementById("new");
const mark = live?.dataset.mark; // what only the master that has written this page knows
const signedOut = "This page is signed out, and shows how things stood. To sign in again: stint ui";

let over = false; // it is signed out, for good

// visible writes control characters and the marks that reorder text as \x1b and the like.
function visible(text) {
	return String(text).replace(/[\p{Cc}\p{Bidi_Control}]/gu, (c) => {
		const code = c.codePointAt(0);
		if (c === "\n" || c === "\t") return c;
		return code < 256 ? "\\x" + code.toString(16).padStart(2, "0") : "\\u" + code.toString(16).padStart(4, "0");
	});
}

// say shows one sentence about what was just asked for.
function say(text, failed = false) {
	said.textContent = visible(text);
	said.className = failed ? "failed" : "";
}

// post asks the master for something, once it is sure that nobody else answers, who would be
// told it. An answer that is an error is thrown, with the field of the request that is
// wrong, if the master names one.
async function post(path, body, headers = {}) {
	if (live && !(await ours())) throw new Error(over ? signedOut : "The master does not answer. Nothing was sent.");
	const sent = { method: "POST", redirect: "error", headers: { "Stint-Page": localStorage.getItem(keyName) ?? "", ...headers } };
	if (body !== undefined) {
		sent.body = JSON.stringify(body);
		sent.headers["Content-Type"] = "application/json";
	}
	let answer;
	try {
		answer = await fetch(path, sent);
	} catch {
		throw new Error("The master does not answer; nobody knows whether it has heard. Trying again is safe.");
	}
	const told = await answer.json().catch(() => ({}));
	if (answer.ok) return told;
	const error = new Error(told.message ? told.message + (told.hint ? "\nTry: " + told.hint : "") : "The master answered " + answer.status);
	error.field = told.field;
	throw error;
}

// signIn exchanges the one-time code of the address for a cookie, and forgets it first.
async function signIn(code) {
	history.replaceState(null, "", "/");
	try {
		localStorage.setItem(keyName, (await post("/ui/session", { code })).key);
		location.replace("/");
	} catch (error) {
		say("Signing in failed: " + error.message, true);
	}
}

// load returns the page as the server would show it now; null if it does not answer.
function load() {
	return new Promise((resolve) => {
		const request = new XMLHttpRequest(); // unlike fetch it returns a document
		request.open("GET", location.pathname + location.search);
		request.responseType = "document";
		request.onload = () => resolve(request);
		request.onerror = () => resolve(null);
		request.send();
	});
}

// ours returns the page as our master would show it now; null if nobody answers. Any other
// answer is one of a master that has signed us out, or of another user who listens where
// none does: then the page stops, and loads nothing more.
async function ours() {
	const answer = over ? null : await load();
	if (!answer || over) return null;
	const fresh = answer.responseXML?.getElementById("live");
	if (fresh?.dataset.mark === mark) return fresh;
	over = true;
	events?.close();
	events = null;
	link.textContent = "signed out";
	say(signedOut, true);
	return null;
}

let loading = false;
let again = false;

// refresh shows what the server shows now. What is asked for meanwhile is done once, afterwards.
async function refresh() {
	again = true;
	if (loading) return;
	loading = true;
	while (again) {
		again = false;
		const fresh = await ours();
		if (!fresh) continue;
		replace(fresh);
		document.title = fresh.ownerDocument.title;
		if (events?.readyState === EventSource.OPEN) link.textContent = "live";
	}
	loading = false;
}

// replace puts the parts that differ in the place of those that are shown. The focus,
// and the place that a reader has scrolled to, stay.
function replace(fresh) {
	const old = [...live.children];
	const parts = [...fresh.children];
	const focused = document.activeElement?.id;
	if (old.length === parts.length && old.every((part, i) => part.id === parts[i].id)) {
		old.forEach((part, i) => part.isEqualNode(parts[i]) || swap(part, parts[i]));
	} else {
		live.replaceChildren(...parts.map((part) => document.importNode(part, true)));
	}
	if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

// swap puts one part in the place of another.
function swap(old, fresh) {
	const was = old.querySelector("pre");
	const atEnd = was && was.scrollHeight - was.scrollTop - was.clientHeight < 8;
	const top = was?.scrollTop ?? 0;
	const part = document.importNode(fresh, true);
	old.replaceWith(part);
	const text = part.querySelector("pre");
	if (text && was) text.scrollTop = atEnd ? text.scrollHeight : top;
}

let events = null;
let since = live?.dataset.seq; // the record that the page was written after; "" once it has been followed
let soon = 0;

// changed refreshes once for the changes of a moment.
function changed() {
	soon ||= setTimeout(() => {
		soon = 0;
		refresh();
	}, 250);
}

// follow keeps the page fresh while somebody looks: a browser has few connections.
function follow() {
	events?.close();
	events = null;
	if (over || document.visibilityState === "hidden") return;
	events = new EventSource(since ? "/v1/events?after=" + since : "/v1/events");
	events.onopen = refresh;
	if (since) { // the page is new, and what has changed since comes as an event
		since = "";
		events.onopen = () => {
			link.textContent = "live";
			events.onopen = refresh;
		};
	}
	events.addEventListener("task", changed);
	events.addEventListener("resync", changed);
	events.onerror = () => {
		link.textContent = "not live: the connection is lost; trying again";
		if (events.readyState !== EventSource.CLOSED) return; // it tries by itself
		refresh();
		setTimeout(follow, retryAfter);
	};
}

let key; // makes the same form, sent twice, one task

// submit sends the form.
async function submit(event) {
	event.preventDefault();
	const button = form.querySelector("button");
	const task = {};
	for (const field of form.elements) {
		if (field.name && field.value !== "") task[field.name] = field.name === "priority" ? Number(field.value) : field.value;
	}
	key ??= crypto.randomUUID();
	button.disabled = true;
	try {
		const { id } = await post("/v1/tasks", task, { "Idempotency-Key": `"${key}"` });
		key = undefined;
		form.elements.prompt.value = "";
		say("Submitted: ");
		const shown = document.createElement("a");
		shown.href = "/?task=" + encodeURIComponent(id);
		shown.textContent = visible(id);
		said.append(shown);
		refresh();
	} catch (error) {
		say(error.message, true);
		const wrong = form.elements.namedItem(error.field ?? "");
		wrong?.setAttribute("aria-invalid", "true");
		wrong?.focus();
	}
	button.disabled = false;
}

// act does what a button of the shown task says.
async function act(event) {
	const button = event.target.closest("button[data-action]");
	if (!button) return;
	const { action, task } = button.dataset;
	button.disabled = true;
	try {
		const { status } = await post("/v1/tasks/" + encodeURIComponent(task) + "/" + action);
		say("Asked for: " + action + ". The task is " + status + ".");
	} catch (error) {
		say(error.message, true);
	}
	button.disabled = false;
	refresh();
}

const code = new URLSearchParams(location.hash.slice(1)).get("code");
if (code) {
	signIn(code);
} else if (live) {
	form.addEventListener("submit", submit);
	form.addEventListener("input", (event) => {
		key = undefined;
		event.target.removeAttribute("aria-invalid");
	});
	live.addEventListener("click", act);
	const log = document.getElementById("log-text");
	if (log) log.scrollTop = log.scrollHeight;
	document.addEventListener("visibilitychange", follow);
	setInterval(() => events && live.querySelector("[data-running]") && refresh(), lookAt);
	setInterval(() => events && refresh(), lookAround);
	follow();
}
