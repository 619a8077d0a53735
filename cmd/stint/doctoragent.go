package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"stint/coordinator/agent"
)

// A look is what the look at one CLI has shown.
type look struct {
	name     string
	probe    agent.Probe
	problems []agent.Problem
}

// examineAgents looks at the CLIs. Only those that the user has chosen must be
// there: one is enough, and without any the demo agent answers.
func examineAgents(ctx context.Context, cfg *Config) (list []finding) {
	looks := make([]look, len(cliNames))
	var wg sync.WaitGroup
	for i, name := range cliNames { // at once: each is started several times
		wg.Go(func() {
			c := adapterOf(cfg, name, "")
			looks[i] = look{name: name, probe: c.Probe(ctx)}
			if looks[i].probe.Found {
				looks[i].problems = c.Examine(ctx)
			}
		})
	}
	wg.Wait()
	chosen := append([]string{cfg.Agent}, cfg.Fallback...)
	for _, s := range cfg.sections {
		for _, v := range s.values {
			if v.key.name == "agent" {
				chosen = append(chosen, v.text)
			}
		}
	}
	ready := false // one before it in the order of choice
	found := slices.ContainsFunc(looks, func(l look) bool { return l.probe.Found })
	demo := !found
	for _, l := range looks {
		needed := slices.Contains(chosen, l.name)
		usable := l.probe.Found && l.probe.LoggedIn
		demo = demo && !needed
		if bin := l.name + "_bin"; !l.probe.Found && !cfg.isDefault(bin) {
			l.probe.Fix = "mend " + bin + " in the configuration, or leave it out"
		} else if !l.probe.Found && !needed {
			if found {
				list = append(list, finding{l.name, healthOK, "not installed, and not needed; to get it: " + l.probe.Fix, ""})
			}
			continue
		}
		if cfg.Agent == "" && usable && !ready {
			needed, ready = true, true // tasks that name no agent get it
		}
		list = append(list, l.findings(needed)...)
	}
	if demo {
		text, help := noCLI()
		list = append(list, finding{"agents", healthWarn, text + ": only the built-in demo agent can work", help})
	}
	return list
}

// findings tells of one CLI. What stops it is a problem only if it is needed.
func (l *look) findings(needed bool) []finding {
	p, bad := l.probe, healthWarn
	if needed {
		bad = healthFail
	}
	f := finding{l.name, healthOK, oneLine(p.Detail), p.Fix}
	if p.Found {
		parts := slices.DeleteFunc([]string{p.Version, oneLine(p.Detail), p.Path}, func(s string) bool { return s == "" })
		f.Text = strings.Join(parts, ", ")
	}
	if !p.Found || !p.LoggedIn {
		f.Status = bad
	}
	list := []finding{f}
	for _, problem := range l.problems {
		f := finding{l.name, healthWarn, oneLine(problem.Text), problem.Fix}
		if problem.Fatal {
			f.Status = bad
		}
		list = append(list, f)
	}
	return list
}

// limitMemoryLow is the address space, of which it uses little, that Node reserves.
const limitMemoryLow = 64 << 30

// examineLimits looks at the limits that the configuration sets for runs.
func examineLimits(cfg *Config) finding {
	var set []string
	for _, name := range []string{"limit_cpu", "limit_files", "limit_file_size", "limit_memory", "nice"} {
		if !cfg.isDefault(name) {
			set = append(set, fmt.Sprintf("%s %v", name, findKey(name).get(cfg)))
		}
	}
	f := finding{"limits of runs", healthOK, "none", ""}
	if len(set) > 0 {
		f.Text = strings.Join(set, ", ")
	}
	if cfg.LimitMemory > 0 && cfg.LimitMemory < limitMemoryLow {
		f.Status, f.Try = healthWarn, "limit_memory = 0, or a limit of 64GiB or more"
		f.Text += "; limit_memory bounds address space, and programs that run on Node or Bun do not start with so little"
	}
	return f
}
