package table

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stint/state"
)

// notPacked are the fields of a task that are noted elsewhere while it has not ended.
var notPacked = []string{
	"ID", "Status", "SessionKey", "Label", "TenantID", "Queue", "Agent", "AgentSession", "Archived", "InputFiles", "OutputFiles", "ChangedFiles", "Findings", "Steps",
	"VerifyOutput", "OnFailure", "OnIssue", "OutputPolicy", "FollowUps", "Title", "Prompt", "Result", "Extra",
}

// TestPackHasAllFields: whatever a task has that is noted nowhere else comes back, however much of
// it there is.
func TestPackHasAllFields(t *testing.T) {
	t.Parallel()
	var f state.Folded
	fill(reflect.ValueOf(&f).Elem(), "x")
	f.Isolation = state.IsolationTemp
	p := packer{common: NewNumbering[string]()}
	var got state.Folded
	p.unpack(p.pack(&f), &got)
	isNoted := func(path cmp.Path) bool {
		at, ok := path.Last().(cmp.StructField)
		return ok && slices.Contains(notPacked, at.Name())
	}
	if diff := cmp.Diff(f, got, cmp.FilterPath(isNoted, cmp.Ignore()), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if p.turn == 0 {
		t.Error("there are more fields than bits")
	}
}

// fill sets all fields that can be set, strings to text.
func fill(v reflect.Value, text string) {
	switch {
	case !v.CanSet():
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1, 1000).UTC()))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(7)
	case v.CanFloat():
		v.SetFloat(1.5)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), text)
		fill(v.Index(1), text)
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			fill(field, text)
		}
	}
}

// TestPutPacksLater: a task is what was put last, whether it is packed yet or not, and few that wait are not.
func TestPutPacksLater(t *testing.T) {
	t.Parallel()
	s, rng := New(), rand.New(rand.NewPCG(1, 2))
	bodies, want := make([]Body, 60), make([]state.Folded, 60)
	for i := range bodies {
		bodies[i].N = s.Add(fmt.Appendf(nil, "t%d", i), uint64(i+1))
	}
	whole := func() (n int) {
		for i := range bodies {
			if w := bodies[i].whole; w != nil && packs(w) {
				n++
			}
		}
		return n
	}
	for step := range 4000 {
		i := rng.IntN(1 + rng.IntN(len(bodies)))
		b := &bodies[i]
		switch f := (state.Folded{Task: state.Task{Status: state.Queued, Seq: uint64(step), Workspace: fmt.Sprint("/w", step%9), Note: fmt.Sprint(step)}}); rng.IntN(8) {
		case 0: // its memory is another task's from here on
			s.LetGo(b)
			*b, want[i] = Body{N: b.N}, state.Folded{}
		case 1, 2:
			f.Status, f.ID = state.Running, "was read"
			fallthrough
		default:
			s.Note(b.N, &f)
			s.Put(b, &f)
			f.ID = ""
			want[i] = f
		}
		for i := range bodies {
			if want[i].Seq == 0 {
				continue
			}
			if got := s.Whole(&bodies[i]); !reflect.DeepEqual(*got, want[i]) {
				t.Fatalf("after %d steps task %d is %+v, want %+v", step, i, *got, want[i])
			}
		}
		if n := whole(); n > len(s.fresh) {
			t.Fatalf("after %d steps %d tasks that wait are whole", step, n)
		}
	}
	if s.PackAll(); whole() > 0 {
		t.Errorf("%d tasks are whole when all are packed", whole())
	}
}

// TestIDsAreFound: each id is found, however many there are, and however many of them are no UUIDs; any other is not.
func TestIDsAreFound(t *testing.T) {
	t.Parallel()
	s, id := New(), func(i int) string {
		if i%5 < 3 {
			return fmt.Sprint("task", i)
		}
		return fmt.Sprintf("019ab3f0-6f1e-7c3a-9a51-%012x", i)
	}
	for i := range 5000 {
		if n := s.Number(id(i)); n != 0 {
			t.Fatalf("%s is %d before it is there", id(i), n)
		}
		s.Add([]byte(id(i)), uint64(i+1))
		for _, j := range []int{0, i / 2, i} {
			if n := s.Number(id(j)); n != uint32(j+1) {
				t.Fatalf("%s of %d is %d", id(j), i+1, n)
			}
		}
	}
	for i := range 5000 {
		if n := s.Number(id(i)); n != uint32(i+1) {
			t.Errorf("%s is %d", id(i), n)
		}
	}
}
