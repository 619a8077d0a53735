package coordinator_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// once submits prompts under a key: as a list, or, where text begins with "=", one task.
func (w *world) once(key, text string) ([]string, error) {
	if prompt, single := strings.CutPrefix(text, "="); single {
		t, err := w.try(task.TaskSpec{Prompt: prompt, IdempotencyKey: key})
		return []string{t.ID}, err
	}
	specs := []task.TaskSpec{}
	for _, prompt := range strings.Split(text, "") {
		specs = append(specs, task.TaskSpec{Prompt: prompt, Workspace: w.work})
	}
	tasks, err := w.c.SubmitOnce(w.t.Context(), key, specs)
	return idsOf(tasks), err
}

func idsOf(tasks []state.Task) (ids []string) {
	for _, t := range tasks {
		ids = append(ids, t.ID)
	}
	return ids
}

// TestKeyOfAList: whatever a key was used for first, the same again gives the same tasks, and all else under
// it is a conflict and makes none; so it stays over a restart and in the archive, whose index keeps the keys.
func TestKeyOfAList(t *testing.T) {
	t.Parallel()
	bodies := []string{"a", "ab", "abc", "abcd", "bac", "acb", "abx", "xbc", "abcx", "xyz", "=a", "=b"}
	w := idleWorld(t)
	for _, first := range bodies {
		made, err := w.once(first, first) // the key is the text
		if err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		total := len(w.c.List(state.Filter{}))
		for _, second := range bodies {
			ids, err := w.once(first, second)
			if second == first && (err != nil || !slices.Equal(ids, made)) {
				t.Errorf("%s again: %v %v, want %v", first, ids, err, made)
			}
			if second != first && (!errors.Is(err, &task.Error{Code: task.CodeConflict}) || !strings.Contains(err.Error(), fmt.Sprintf("the idempotency key %q", first))) {
				t.Errorf("%s after %s: %v %v", second, first, ids, err)
			}
			if got := len(w.c.List(state.Filter{})); got != total {
				t.Errorf("%s after %s made %d tasks", second, first, got-total)
			}
		}
	}
	made := map[string][]string{}
	for _, b := range bodies {
		made[b], _ = w.once(b, b)
	}
	same := func(when string) {
		t.Helper()
		for _, b := range bodies {
			if ids, err := w.once(b, b); err != nil || !slices.Equal(ids, made[b]) {
				t.Errorf("%s %s: %v %v, want %v", b, when, ids, err, made[b])
			}
		}
	}
	w.restart()
	same("after a restart")
	for _, ids := range made {
		for _, id := range ids {
			_, err := w.c.Cancel(t.Context(), id, ledger.ByClient)
			check(t, err)
		}
	}
	if r, err := w.c.Compact(t.Context(), 0, false, false); err != nil || len(w.c.List(state.Filter{})) != 0 {
		t.Fatalf("%+v %v", r, err)
	}
	same("in the archive")
	for _, other := range []string{"a", "ab", "abcd", "=a"} {
		if _, err := w.once("abc", other); !errors.Is(err, &task.Error{Code: task.CodeConflict}) {
			t.Errorf("%s after abc in the archive: %v", other, err)
		}
	}
}

// TestKeyOfAListInAnEditor: an editor that puts white space in order leaves the keys
// alone, so that the list is not queued a second time.
func TestKeyOfAListInAnEditor(t *testing.T) {
	t.Parallel()
	w := idleWorld(t)
	ids, err := w.once("a key", "abc")
	check(t, err)
	w.close()
	path := filepath.Join(w.dir, ledger.TasksName)
	text := strings.ReplaceAll(read(t, path), "\t", "    ")
	write(t, path, regexp.MustCompile(`(?m)[\pZ\s]+$`).ReplaceAllString(text, "")+"\n\nsaved by hand\n")
	w.open()
	if again, err := w.once("a key", "abc"); err != nil || !slices.Equal(again, ids) {
		t.Errorf("%v %v, want %v", again, err, ids)
	}
}

// TestRepeatAfterTheLast: what @last or a piece of an id meant, it need not mean when the same is sent again.
func TestRepeatAfterTheLast(t *testing.T) {
	t.Parallel()
	w := idleWorld(t)
	const before, like = "019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11", "019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c12"
	w.submit(task.TaskSpec{ID: before, Prompt: "a"})
	after := func(key string, refs ...string) (state.Task, error) {
		return w.try(task.TaskSpec{Prompt: "p", After: refs, IdempotencyKey: key})
	}
	ids, refs := map[string]string{}, []string{"@last", before[:30], before}
	for _, ref := range refs {
		got, err := after(ref, ref)
		check(t, err)
		ids[ref] = got.ID
	}
	w.submit(task.TaskSpec{ID: like, Prompt: "b"})
	for _, ref := range refs {
		if got, err := after(ref, ref); err != nil || got.ID != ids[ref] {
			t.Errorf("%s: %s %v", ref, got.ID, err)
		}
		for _, other := range [][]string{nil, {like}, {newID()}, {ref, like}} {
			if _, err := after(ref, other...); ref != "@last" && !errors.Is(err, &task.Error{Code: task.CodeConflict}) {
				t.Errorf("%s, and then %s: %v", ref, other, err)
			}
		}
	}
}

func TestKeyOfAListAndOthers(t *testing.T) {
	t.Parallel()
	w := idleWorld(t)
	known := w.submit(task.TaskSpec{Prompt: "a"}).ID
	for _, tt := range []struct {
		key  string
		spec task.TaskSpec
		code task.Code
		want string
	}{
		{"a\tb", task.TaskSpec{}, task.CodeInvalid, "idempotencyKey"},
		{strings.Repeat("k", 257), task.TaskSpec{}, task.CodeInvalid, "idempotencyKey"},
		{"k", task.TaskSpec{IdempotencyKey: "mine"}, task.CodeInvalid, "1.idempotencyKey"},
		{"k", task.TaskSpec{ID: known}, task.CodeConflict, "1.id"}, // it has no such key
		{strings.Repeat("k", 256), task.TaskSpec{}, "", ""},
	} {
		tt.spec.Prompt, tt.spec.Workspace = "a", w.work
		_, err := w.c.SubmitOnce(t.Context(), tt.key, []task.TaskSpec{{Prompt: "p", Workspace: w.work}, tt.spec})
		if (err != nil || tt.code != "") && (!errors.Is(err, &task.Error{Code: tt.code}) || fieldOf(err) != tt.want) {
			t.Errorf("%q %+v: %v (%s)", tt.key, tt.spec, err, fieldOf(err))
		}
	}
	if got := len(w.c.List(state.Filter{})); got != 3 {
		t.Errorf("%d tasks", got)
	}
}

// TestKeysNeverShareAList: of many who use one key at once for different things, one
// makes its tasks, and all get these or a conflict.
func TestKeysNeverShareAList(t *testing.T) {
	t.Parallel()
	bodies := []string{"ab", "abc", "ba", "a", "=a", "=b", "abd"}
	w := idleWorld(t)
	var mu sync.Mutex
	var wg sync.WaitGroup
	won, made := map[string]string{}, 0 // by key: body and ids
	for n := range 50 * len(bodies) {   // all at once, so that many are in one write of the ledger
		key, body := fmt.Sprint("key ", n/len(bodies)), bodies[n%len(bodies)]
		for range 2 {
			wg.Go(func() {
				ids, err := w.once(key, body)
				mu.Lock()
				defer mu.Unlock()
				switch is := fmt.Sprint(body, ids); {
				case err != nil && code(err) != task.CodeConflict:
					t.Error(err)
				case err == nil && won[key] == "":
					won[key] = is
					made += len(ids)
				case err == nil && won[key] != is:
					t.Errorf("%s was taken by %s and by %s", key, won[key], is)
				}
			})
		}
	}
	wg.Wait()
	if got := len(w.c.List(state.Filter{})); got != made || len(won) != 50 {
		t.Errorf("%d tasks were made under %d keys, and %d were answered", got, len(won), made)
	}
}

// TestAnotherBodyIsAConflict: each field that a body can have counts, but those that
// pass with time and those that it leaves to the configuration.
func TestAnotherBodyIsAConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.cfg.Agents["codex"] = w.agent
	w.open()
	first := w.submit(task.TaskSpec{Prompt: "p", IdempotencyKey: "k"})
	other := w.submit(task.TaskSpec{Prompt: "other"}).ID
	// again submits the same with these fields, as JSON.
	again := func(fields string) (task.TaskSpec, state.Task, error) {
		if !strings.Contains(fields, `"prompt"`) {
			fields += `,"prompt":"p"`
		}
		specs, err := task.ParseSpecs("spec", []byte(`{"idempotencyKey":"k",`+fields+`}`))
		check(t, err)
		got, err := w.try(specs[0])
		return specs[0], got, err
	}
	for _, fields := range strings.Fields(`"prompt":"q" "agent":"codex" "model":"m" "workspace":"` + t.TempDir() + `" "sessionKey":"web" "label":"l" "parallel":true
		"resume":"never" "timeout":"9m" "priority":9 "maxAttempts":9 "noWaitLimit":true "after":["` + other + `"] "afterPolicy":"any" "tenantId":"t" "queue":"q"
		"fallback":["codex"] "verifyCommand":"true" "maxIterations":2 "verifyTimeout":"9m" "onFailure":"f" "onIssue":"i" "inputFiles":[{"name":"a","content":""}]
		"outputSpec":["a"] "agentSession":"native-2"`) {
		spec, _, err := again(fields)
		if code(err) != task.CodeConflict || fieldOf(err) != "idempotencyKey" {
			t.Errorf("another %s: %v", fields, err)
		}
		spec.ID = first.ID // the id is known too, and the body is another one all the same
		if _, err := w.try(spec); code(err) != task.CodeConflict {
			t.Errorf("another %s with the id: %v", fields, err)
		}
	}
	for _, fields := range []string{
		`"label":null`, `"id":"` + first.ID + `"`, `"id":"` + newID() + `"`, `"agent":"demo"`, `"resume":"auto"`, `"hold":true`,
		`"notBefore":"` + time.Now().Add(time.Hour).Format(time.RFC3339) + `"`,
	} {
		if _, got, err := again(fields); err != nil || got.ID != first.ID {
			t.Errorf("%s: %s %v", fields, got.ID, err)
		}
	}
}
