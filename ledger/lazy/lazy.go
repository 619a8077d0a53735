// Package lazy makes regular expressions when they are first used: each client and gate is a process, which uses few of them.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that returns a regular expression, which panics if it is none.
func Regexp(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
