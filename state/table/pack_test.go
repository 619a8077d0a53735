package table

import (
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
