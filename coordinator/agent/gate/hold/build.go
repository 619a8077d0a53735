package hold

import (
	"embed"
	"fmt"
	"hash/fnv"
	"os"
	"runtime/debug"
)

// source is what a gate does, as far as it is stint's.
//
//go:embed *.go
var source embed.FS

// Program is the program stint-gate, which says of what build it is if it is not to be a gate.
func Program(args []string) int {
	if len(args) == 1 && args[0] == "gate" {
		return Main(os.Stdin, os.Stdout)
	}
	fmt.Print(Build())
	return 0
}

// Build names what a gate is made of: version, commit and settings of the build, Go, and the text of this
// package, because a tree with changes that are not committed has no other name for them.
func Build() string {
	var all []byte
	if info, ok := debug.ReadBuildInfo(); ok {
		all = fmt.Append(all, info.GoVersion, info.Main, info.Settings)
	}
	files, _ := source.ReadDir(".") // it is within the program
	for _, f := range files {
		text, _ := source.ReadFile(f.Name())
		all = fmt.Append(all, f.Name(), len(text), string(text))
	}
	sum := fnv.New128a()
	_, _ = sum.Write(all) // it has no errors
	return fmt.Sprintf("stint-gate %x\n", sum.Sum(nil))
}
