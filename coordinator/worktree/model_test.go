package worktree_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/coordinator/worktree"
)

// What agents do in a worktree: $n is a number of the step, $s the session, $root the user's checkout.
var agentActs = []string{
	"echo $n >>a; git commit -qam $n",
	"echo $n >f$n; git add . && git commit -qm $n",
	"echo $n >f$n; sed -i s/^5/$n/ a",
	"echo $n >f$n; git add .; git commit -q --amend -m $n",
	"git reset -q --hard HEAD~1",
	"git rebase -q main",
	"git merge -q -m $n main",
	"git cherry-pick main",
	"git checkout -q main; echo $n >f$n; git add .; git commit -qm $n",
	"git checkout -q -b other$n; echo $n >f$n; git add .; git commit -qm $n",
	"git checkout -q --detach; echo $n >f$n; git add .; git commit -qm $n",
	"git checkout -q --detach main; git branch -q -D stint/$s",
	"git update-ref -d refs/heads/stint/$s",
	"git checkout -q stint/$s",
	"cd ..; rm -rf $OLDPWD",
	"git worktree remove --force .",
	"touch $(git rev-parse --git-path index.lock) $(git rev-parse --git-path HEAD.lock)",
	"rm .git; git init -q .; git add .; git commit -qm $n",
	"rm a; mkdir a; echo $n >a/a",
	"git rm -q --cached a",
	"mkdir own$n; cd own$n; git init -q .; echo $n >x; git add .; git commit -qm $n",
}

// What users do in their checkout.
var userActs = []string{
	"echo $n >>a; git commit -qam $n",
	"sed -i s/^5/user$n/ a; git commit -qam $n",
	"echo $n >u$n; git add u$n; git commit -qm $n",
	"git commit -q --amend -m $n",
	"git reset -q --hard HEAD~1",
	"git checkout -q -b topic$n; echo $n >t$n; git add t$n; git commit -qm $n",
	"git checkout -q main",
	"git rebase -q main; git rebase --abort 2>/dev/null",
	"git branch -q -D $(git for-each-ref --format='%(refname:short)' refs/heads | grep -v '^main$')",
	"git branch -q -D $(git for-each-ref --format='%(refname:short)' refs/heads | grep '^[ot]')",
	"git update-ref -d refs/heads/stint/$s",
	"git worktree prune",
	"git reflog expire --expire=now --all; git gc --prune=now -q",
	"git reflog expire --expire=now --all; git prune --expire=now",
	"echo dirty >>a",
	"git checkout -q -f",
	"echo $n >f$n",
	"git merge -q stint/$s",
	"git checkout -q stint/$s",
}

// A history is a repository with what has happened to it.
type history struct {
	*place
	rng    *rand.Rand
	now    time.Time
	names  []string
	made   map[string]seen // by session, what was made in its worktree and can still be found there
	owed   seen            // what stint had to see
	landed string          // the session that has landed last
	graph  map[string][]string
	notes  seen // stint's own
	refs   map[string]string
	log    []string
	ended  map[string]int // stint's operations that ended well
}

// traces are the commits that a session's branch has or had, and those made in its worktree, as far as git knows.
func (h *history) traces(name string) seen {
	h.t.Helper()
	git := filepath.Join(h.root, ".git")
	names := []string{filepath.Join(git, "logs/refs/heads/stint", name), filepath.Join(git, "refs/heads/stint", name)}
	admins, _ := filepath.Glob(filepath.Join(git, "worktrees/*/gitdir"))
	for _, admin := range admins {
		if text, _ := os.ReadFile(admin); strings.TrimSpace(string(text)) == filepath.Join(h.trees.PathOf(name, h.root), ".git") {
			names = append(names, filepath.Join(filepath.Dir(admin), "logs/HEAD"), filepath.Join(filepath.Dir(admin), "HEAD"))
		}
	}
	var ids []string
	for _, file := range names {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if words := strings.Fields(line); len(words) == 1 {
				ids = append(ids, words[0])
			} else if _, what, _ := strings.Cut(line, "\t"); !strings.HasPrefix(what, "checkout: ") {
				ids = append(ids, words[1])
			}
		}
	}
	return h.reach(append(ids, h.refs[heads+name]))
}

const heads = "refs/heads/stint/"

// reach returns the commits, and those before them.
func (h *history) reach(ids []string) seen {
	s := seen{}
	for len(ids) > 0 {
		id := ids[len(ids)-1]
		ids = ids[:len(ids)-1]
		if parents, ok := h.graph[id]; ok && !s[id] {
			s[id] = true
			ids = append(ids, parents...)
		}
	}
	return s
}

// look reads what git knows now. It returns the commits that are new.
func (h *history) look() (fresh []string) {
	h.t.Helper()
	graph, refs, _ := strings.Cut(h.in(h.root, "git log --format='%H %P %s' --all --reflog; echo; git for-each-ref --format='%(objectname) %(refname)'"), "\n\n")
	isID := regexp.MustCompile(`^[0-9a-f]{40}$`)
	for line := range strings.Lines(graph) {
		words := strings.Fields(line)
		if _, known := h.graph[words[0]]; !known {
			n := 1
			for n < len(words) && isID.MatchString(words[n]) {
				n++
			}
			h.graph[words[0]] = words[1:n]
			if !ownNotes.MatchString(strings.Join(words[n:], " ")) {
				fresh = append(fresh, words[0])
			} else {
				h.notes[words[0]] = true
			}
		}
	}
	clear(h.refs)
	for line := range strings.Lines(refs) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		h.refs[name] = id
	}
	return fresh
}

// kept returns the commits that are on a branch or below refs/stint.
func (h *history) kept() seen {
	var ids []string
	for name, id := range h.refs {
		if strings.HasPrefix(name, "refs/heads/") || strings.HasPrefix(name, "refs/stint/") {
			ids = append(ids, id)
		}
	}
	return h.reach(ids)
}

// check fails unless all commits are kept.
func (h *history) check(these seen) {
	h.t.Helper()
	kept := h.kept()
	for id := range these {
		if !kept[id] && !h.notes[id] {
			h.t.Fatalf("%s\nthe commit %s is lost: %s\n%s", strings.Join(h.log, "\n"), id, h.in(h.root, "git log -1 --format=%s "+id), h.in(h.root, "git log --graph --all --oneline --decorate"))
		}
	}
}

// files returns what lies in the user's checkout, and what git knows of it.
func (h *history) files() string {
	index, _ := os.ReadFile(filepath.Join(h.root, ".git/index"))
	head, _ := os.ReadFile(filepath.Join(h.root, ".git/HEAD"))
	return fmt.Sprintf("%s%s%x", h.content(), head, sha256.Sum256(index))
}

// person lets an agent or the user do something, which may fail.
func (h *history) person(name, dir, act string, n int) {
	_, _ = h.shell(fmt.Sprintf("cd '%s' 2>/dev/null || exit; export n=%d s=%s root='%s'; { %s; } >/dev/null 2>&1", dir, n, name, h.root, act), "")
	for _, id := range h.look() {
		if dir != h.root {
			h.made[name][id] = true
		}
	}
	for _, name := range h.names {
		if len(h.made[name]) > 0 {
			traces := h.traces(name)
			maps.DeleteFunc(h.made[name], func(id string, _ bool) bool { return !traces[id] })
		}
	}
}

// stint does something to a session's worktree. The user's files stay, unless it is a landing.
func (h *history) stint(name, what string) {
	h.t.Helper()
	tree, none := h.tree(name), func() error { return nil }
	before, files := h.kept(), h.files()
	var err error
	changes := false
	if what != "make" && tree.IsMade() {
		maps.Copy(h.owed, h.made[name])
	}
	if what != "make" && what[:4] != "drop" && tree.IsMade() {
		_, err = tree.Save(h.run, "work in "+name, &worktree.Author{})
		if err != nil {
			h.t.Fatalf("%s: %v\n%s", what, err, strings.Join(h.log, "\n"))
		}
	}
	switch {
	case what == "make":
		_, err = tree.Make(h.run, name, "", h.now, none)
	case !tree.IsMade():
		return
	case what == "save":
	case what == "undo":
		_, err = tree.Undo(context.Background(), h.run)
		changes = err == nil
	case what == "drop", what == "drop --force":
		err = tree.Drop(h.run, h.now, what == "drop --force")
	default:
		mode, onto, _ := strings.Cut(what, " ")
		var r worktree.Result
		r, err = h.place.land(tree, worktree.Options{Mode: worktree.Mode(mode), Onto: onto})
		if err == nil {
			changes = true
			if r.Commit != r.Before {
				h.owed[r.Commit], h.landed = true, name
			}
			if now := h.in(h.root, "git rev-parse refs/heads/"+r.Target); now != r.Commit {
				h.t.Fatalf("landed as %s, and %s is at %s\n%s", r.Commit, r.Target, now, strings.Join(h.log, "\n"))
			}
		}
	}
	if err == nil {
		h.ended[strings.Fields(what)[0]]++
	} else {
		h.log[len(h.log)-1] += ": " + err.Error()
	}
	h.look()
	h.check(before)
	if got := h.files(); got != files && !changes {
		h.t.Fatalf("%s: the checkout had\n%s\nand has\n%s", strings.Join(h.log, "\n"), files, got)
	}
}

func (h *history) step(n int) {
	name := h.names[h.rng.IntN(len(h.names))]
	h.now = h.now.Add(time.Duration(h.rng.IntN(100)) * time.Minute)
	pick := func(list []string) string { return list[h.rng.IntN(len(list))] }
	switch k := h.rng.IntN(12); {
	case k == 0 && h.landed != "":
		h.log = append(h.log, "stint "+h.landed+": undo")
		h.stint(h.landed, "undo")
	case k < 6:
		if tree := h.tree(name); !tree.IsMade() {
			h.log = append(h.log, "stint "+name+": make")
			h.stint(name, "make")
		}
		act := pick(agentActs)
		h.log = append(h.log, "agent "+name+": "+act)
		h.person(name, h.trees.PathOf(name, h.root), act, n)
	case k < 9:
		act := pick(userActs)
		h.log = append(h.log, "user ("+name+"): "+act)
		h.person(name, h.root, act, n)
	default:
		what := pick([]string{"make", "save", "save", "squash ", "squash main", "squash ", "merge ", "rebase ", "undo", "drop", "drop --force"})
		h.log = append(h.log, "stint "+name+": "+what)
		h.stint(name, what)
	}
	h.check(h.owed)
}

// TestRandomHistories lets agents, a user and stint do random things, and looks after each whether all is there that stint has
// seen. STINT_TEST_HISTORIES is the number of histories, STINT_TEST_SEED the first seed.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	histories, first := number(t, "STINT_TEST_HISTORIES", 10), number(t, "STINT_TEST_SEED", 1)
	results := make([]map[string]int, histories)
	t.Run("seed", func(t *testing.T) {
		for i := range histories {
			t.Run(fmt.Sprint(first+i), func(t *testing.T) {
				t.Parallel()
				h := &history{place: newPlace(t), rng: rand.New(rand.NewPCG(uint64(first+i), 1)), now: now, names: []string{"ana", "bob", "cy"}, made: map[string]seen{}, owed: seen{}, graph: map[string][]string{}, notes: seen{}, refs: map[string]string{}, ended: map[string]int{}}
				results[i] = h.ended
				for _, name := range h.names {
					h.made[name] = seen{}
				}
				h.look()
				for n := range 15 {
					h.step(n)
				}
				h.in(h.root, "git rebase --abort 2>/dev/null; git checkout -q -f main; rm -f .git/*.lock")
				h.look()
				for j, name := range h.names { // whatever has happened, it goes on, and ends
					if i%4 != 0 { // of a few, as it takes as long as the rest
						return
					}
					for _, what := range [][]string{{"make", "squash ", "drop --force"}, {"drop --force"}}[min(j, 1)] {
						h.log = append(h.log, "at last "+name+": "+what)
						h.stint(name, what)
						if what != "squash " && !strings.HasSuffix(h.log[len(h.log)-1], what) {
							t.Fatal(strings.Join(h.log, "\n"))
						}
					}
				}
				h.check(h.owed)
				if left := h.in(h.root, "git worktree list | tail -n +2; git for-each-ref --format='%(refname)' refs/heads/stint refs/stint | grep -v ^refs/stint/dropped/ || :"); left != "" {
					t.Fatalf("%s: left is %s", strings.Join(h.log, "\n"), left)
				}
			})
		}
	})
	sum := map[string]int{}
	for _, ended := range results {
		for what, n := range ended {
			sum[what] += n
		}
	}
	var text []string
	for _, what := range slices.Sorted(maps.Keys(sum)) {
		text = append(text, fmt.Sprintf("%s=%d", what, sum[what]))
	}
	t.Logf("worktrees: histories=%d %s", histories, strings.Join(text, " "))
}
