package gemini

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"stint/coordinator/agent"
	"stint/coordinator/task"
	"stint/state"
)

// CLI implements [agent.Adapter]. A probe starts gemini only where its version stands in no package.json, because that takes a
// second and more. Gemini finds a session to resume from its own workspace alone.
func (g *Agent) CLI() *agent.CLI {
	return &agent.CLI{
		Find: g.find, Version: g.version, Login: g.login, Tested: versions, More: g.settingsProblems,
		LogIn: "export GEMINI_API_KEY=...", Resume: state.ShellQuote(cmp.Or(g.Bin, "gemini")) + " --resume",
		Home: g.home(), NoHome: agent.Problem{Text: "gemini cannot write its home, and then hangs without a word", Fatal: true},
	}
}

// version reads the package that the program is from, or asks the program.
func (g *Agent) version(ctx context.Context, path string) (string, error) {
	if v := agent.PackageVersion(task.WithoutLinks(path), "gemini-cli"); v != "" {
		return v, nil
	}
	return g.Runner.Version(ctx, path)
}

// login finds out as gemini does: the method that is chosen in the settings, or else the one that the environment names.
func (g *Agent) login(context.Context, string) (ok bool, detail, fix string) {
	method, err := g.method()
	if err != nil {
		return false, err.Error(), "correct " + state.ShellQuote(g.settingsPath())
	}
	switch method {
	case "gemini-api-key":
		return g.needs("the API key", "GEMINI_API_KEY")
	case "vertex-ai":
		if g.has("GOOGLE_API_KEY") {
			return true, "GOOGLE_API_KEY is set, for Vertex AI", ""
		}
		return g.needs("Vertex AI", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION")
	case "oauth-personal":
		if _, err := os.Stat(filepath.Join(g.home(), "oauth_creds.json")); err == nil {
			return true, "logged in with Google", ""
		}
		return false, "not logged in with Google, as its settings ask for", "gemini"
	case "gateway":
		return false, "GOOGLE_GEMINI_BASE_URL is set and no method of login is chosen: gemini ends with \"Invalid auth method selected\"",
			"set security.auth.selectedType to \"gemini-api-key\" in " + state.ShellQuote(g.settingsPath())
	case "":
		return false, "no API key and no login", ""
	}
	return true, "logged in by " + method, ""
}

// needs checks that variables are set.
func (g *Agent) needs(what string, names ...string) (ok bool, detail, fix string) {
	for _, name := range names {
		if !g.has(name) {
			return false, what + " needs " + name + " in the environment", "export " + name + "=..."
		}
	}
	return true, strings.Join(names, " and ") + " set", ""
}

// has reports whether a variable is set, in the environment or in gemini's .env.
func (g *Agent) has(name string) bool {
	if task.LookupEnv(g.Env, name) != "" {
		return true
	}
	data, _ := os.ReadFile(filepath.Join(g.home(), ".env")) // without it nothing is set there
	return regexp.MustCompile(`(?m)^[ \t]*(?:export[ \t]+)?` + name + `[ \t]*=[ \t]*\S`).Match(data)
}

// method is the way of logging in that gemini will take, "" if there is none.
func (g *Agent) method() (string, error) {
	settings, err := g.settings()
	if err != nil {
		return "", fmt.Errorf("gemini's settings: %w", err)
	}
	if m, ok := at(settings, "security", "auth", "selectedType").(string); ok && m != "" {
		return m, nil
	}
	switch {
	case task.LookupEnv(g.Env, "GOOGLE_GENAI_USE_GCA") == "true":
		return "oauth-personal", nil
	case task.LookupEnv(g.Env, "GOOGLE_GENAI_USE_VERTEXAI") == "true":
		return "vertex-ai", nil
	case task.LookupEnv(g.Env, "GOOGLE_GEMINI_BASE_URL") != "":
		return "gateway", nil
	case g.has("GEMINI_API_KEY"):
		return "gemini-api-key", nil
	case task.LookupEnv(g.Env, "CLOUD_SHELL") == "true" || task.LookupEnv(g.Env, "GEMINI_CLI_USE_COMPUTE_ADC") == "true":
		return "compute-default-credentials", nil
	}
	return "", nil
}

// home is where gemini keeps its settings and sessions.
func (g *Agent) home() string {
	return filepath.Join(cmp.Or(task.LookupEnv(g.Env, "GEMINI_CLI_HOME"), task.LookupEnv(g.Env, "HOME")), ".gemini")
}

func (g *Agent) settingsPath() string { return filepath.Join(g.home(), "settings.json") }

func (g *Agent) settings() (map[string]any, error) { return readSettings(g.settingsPath()) }

// at returns the value at a path of keys, nil if there is none.
func at(settings map[string]any, path ...string) any {
	var v any = settings
	for _, key := range path {
		m, _ := v.(map[string]any) // nil has no keys
		v = m[key]
	}
	return v
}

// settingsProblems returns settings with which gemini deletes sessions that are still used, or tries for minutes before it says
// that something is wrong. Stint's own defaults help only where gemini reads them, and only in stint's runs.
func (g *Agent) settingsProblems(context.Context, string) (found []agent.Problem) {
	defaults, err := readSettings(g.defaultsPath())
	if err != nil {
		found = append(found, agent.Problem{Text: fmt.Sprintf("the machine's defaults for gemini cannot be read: %v", err)})
	}
	settings, err := g.settings()
	if err != nil {
		return append(found, agent.Problem{Text: fmt.Sprintf("gemini's settings cannot be read: %v", err), Fatal: true})
	}
	set := func(key ...string) any {
		if v := at(settings, key...); v != nil {
			return v
		}
		return at(defaults, key...)
	}
	if set("general", "sessionRetention", "enabled") != false {
		found = append(found, agent.Problem{
			Text: "gemini's session retention is on: it deletes sessions that stint may have to resume",
			Fix:  `set "general": {"sessionRetention": {"enabled": false}} in ` + g.settingsPath(),
		})
	}
	if set("general", "maxAttempts") == nil && !agent.RootOwned(filepath.Dir(g.home())) {
		found = append(found, agent.Problem{
			Text: "gemini tries for minutes before it tells of a limit or an error, and takes stint's defaults only from root",
			Fix:  `set "general": {"maxAttempts": 3} in ` + g.settingsPath(),
		})
	}
	return found
}
