package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"
)

// How often a master looks whether it may have memory to give back, and for how many
// bytes that were allocated since it did.
const (
	giveBackEvery = 10 * time.Second
	giveBackFor   = 16 << 20
)

// giveMemoryBack gives the system the memory that is no longer in use, until ctx ends. To
// start, to compact, to take a large save or specification over, or to list all tasks takes
// many times the size of the ledger, and the runtime itself keeps that for minutes.
func giveMemoryBack(ctx context.Context) {
	tick := time.NewTicker(giveBackEvery)
	defer tick.Stop()
	for before := uint64(0); ; {
		var m runtime.MemStats
		if runtime.ReadMemStats(&m); m.TotalAlloc-before > giveBackFor {
			debug.FreeOSMemory()
			before = m.TotalAlloc
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
