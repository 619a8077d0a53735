// Package agenttest has the tests that the agents share: their runs, with programs that stand in for a CLI
// and with the real ones, and what must hold for every decoder.
package agenttest
