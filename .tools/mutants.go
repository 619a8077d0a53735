//go:build ignore

// Command mutants changes one operator at a time and counts the changes that a test
// notices. gremlins lists them (it has no way to take a part of them, and takes one that
// does not build for one that was noticed, so it only lists); as many as are wanted are
// chosen by a seed, and with each the tests of its package run, and those of the directory:
//
//	go run .tools/mutants.go -n 300 -seed 1 -minutes 60 LIST...
//
// A list is what gremlins unleash --dry-run --output has written for a directory of the
// module, and has that directory's name and .json.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// A mutant is one operator of a file that is covered by a test.
type mutant struct {
	Type, Status string
	Line, Column int
	file         string
	tests        []string // the packages whose tests run
}

// others has the operator that takes the place of another, for each type of mutants.
var others = map[string]map[string]string{
	"CONDITIONALS_NEGATION": {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"},
	"CONDITIONALS_BOUNDARY": {"<": "<=", "<=": "<", ">": ">=", ">=": ">"},
	"ARITHMETIC_BASE":       {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"},
	"INCREMENT_DECREMENT":   {"++": "--", "--": "++"},
	"INVERT_NEGATIVES":      {"-": "+"},
	"INVERT_LOGICAL":        {"&&": "||", "||": "&&"},
}

func main() {
	n := flag.Int("n", 300, "how many mutants are tried")
	seed := flag.Uint64("seed", 1, "chooses them")
	minutes := flag.Int("minutes", 60, "none begins after that time")
	flag.Parse()
	var all []mutant
	for _, list := range flag.Args() {
		found, err := read(list)
		if err != nil {
			log.Fatal(err)
		}
		all = append(all, found...)
	}
	rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*minutes)*time.Minute)
	defer cancel()
	count := try(ctx, all, *n)
	tried := count["killed"] + count["lived"] + count["timeout"]
	if tried == 0 {
		log.Fatal("no mutant was tried")
	}
	fmt.Printf("mutants: seed=%d of=%d tried=%d killed=%d timeout=%d lived=%d rate=%.1f%%\n", *seed, len(all), tried,
		count["killed"], count["timeout"], count["lived"], 100*float64(tried-count["lived"])/float64(tried))
}

// testedBy has the packages that test the rooms of a directory, beside their own tests.
var testedBy = map[string]string{"ledger": "./ledger/...", "state": "./state/...", "coordinator": "./coordinator"}

// read returns the mutants of a list that tests cover.
func read(name string) (list []mutant, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var have struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []mutant
		}
	}
	if err := json.Unmarshal(data, &have); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	dir := strings.TrimSuffix(filepath.Base(name), ".json")
	for _, f := range have.Files {
		for _, m := range f.Mutations {
			if m.Status == "RUNNABLE" {
				m.file = filepath.Join(dir, f.Name)
				m.tests = []string{"./" + filepath.Dir(m.file), testedBy[dir]}
				list = append(list, m)
			}
		}
	}
	return list, nil
}

// try tries n mutants, two of them at a time, and returns how many there were of each
// result. One that does not build counts for none.
func try(ctx context.Context, all []mutant, n int) map[string]int {
	count := map[string]int{}
	var mu sync.Mutex // guards count, and next, the first mutant that nobody has taken
	var workers sync.WaitGroup
	next, left := 0, n
	for range max(2, runtime.NumCPU()/2) {
		workers.Go(func() {
			for {
				mu.Lock()
				if left == 0 || next == len(all) || ctx.Err() != nil {
					mu.Unlock()
					return
				}
				m := all[next]
				next, left = next+1, left-1
				mu.Unlock()
				result, err := m.try()
				if err != nil {
					log.Fatal(err)
				}
				mu.Lock()
				count[result]++
				if result == "unbuildable" {
					left++
				}
				mu.Unlock()
				fmt.Printf("%-11s %s:%d:%d %s\n", result, m.file, m.Line, m.Column, m.Type)
			}
		})
	}
	workers.Wait()
	return count
}

// try runs the tests with the mutant in its file.
func (m *mutant) try() (result string, err error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // in the temporary directory
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	changed, ok := m.apply(string(source))
	if !ok {
		return "", fmt.Errorf("%s:%d:%d has no operator for %s", m.file, m.Line, m.Column, m.Type)
	}
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	file, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: file}})
	if err := errors.Join(err, os.WriteFile(file, []byte(changed), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		return "", err
	}
	args := []string{"test", "-vet=off", "-short", "-failfast", "-count=1", "-timeout=2m", "-overlay", overlay}
	out, err := exec.Command("go", append(args, m.tests...)...).CombinedOutput()
	var exit *exec.ExitError
	switch text := string(out); {
	case err != nil && !errors.As(err, &exit):
		return "", err
	case strings.Contains(text, "[build failed]"):
		return "unbuildable", nil
	case strings.Contains(text, "panic: test timed out"):
		return "timeout", nil
	case err != nil:
		return "killed", nil
	}
	return "lived", nil
}

// apply returns the source with the other operator. The longest one at the place is the
// one that stands there.
func (m *mutant) apply(source string) (changed string, ok bool) {
	lines := strings.SplitAfter(source, "\n")
	if m.Line > len(lines) || m.Column > len(lines[m.Line-1]) {
		return "", false
	}
	before, at := lines[m.Line-1][:m.Column-1], lines[m.Line-1][m.Column-1:]
	old := ""
	for operator := range others[m.Type] {
		if strings.HasPrefix(at, operator) && len(operator) > len(old) {
			old = operator
		}
	}
	if old == "" {
		return "", false
	}
	lines[m.Line-1] = before + others[m.Type][old] + at[len(old):]
	return strings.Join(lines, ""), true
}
