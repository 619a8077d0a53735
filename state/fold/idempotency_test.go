package fold

import (
	"encoding/json"
	"maps"
	"math"
	"testing"

	"stint/state"

	"pgregory.net/rapid"
)

// FuzzReadPart: a key that is taken apart is what PartKey makes of its parts, and every
// key that PartKey makes is taken apart. So no two keys have one place.
func FuzzReadPart(f *testing.F) {
	for _, key := range []string{"", "k", state.PartKey("k", 1), state.PartKey("", 10), state.PartKey(state.PartKey("k", 1), 2), "k\x1f", "k\x1f0", "k\x1f01", "k\x1f+1", "k\x1f-1", "k\x1f1 ", "k\x1f99999999999999999999"} {
		f.Add(key, 7)
	}
	f.Fuzz(func(t *testing.T, key string, n int) {
		if list, part, ok := state.ReadPart(key); ok && state.PartKey(list, part) != key {
			t.Errorf("%q is read as part %d of %q", key, part, list)
		}
		n = max(n, 1)
		if list, part, ok := state.ReadPart(state.PartKey(key, n)); !ok || list != key || part != n {
			t.Errorf("part %d of %q is read as %d of %q, %v", n, key, part, list, ok)
		}
	})
}

// TestGivenKey: JSON has the key as the client gave it, though the ledger has more.
func TestGivenKey(t *testing.T) {
	for key, want := range map[string]string{
		"": `{}`, "k": `{"key":"k"}`, state.PartKey("k", 12): `{"key":"k"}`, state.PartKey("a b", 1): `{"key":"a b"}`,
		state.RunKey("k", "7"): `{"key":"k"}`, state.PartKey(state.RunKey("k", "7"), 12): `{"key":"k"}`, "k\x1f0": `{"key":"k\u001f0"}`,
	} {
		got, err := json.Marshal(struct {
			Key state.GivenKey `json:"key,omitempty"`
		}{state.GivenKey(key)})
		if err != nil || string(got) != want {
			t.Errorf("%q: %s %v, want %s", key, got, err, want)
		}
	}
}

// TestIdempotencyKeysAreAMap: keys of lists and others, in any order, are found like those of a map.
func TestIdempotencyKeysAreAMap(t *testing.T) {
	keys := []string{"k", "l", "k\x1f0", "k\x1f01", state.PartKey("", 1), state.PartKey("k", math.MaxInt)}
	for n := 1; n <= 4; n++ {
		keys = append(keys, state.PartKey("k", n), state.PartKey("l", n), state.PartKey(state.PartKey("k", 1), n))
	}
	rapid.Check(t, func(t *rapid.T) {
		got, want := New(nil).byKey, map[string]uint32{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			key := rapid.SampledFrom(keys).Draw(t, "key")
			if n := rapid.Uint32Range(0, 5).Draw(t, "task"); n == 0 {
				got.drop(key)
				delete(want, key)
			} else {
				got.set(key, n)
				want[key] = n
			}
			for _, key := range keys {
				if got.task(key) != want[key] {
					t.Fatalf("%q is task %d's, want %d", key, got.task(key), want[key])
				}
			}
			all, times := map[string]uint32{}, 0
			for key, n := range got.all() {
				all[key] = n
				times++
			}
			if !maps.Equal(all, want) || times != len(want) {
				t.Fatalf("all are %v, given %d times, want %v", all, times, want)
			}
		}
	})
}
