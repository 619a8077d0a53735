package admission

import (
	"slices"

	"stint/coordinator/task"
)

// noFallback is the word for no fallback at all, where one is configured.
const noFallback = "none"

// fillFallback checks the agents that may take over, and fills in those of the
// configuration where the spec leaves everything open.
func (a *Admission) fillFallback(s *submission) error {
	named := s.Fallback
	if s.open = len(named) == 0 && !s.named && s.SessionKey == "" && !s.Continue && s.AgentSession == ""; s.open {
		for _, agent := range a.Config.Fallback {
			if a.Config.Agents[agent] != nil {
				named = append(named, agent)
			}
		}
	}
	if len(named) == 1 && named[0] == noFallback {
		named = nil
	}
	var list []string
	for _, agent := range named {
		if err := a.checkAgentName(agent); err != nil {
			return task.InOption("fallback", err)
		}
		if agent != s.Agent && !slices.Contains(list, agent) {
			list = append(list, agent)
		}
	}
	s.Fallback = list
	return nil
}
