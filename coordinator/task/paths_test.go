package task

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSafePath: no directory where a run can have put programs, whatever links lead to or from it.
func TestSafePath(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + dir + "/home-link", "VIRTUAL_ENV=" + dir + "/venv"}
	for at, safe := range map[string]bool{
		"usr/bin": true, "home/.nvm/bin": false, "home/bin": false, "to-usr": true, "home-link/.nvm/bin": false,
		"shop/bin": false, "shop/sub/bin": false, "venv/bin": false, "home/src/bin": false, "root/bin": false,
		"shop/link": false, // which a run may turn elsewhere
		"to-shop":   false, "home-link/src/bin": false,
	} {
		if !strings.Contains(at, "link") && !strings.HasPrefix(at, "to-") {
			if err := os.MkdirAll(filepath.Join(dir, at), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		env = append(env, "PATH="+strings.TrimPrefix(LookupEnv(env, "PATH")+":"+filepath.Join(dir, at), ":"))
		if safe {
			env = append(env, "WANT="+strings.TrimPrefix(LookupEnv(env, "WANT")+":"+filepath.Join(dir, at), ":"))
		}
	}
	for _, top := range []string{"home", "home/.nvm", "home/src", "shop"} {
		if err := os.MkdirAll(filepath.Join(dir, top, ".git"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, top, ".git", "HEAD"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"to-usr": "usr/bin", "to-shop": "shop/bin", "shop/link": "usr/bin", "home-link": "home"} {
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	env = append(env, "PATH=bin::."+":"+LookupEnv(env, "PATH"))
	if got, want := SafePath(env, filepath.Join(dir, "root")), LookupEnv(env, "WANT"); got != want {
		t.Errorf("%s\nis not\n%s", got, want)
	}
	// What stands behind a link is above the directory to which it leads.
	for _, err := range []error{os.Mkdir(filepath.Join(dir, "bin"), 0o700), os.Symlink(filepath.Join(dir, "shop/sub"), filepath.Join(dir, "to-sub"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := SafePath([]string{"PATH=/usr/bin:" + dir + "/to-sub/../bin"}, ""); got != "/usr/bin" {
		t.Error(got)
	}
	if got := SafePath([]string{"PATH=bin:"}, ""); got != "/usr/bin:/bin" {
		t.Error(got)
	}
}
