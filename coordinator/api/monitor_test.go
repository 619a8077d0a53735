package api

import (
	"strings"
	"testing"

	"stint/coordinator/task"
)

// TestReady: 200 while tasks are taken in, also while none is started, else 503 with the code of the reason.
func TestReady(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		paused string
		status int
		want   string
	}{
		{"takes tasks in", nil, "", 200, `{"ready":true,"paused":false}`},
		{"and starts none", nil, "lunch", 200, `{"ready":true,"paused":true}`},
		{"the disk is full", &task.Error{Code: task.CodeFull, Message: "the disk is full", Hint: "make room"}, "", 503, `"detail":"the disk is full"`},
		{"goes away", &task.Error{Code: task.CodeStopped, Message: "it is going away"}, "lunch", 503, `"code":"stopped"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newFake(t)
			m.err, m.paused = tt.err, tt.paused
			s := newServer(m, Options{})
			for _, path := range []string{"/v1/ready", "/ready"} {
				w := ask(s, "GET", path, "", "")
				if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
					t.Errorf("%s: %d %s", path, w.Code, w.Body)
				}
			}
			if w := ask(s, "GET", "/v1/health", "", ""); w.Code != 200 {
				t.Errorf("health is about the process: %d %s", w.Code, w.Body)
			}
		})
	}
}
