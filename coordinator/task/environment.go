package task

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// MaxEnvironment is how large the recorded environment of a task may be, by [EnvironmentSize].
const MaxEnvironment = 16 << 10

// LookupEnv returns the value of a variable of an environment.
func LookupEnv(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// EnvironmentSize returns the length of an environment in bytes, without its PATH.
func EnvironmentSize(env []string) (size int) {
	for _, kv := range env {
		if !strings.HasPrefix(kv, "PATH=") {
			size += len(kv)
		}
	}
	return size
}

// FitEnvironment removes the longest variables but PATH until [MaxEnvironment] is kept, and returns their names.
func FitEnvironment(env []string) (fits, removed []string) {
	for EnvironmentSize(env) > MaxEnvironment {
		longest := slices.MaxFunc(env, func(a, b string) int { return EnvironmentSize([]string{a}) - EnvironmentSize([]string{b}) })
		name, _, _ := strings.Cut(longest, "=")
		removed = append(removed, name)
		env = slices.DeleteFunc(env, func(kv string) bool { return kv == longest })
	}
	return env, removed
}

// CaptureEnvironment returns the variables, KEY=VALUE, that are recorded with a task, sorted: those whose names
// fit a pattern, that hold no secret, and that JSON can carry.
func CaptureEnvironment(environ, patterns []string) []string {
	var list []string
	for _, kv := range environ {
		if IsCaptured(kv, patterns) && utf8.ValidString(kv) {
			list = append(list, kv)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// IsCaptured reports whether a variable, KEY=VALUE, fits one of the patterns and holds no secret.
func IsCaptured(kv string, patterns []string) bool {
	name, value, ok := strings.Cut(kv, "=")
	return ok && name != "" && IsNamed(kv, patterns) && !IsSecret(name, value)
}

// IsNamed reports whether the name in NAME=VALUE fits one of the patterns, in which a star stands for anything.
func IsNamed(kv string, patterns []string) bool {
	name, _, _ := strings.Cut(kv, "=")
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if !strings.ContainsAny(pattern, `*?[\`) { // as most
			return pattern == name
		}
		ok, _ := path.Match(pattern, name)
		return ok
	})
}

// secretValue finds secrets in values: the user of a URL, also without a scheme, private keys, the
// tokens of well-known services (conda's stand in a path), and settings that are called so.
var secretValue = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`://\S*@|^[^/\s]+:\S*@|://\S*/t/[\w-]{8}|-----BEGIN |^(?i:bearer|basic) |` +
		`\b(sk-[\w-]{16}|gh[opsur]_\w{16}|github_pat_|glpat-|xox[abprs]-|AKIA[0-9A-Z]{12}|AIza[\w-]{16}|eyJ[\w-]{10,}\.)|` +
		`(?i:password|passwd|pwd|secret|token|api_?-?key)[^=:\s]{0,20}[=:]`)
})

// IsSecret reports whether a variable looks as if it held a secret, by its name or its value:
// of a proxy, also one without a scheme, the user. Such a one is never recorded. PATH is none.
func IsSecret(name, value string) bool {
	parts := []string{"TOKEN", "KEY", "SECRET", "PASS", "CREDENTIAL", "AUTH", "COOKIE"}
	upper := strings.ReplaceAll(strings.ToUpper(name), "AUTHOR", "")
	return upper != "PATH" && (slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(upper, part) }) || strings.HasSuffix(upper, "_PAT") || strings.HasSuffix(upper, "_PWD") || strings.HasSuffix(upper, "_PROXY") && strings.Contains(value, "@") || secretValue().MatchString(value))
}

// EncodeEnvironment returns a captured environment as it is kept, and its digest; both are empty for none.
func EncodeEnvironment(env []string) (data []byte, digest string) {
	if len(env) == 0 {
		return nil, ""
	}
	data, _ = json.Marshal(env) // strings always can be
	return data, digestOf(data)
}

// DecodeEnvironment reads what EncodeEnvironment wrote under that digest; ok is false if it has changed.
func DecodeEnvironment(data []byte, digest string) (env []string, ok bool) {
	return env, digestOf(data) == digest && json.Unmarshal(data, &env) == nil
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// IsEnvironmentDigest reports whether a text has the form of a digest: it becomes the name of a file.
func IsEnvironmentDigest(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 32
}

// IsBelow reports whether path is dir or lies in it, links resolved.
func IsBelow(path, dir string) bool {
	return IsWithin(WithoutLinks(path), WithoutLinks(dir))
}

// IsWithin is IsBelow of paths as they are written.
func IsWithin(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// WithoutLinks resolves the links of a path, as far as it is there. "" is no path.
func WithoutLinks(path string) string {
	if path == "" {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil { // of link/.., the directory above the one that the link names
		return real
	}
	path = filepath.Clean(path)
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(WithoutLinks(parent), filepath.Base(path))
}

// SafePath returns the PATH of an environment without the directories in which runs can write, nor any in a checkout
// of the home's: what is called by it belongs to the system.
func SafePath(env []string, root string) string {
	env = append(slices.Clone(env), "HOME=")
	dirs := slices.DeleteFunc(filepath.SplitList(LookupEnv(env, "PATH")), func(dir string) bool { return IsWritable(dir, env, root) })
	return cmp.Or(strings.Join(dirs, ":"), "/usr/bin:/bin")
}

// IsWritable reports whether runs can write to a program or a directory of PATH: where it is relative, in root, in
// the active virtual environment or in a checkout, or a link there leads to it. The home, what is hidden in it, such
// as nvm, and Homebrew may be checkouts in which no tasks run.
func IsWritable(path string, env []string, root string) bool {
	home := WithoutLinks(LookupEnv(env, "HOME"))
	for _, path := range []string{path, WithoutLinks(path)} {
		if !filepath.IsAbs(path) {
			return true
		}
		for _, dir := range []string{root, LookupEnv(env, "VIRTUAL_ENV")} {
			if dir != "" && (IsWithin(path, dir) || IsWithin(path, WithoutLinks(dir))) {
				return true
			}
		}
		if top := WithoutLinks(CheckoutAbove(path)); IsCheckout(top) && top != home && !strings.HasPrefix(top, home+"/.") && top != "/opt/homebrew" {
			return true
		}
	}
	return false
}

// RepositoryRoot is CheckoutAbove of a path that may have links.
func RepositoryRoot(dir string) string { return CheckoutAbove(WithoutLinks(dir)) }

// CheckoutAbove returns the directory above (or at) dir that is the top of a
// checkout, else dir: two tasks in one checkout are in one lane.
func CheckoutAbove(dir string) string {
	for at := dir; ; at = filepath.Dir(at) {
		if IsCheckout(at) {
			return at
		}
		if at == filepath.Dir(at) {
			return dir
		}
	}
}

// IsCheckout reports whether dir holds a .git of git's: a file, or a directory with a HEAD. Sandboxes leave empty ones behind.
func IsCheckout(dir string) bool {
	git := filepath.Join(dir, ".git")
	fi, err := os.Stat(git)
	if err != nil || !fi.IsDir() {
		return err == nil
	}
	_, err = os.Stat(filepath.Join(git, "HEAD"))
	return err == nil
}
