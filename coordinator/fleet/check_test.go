package fleet

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestServerCheck(t *testing.T) {
	t.Parallel()
	known := []Server{{ID: "s1"}}
	for _, s := range []Server{{"s2", ""}, {"S.2_x-", "root@10.0.0.1"}, {"s2", "ssh://root@[::1%eth0]:22"}} {
		if key, err := s.Check(known); err != nil || s.SSH == "" {
			t.Errorf("%+v: %s: %v", s, key, err)
		}
	}
	for s, want := range map[Server]string{
		{"", ""}: "id", {"-x", ""}: "id", {"a b", ""}: "id", {"..", ""}: "id", {"s1", ""}: "id", {strings.Repeat("x", 65), ""}: "id",
		{"s2", "-oProxyCommand=id"}: "ssh", {"s2", "root@h; id"}: "ssh", {"s2", "root@h\n"}: "ssh", {"s2", "$(id)"}: "ssh", {"s2", "a b"}: "ssh",
	} {
		if key, err := s.Check(known); err == nil || key != want {
			t.Errorf("%+v: %s: %v", s, key, err)
		}
	}
}

func TestInstanceCheck(t *testing.T) {
	t.Parallel()
	servers := []Server{{ID: "s1"}}
	well := Instance{ID: "a", Server: "s1", ConfigPath: `/it's "here"/$(x); y/c.json`, Service: "claw@a.service", Gateway: "http://g:1/health"}
	in := well
	if key, err := in.Check(servers, nil); err != nil || in.AccessPath != "gateway" || in.BootstrapPath != `/it's "here"/$(x); y/BOOTSTRAP.md` {
		t.Errorf("%s: %v: %+v", key, err, in)
	}
	for _, c := range []struct {
		key    string
		change func(*Instance)
	}{
		{"id", func(in *Instance) { in.ID = "" }},
		{"id", func(in *Instance) { in.ID = "a/../b" }},
		{"id", func(in *Instance) { in.ID = "taken" }},
		{"server", func(in *Instance) { in.Server = "" }},
		{"server", func(in *Instance) { in.Server = "s2" }},
		{"service", func(in *Instance) { in.Service = "" }},
		{"service", func(in *Instance) { in.Service = "-H" }},
		{"service", func(in *Instance) { in.Service = "a; id" }},
		{"service", func(in *Instance) { in.Service = "a\n" }},
		{"gateway", func(in *Instance) { in.Gateway = "" }},
		{"gateway", func(in *Instance) { in.Gateway = "file:///etc/passwd" }},
		{"gateway", func(in *Instance) { in.Gateway = "10.0.0.5:1" }},
		{"config_path", func(in *Instance) { in.ConfigPath = "" }},
		{"config_path", func(in *Instance) { in.ConfigPath = "c.json" }},
		{"config_path", func(in *Instance) { in.ConfigPath = "/a/../c.json" }},
		{"config_path", func(in *Instance) { in.ConfigPath = "/a\nb/c" }},
		{"bootstrap_path", func(in *Instance) { in.BootstrapPath = "b.md" }},
		{"bootstrap_path", func(in *Instance) { in.BootstrapPath = "/b\x00" }},
		{"bootstrap_path", func(in *Instance) { in.BootstrapPath = in.ConfigPath }},
		{"config_path", func(in *Instance) { in.ConfigPath = "/taken/c.json" }},
		{"desired", func(in *Instance) { in.Desired = map[string]any{"a..b": 1} }},
		{"activity_command", func(in *Instance) { in.ActivityField, in.ActivityCommand = "a", "b" }},
		{"activity_command", func(in *Instance) { in.ActivityCommand = "a\nb" }},
	} {
		in := well
		c.change(&in)
		if key, err := in.Check(servers, []Instance{{ID: "taken", Server: "s1", ConfigPath: "/taken/c.json"}}); err == nil || key != c.key {
			t.Errorf("%+v: %s, not %s: %v", in, key, c.key, err)
		}
	}
}

// TestNames: each job can be run, and has a time of its own.
func TestNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var list []string
	for name := range w.Jobs() {
		if list = append(list, name); !regexp.MustCompile(`^(\S+ ){4}\S+$`).MatchString(Usual[name]) {
			t.Errorf("%s: %q", name, Usual[name])
		}
	}
	slices.Sort(list)
	if !slices.Equal(list, Names()) || len(list) != 9 { // another one is begun by a claim
		t.Errorf("%q, not %q", list, Names())
	}
}
