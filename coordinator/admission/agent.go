package admission

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"stint/coordinator/task"
	"stint/state"
	"stint/state/fold"
)

// checkAgent fills in agent and account. A session goes on with its own agent.
func (in *intake) checkAgent(s *submission) error {
	var owner string // of the session that the spec names, as far as the sessions in use tell
	if s.AgentSession != "" {
		in.view(func(st *fold.State) { owner, _, _ = st.NativeOwner(s.AgentSession) })
	}
	lane := s.lane()
	if known, ok := in.configured.Find(s.Account); ok && s.Agent == "" {
		s.Agent = known.Tool
	}
	s.named = s.Agent != "" && s.parent == "" // a follow-up has its task's, which nobody named for it
	if s.Agent = cmp.Or(s.Agent, owner); s.Agent == "" && (s.SessionKey != "" || s.Continue) {
		if s.Agent = in.agents[lane]; s.Agent == "" {
			in.view(func(st *fold.State) {
				s.Agent, _ = st.LaneAgent(lane, slices.Sorted(maps.Keys(in.a.tasks.Config.Agents)))
			})
		}
	}
	if s.Agent == "" && s.asker != nil { // what a run queues is for its own agent, not for the user's default
		s.Agent = s.asker.Agent
	}
	if s.Agent = cmp.Or(s.Agent, s.DefaultAgent); s.Agent == "" {
		if in.agent == "" { // asked once: it may start a program
			in.agent = in.a.tasks.Config.DefaultAgent(s.Environment)
		}
		s.Agent = in.agent
	}
	if !s.Parallel { // else it is in no lane that others of them go on with
		in.agents[lane] = s.Agent
	}
	if err := in.a.checkAgentName(s.Agent); err != nil {
		return err
	}
	if err := in.checkAccount(s); err != nil {
		return err
	}
	if owner != "" && owner != s.Agent {
		return task.Wrong("agentSession", "use --agent "+owner+", or the id of a session of "+s.Agent, "the session %s belongs to %s, not to %s", s.AgentSession, owner, s.Agent)
	}
	return nil
}

// checkAccount refuses an account that a spec names and that its agent cannot use.
func (in *intake) checkAccount(s *submission) error {
	if s.Account == "" {
		return nil
	}
	var isDisabled bool
	in.view(func(st *fold.State) { isDisabled = st.Account(s.Account).Disabled })
	known, ok := in.configured.Find(s.Account)
	of := strings.Join(in.configured.Of(s.Agent), ", ")
	switch {
	case len(in.configured.List) == 0:
		return task.Wrong("account", "stint doctor", "no account is known while accounts.toml has a mistake")
	case !ok:
		return task.Wrong("account", "stint account ls", "there is no account %q; %s has %s", s.Account, s.Agent, of)
	case known.Tool != s.Agent:
		return task.Wrong("account", "use --agent "+known.Tool+", or an account of "+s.Agent+": "+of, "%s is an account of %s, not of %s", s.Account, known.Tool, s.Agent)
	case isDisabled:
		return task.Wrong("account", "stint account enable "+s.Account+", or leave it out", "the account %s is disabled", s.Account)
	}
	return nil
}

// checkAgentName returns what is wrong with the name of an agent.
func (a *Admission) checkAgentName(name string) error {
	if a.tasks.Config.Agents[name] != nil {
		return nil
	}
	known := strings.Join(slices.Sorted(maps.Keys(a.tasks.Config.Agents)), ", ")
	return task.Wrong("agent", "stint doctor", "there is no agent %q; known are %s", name, known)
}

// fillFallback checks the agents that may take over, or fills in those of the configuration.
func (a *Admission) fillFallback(s *submission) error {
	named := s.Fallback
	if s.open = len(named) == 0 && !s.named && s.SessionKey == "" && !s.Continue && s.AgentSession == ""; s.open {
		for _, agent := range a.tasks.Config.Fallback {
			if a.tasks.Config.Agents[agent] != nil {
				named = append(named, agent)
			}
		}
	}
	if len(named) == 1 && named[0] == "none" { // whatever is configured
		named = nil
	}
	var list []string
	for _, agent := range named {
		if err := a.checkAgentName(agent); err != nil {
			return task.InOption("fallback", err)
		}
		if err := a.CheckAllow(agent, s.Workspace, s.Allow); err != nil && s.open {
			continue
		} else if err != nil {
			return task.InOption("fallback", err)
		}
		if agent != s.Agent && !slices.Contains(list, agent) {
			list = append(list, agent)
		}
	}
	s.Fallback = list
	return nil
}

// CheckAllow returns what forbids a task in a workspace to allow its agent what some rules say:
// the configuration, or that the agent cannot be told of them.
func (a *Admission) CheckAllow(agent, workspace string, rules []string) error {
	if len(rules) == 0 {
		return nil
	}
	permitted := a.tasks.Workspace(workspace).Allow
	if more := task.Beyond(rules, permitted); len(more) > 0 {
		try := "stint config edit" // set does not change the section of a workspace, and a rule with a comma needs a list of TOML
		if list := slices.Concat(permitted, more); slices.Equal(permitted, a.tasks.Config.Allow) && !strings.Contains(strings.Join(list, ""), ",") {
			try = "stint config set allow " + state.ShellQuote(strings.Join(list, ","))
		}
		return task.Wrong("allow", try, "the configuration (allow) does not permit %s", strings.Join(more, ", "))
	}
	for _, s := range rules {
		rule, _ := task.ParseRule(s)
		if why := a.tasks.Config.CannotAllow; why != nil && why(agent, rule) != "" {
			return task.Wrong("allow", "leave it out, or use --agent claude", "%s cannot use the rule %s: %s", agent, s, why(agent, rule))
		}
	}
	return nil
}
