// Command stint-gate is the gate of stint's runs as a program of its own, which starts in a fifth of the time.
// stint uses it where it lies beside it and is of the same build; nobody else starts it.
package main

import (
	"os"

	"stint/coordinator/agent/gate/hold"
)

func main() { os.Exit(hold.Program(os.Args[1:])) }
