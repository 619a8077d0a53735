package task

import (
	"slices"
	"strings"
	"testing"
)

// TestCaptureEnvironment: no pattern makes a secret part of it.
func TestCaptureEnvironment(t *testing.T) {
	for _, kv := range []string{
		"ANTHROPIC_API_KEY=x", "MY_TOKEN=x", "db_password=x", "SMTP_PASS=x", "GITHUB_PAT=x", "GOAUTH=netrc", "AWS_SECRET_ACCESS=x", "GOOGLE_APPLICATION_CREDENTIALS=/x",
		"HTTPS_PROXY=http://u:p@proxy:3128", "https_proxy=u:p@proxy:3128", "HTTPS_PROXY=ana@proxy:3128", "ALL_PROXY=socks5://u@proxy", "GOPROXY=https://u:p@goproxy.example,direct",
		"A=sk-ant-0123456789abcdef0", "A=ghp_0123456789abcdef0123", "A=github_pat_1", "A=AKIA0123456789ABCDEF", "A=eyJhbGciOiJIUzI1NiJ9.e30.x",
		"http_proxy=http://u:p/q@proxy:1", "CONDA_CHANNEL_ALIAS=https://conda.anaconda.org/t/tk-0123456789/x", "MYSQL_PWD=x", "A=Bearer x", `A={"password":"x"}`, "A=x;pwd=y",
		"A=-----BEGIN RSA PRIVATE KEY-----", "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStorePassword=x", "=x", "A", "B=\xff",
	} {
		if got := CaptureEnvironment([]string{kv}, []string{"*"}); got != nil {
			t.Errorf("%q is recorded", got)
		}
	}
	fine := []string{
		"PATH=/opt/token=/bin:/home/u@host/secret=x/bin:rel", "GOPRIVATE=example.org/*", "GOPROXY=https://goproxy.example,direct", "HTTP_PROXY=http://proxy:3128",
		"LC_ALL=C.UTF-8", "GIT_AUTHOR_NAME=ana", "NO_PROXY=localhost,.example.org", "VIRTUAL_ENV=/home/u/it's/venv",
	}
	slices.Sort(fine)
	if got := CaptureEnvironment(append(slices.Clone(fine), "OTHER=1", fine[0]), []string{"PATH", "GO*", "GIT_*", "*_PROXY", "LC_*", "VIRTUAL_ENV", "["}); !slices.Equal(got, fine) {
		t.Errorf("got  %q\nwant %q", got, fine)
	}
}

// TestFitEnvironment: what is too large is left out, the longest first, and PATH never.
func TestFitEnvironment(t *testing.T) {
	long := func(name string, n int) string { return name + "=" + strings.Repeat("x", n) }
	fits, removed := FitEnvironment([]string{"A=1", long("B", 10<<10), long("C", MaxEnvironment), long("D", 9<<10), long("PATH", 64<<10)})
	if want := []string{"A=1", long("D", 9<<10), long("PATH", 64<<10)}; !slices.Equal(fits, want) || !slices.Equal(removed, []string{"C", "B"}) {
		t.Errorf("without %q, %d bytes", removed, EnvironmentSize(fits))
	}
}

// FuzzEnvironment: what is captured comes back as it was under its digest, and under no other.
func FuzzEnvironment(f *testing.F) {
	f.Add("PATH=/bin\x00A=\"\n", "0123456789abcdef0123456789abcdef")
	f.Add("", "../../etc/passwd")
	f.Fuzz(func(t *testing.T, environ, digest string) {
		env := CaptureEnvironment(strings.Split(environ, "\x00"), []string{"*"})
		data, own := EncodeEnvironment(env)
		if (len(env) == 0) != (own == "") {
			t.Fatalf("%q has the digest %q", env, own)
		}
		if own != "" && !IsEnvironmentDigest(own) {
			t.Errorf("%q is no name", own)
		}
		if got, ok := DecodeEnvironment(data, own); own != "" && (!ok || !slices.Equal(got, env)) {
			t.Errorf("%q comes back as %q", env, got)
		}
		if _, ok := DecodeEnvironment(data, digest); ok && digest != own {
			t.Errorf("%q is read as %s", data, digest)
		}
		if IsEnvironmentDigest(digest) && strings.ContainsAny(digest, "/.") {
			t.Errorf("%q is a path", digest)
		}
	})
}
