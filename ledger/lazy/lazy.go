// Package lazy makes values when they are first used: each client and gate is a process, which uses few of them.
package lazy

import (
	"regexp"
	"sync"
)

// Value returns a function that returns what f does, which is called once.
func Value[T any](f func() T) func() T { return sync.OnceValue(f) }

// Regexp returns a function that returns a regular expression, which panics if it is none.
func Regexp(expr string) func() *regexp.Regexp {
	return Value(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
