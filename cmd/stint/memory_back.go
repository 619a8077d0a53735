package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"
)

// giveBackEvery is how often a master looks whether it may have memory to give back.
const giveBackEvery = 10 * time.Second

// giveMemoryBack gives the system the memory that is no longer in use, until ctx ends,
// where more than 16 MB were allocated since it did. To start, to compact, to take a large
// save or specification over, or to list all tasks takes many times the size of the
// ledger, and the runtime itself keeps that for minutes.
func giveMemoryBack(ctx context.Context) {
	tick := time.NewTicker(giveBackEvery)
	defer tick.Stop()
	for before := uint64(0); ; {
		var m runtime.MemStats
		if runtime.ReadMemStats(&m); m.TotalAlloc-before > 16<<20 {
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
