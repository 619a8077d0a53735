//go:build !linux

package agent

import "os"

// punch makes a hole of the first n bytes of a file.
func punch(f *os.File, n int64) error { return rewrite(f, n) }
