// The story of the tests of the HTTP interface, told by a client whose types
// openapi-typescript has made of the description: schema.d.ts, beside this file when it is compiled.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.d.ts";

declare const process: {
  env: { STINT_URL: string; STINT_TOKEN: string; STINT_WORKSPACE: string };
  exit(code: number): never;
};

type Task = components["schemas"]["Task"];
type Change = components["schemas"]["Change"];

const baseUrl = process.env.STINT_URL;
const bearer = (token: string) =>
  createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
const client = bearer(process.env.STINT_TOKEN);
const workspace = process.env.STINT_WORKSPACE;
const sessionKey = "story-typescript";

function expect(ok: boolean, what: string, body: unknown): asserts ok {
  if (!ok) {
    console.error(`${what}: ${JSON.stringify(body)}`);
    process.exit(1);
  }
}

// A stranger learns nothing; the master is well.
const refused = await bearer("guessed").GET("/v1/health");
expect(refused.error?.code === "unauthorized", "a guessed token", refused);
const health = await client.GET("/v1/health");
expect(health.data?.status === "ok", "health", health);

// Submit: new, known, another body under the key, a wrong one.
const header = { "Idempotency-Key": `"${sessionKey}"` };
const spec: components["schemas"]["TaskSpec"] = {
  prompt: "demo:write=out.txt|kept\ndemo:say=hello",
  workspace,
  sessionKey,
  outputSpec: ["out.txt"],
};
const made = await client.POST("/v1/tasks", { params: { header }, body: spec });
expect(made.response.status === 201 && made.data?.idempotencyKey === sessionKey, "submit", made);
const id = made.data.id;
const known = await client.POST("/v1/tasks", { params: { header }, body: spec });
expect(known.response.status === 200 && known.data?.id === id, "submit again", known);
const other = await client.POST("/v1/tasks", { params: { header }, body: { prompt: "other", workspace } });
expect(other.response.status === 409 && other.error?.code === "conflict", "another body", other);
const wrong = await client.POST("/v1/tasks", { body: { prompt: "x", workspace: "nowhere" } });
expect(wrong.response.status === 422 && wrong.error?.field === "workspace", "a wrong body", wrong);

// Wait, get, and get what has not changed.
const done = await client.GET("/v1/tasks/{id}/wait", { params: { path: { id } } });
expect(done.data?.status === "done" && done.data.result === "hello", "wait", done);
const got = await client.GET("/v1/tasks/{id}", { params: { path: { id } } });
expect(got.data?.prompt === spec.prompt && got.data?.outputFiles?.length === 1, "get", got);
const etag = got.response.headers.get("ETag") ?? "";
const same = await client.GET("/v1/tasks/{id}", { params: { path: { id }, header: { "If-None-Match": [etag] } } });
expect(same.response.status === 304, "get again", same);
const nothing = await client.GET("/v1/tasks/{id}", { params: { path: { id: "nothing" } } });
expect(nothing.response.status === 404 && nothing.error?.code === "not-found", "get nothing", nothing);

// What it has left: runs, files, logs, its session, what was used.
const runs = await client.GET("/v1/tasks/{id}/runs", { params: { path: { id } } });
expect(runs.data?.runs.length === 1, "runs", runs);
const file = await client.GET("/v1/tasks/{id}/files/{name}", { params: { path: { id, name: "out.txt" } }, parseAs: "text" });
expect(file.data?.trim() === "kept", "file", file);
const logs = await client.GET("/v1/tasks/{id}/logs", { params: { path: { id } }, parseAs: "text" });
expect((logs.data ?? "") !== "", "logs", logs);
const session = await client.GET("/v1/sessions/{key}", { params: { path: { key: sessionKey } } });
expect(session.data?.tasks[0]?.id === id && session.data?.transcript.length === 2, "session", session);
const usage = await client.GET("/v1/usage", { params: { query: { by: "task" } } });
expect((usage.data?.rows.length ?? 0) > 0, "usage", usage);

// A list of tasks, listed page by page, edited, moved, held, released and canceled.
const batch = await client.POST("/v1/tasks/batch", {
  body: ["a", "b", "c"].map((prompt) => ({ prompt, workspace, sessionKey, hold: true })),
});
expect(batch.response.status === 201 && batch.data?.tasks.length === 3, "submit a list", batch);
const seen: string[] = [];
let cursor: string | undefined;
for (let page = 0; page < 4 && (page === 0 || cursor); page++) {
  const list = await client.GET("/v1/tasks", {
    params: { query: { status: ["draft", "queued"], session: sessionKey, limit: 2, cursor } },
  });
  expect(list.data !== undefined, "list", list);
  expect(list.data.tasks.every((t: Task) => t.why?.startsWith("held") ?? false), "why in the list", list);
  seen.push(...list.data.tasks.map((t) => t.id));
  cursor = list.data.next;
}
expect(seen.length === 3, "pages", seen);
const last = { path: { id: batch.data.tasks[2]!.id } };
const edited = await client.PATCH("/v1/tasks/{id}", { params: last, body: { label: "story", priority: null } });
expect(edited.data?.label === "story", "edit", edited);
const stale = await client.PATCH("/v1/tasks/{id}", { params: { ...last, header: { "If-Match": '"1"' } }, body: { label: "x" } });
expect(stale.response.status === 412 && stale.error?.code === "changed", "edit what has changed", stale);
const moved = await client.POST("/v1/tasks/{id}/move", { params: last, body: { first: true } });
expect(moved.response.ok, "move", moved);
for (const task of batch.data.tasks) {
  const canceled = await client.POST("/v1/tasks/{id}/cancel", { params: { path: { id: task.id } } });
  expect(canceled.data?.status === "canceled", "cancel", canceled);
}

// Each change of a task, from the list on.
const newest = await client.GET("/v1/tasks", { params: { query: { limit: 1 } } });
const abort = new AbortController();
const events = await client.GET("/v1/events", {
  params: { query: { after: newest.response.headers.get("Stint-Seq") ?? "" } },
  headers: { Accept: "application/jsonl" },
  parseAs: "stream",
  signal: abort.signal,
});
expect(events.response.ok && !!events.data, "events", events.error);
const followed = await client.POST("/v1/tasks", { body: { prompt: "demo:say=seen", workspace } });
const reader = (events.data as ReadableStream<Uint8Array>).getReader();
const text = new TextDecoder();
const statuses: string[] = [];
for (let rest = ""; statuses.at(-1) !== "done"; ) {
  const { value, done } = await reader.read();
  expect(!done, "events", statuses);
  const lines = (rest + text.decode(value, { stream: true })).split("\n");
  rest = lines.pop() ?? "";
  for (const line of lines) {
    const change: Change = JSON.parse(line);
    if (change.task?.id === followed.data?.id && change.task) statuses.push(change.task.status);
  }
}
expect(statuses.length > 2 && statuses[0] === "queued", "events", statuses);
abort.abort();

// Dispatch stops and goes on.
const paused = await client.POST("/v1/pause", { body: { reason: "story" } });
expect(paused.response.status === 204, "pause", paused);
const resumed = await client.POST("/v1/resume");
expect(resumed.response.status === 204, "resume", resumed);
console.log("the story is told");
