package coordinator_test

import (
	"context"
	"strings"
	"testing"

	"stint/coordinator/task"
	"stint/state"
)

// TestDeniedToolsAreFindings: what an agent was denied in the turns of an attempt is on the
// task, which is done all the same, and sets off what is to follow an issue; also behind a
// verify command, and when the turn was continued.
func TestDeniedToolsAreFindings(t *testing.T) {
	push := state.Issue{Kind: "denied", Message: `shell "git push" was denied`}
	commit := state.Issue{Kind: "denied", Message: `shell "git commit" was denied`}
	fine := task.Outcome{Result: "Done.", Session: "n1"}
	with := func(out task.Outcome, found ...state.Issue) task.Outcome {
		out.Findings = found
		return out
	}
	for _, tc := range []struct {
		name     string
		outcomes []task.Outcome
		verify   func(context.Context, task.VerifyRun) task.VerifyResult
		want     string
	}{
		{"a turn", []task.Outcome{with(fine, push, commit)}, nil, "git push, git commit"},
		{"none", []task.Outcome{fine}, nil, ""},
		{"verified", []task.Outcome{with(fine, push)}, exits(0), "git push"},
		{"an earlier round", []task.Outcome{with(fine, push), with(fine, push, commit), fine}, exits(1, 1, 0), "git push, git commit"},
		{"continued", []task.Outcome{with(task.Outcome{Class: state.ClassRateLimited, Session: "n1", Kept: true}, push), fine}, nil, "git push"},
		{"begun anew", []task.Outcome{with(task.Outcome{Class: state.ClassNetwork}, push), fine}, nil, ""},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			w := followWorld(t)
			w.outcomes(append(tc.outcomes, fine)...) // and the follow-up's
			spec := task.TaskSpec{Prompt: "p", OnIssue: "allow it?"}
			if tc.verify != nil {
				w.cfg.Shell, w.cfg.MaxIterations, spec.VerifyCommand = &fakeShell{do: tc.verify}, 3, "make test"
			}
			w.openUnwatched()
			got := w.ended(w.submit(spec).ID)
			w.expect(got, state.Done, "")
			var found []string
			for _, f := range got.Findings {
				found = append(found, strings.Split(f.Message, `"`)[1])
			}
			if strings.Join(found, ", ") != tc.want || len(w.task(got.ID).FollowUps) != min(1, len(found)) {
				t.Errorf("findings %v, followed by %v", got.Findings, w.task(got.ID).FollowUps)
			}
		})
	}
}
