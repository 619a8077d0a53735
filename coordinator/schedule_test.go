package coordinator_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/schedule"
	"stint/coordinator/task"
	"stint/state"
)

// A dyingRoom is a master that dies at one of its schedules' changes: before it, or just after it.
type dyingRoom struct {
	schedule.Room
	left *int // steps until then; negative: it does not die
	die  func()
}

var errDied = errors.New("killed")

// step reports whether the master is dead.
func (d dyingRoom) step() error {
	if *d.left > 0 {
		if *d.left--; *d.left == 0 {
			d.die()
		}
	}
	if *d.left == 0 {
		return errDied
	}
	return nil
}

func (d dyingRoom) ChangeSchedule(ctx context.Context, name string, change func(*state.Control)) error {
	if err := d.step(); err != nil {
		return err
	}
	return errors.Join(d.Room.ChangeSchedule(ctx, name, change), d.step())
}

func (d dyingRoom) Fire(ctx context.Context, spec task.TaskSpec, name string, change func(*state.Control)) (t state.Task, err error) {
	if err = d.step(); err == nil {
		t, err = d.Room.Fire(ctx, spec, name, change)
		err = errors.Join(err, d.step())
	}
	return t, err
}

// A scheduling is a world with schedules, whose clock can be set.
type scheduling struct {
	*world
	list   []schedule.Schedule
	ahead  time.Duration // of the bubble's clock
	left   int           // see dyingRoom
	r      *schedule.Runner
	cancel func()
	ended  chan struct{}
	jobs   sync.Map // runs of the job, by the start
	told   []string
}

func newScheduling(t *testing.T, list ...schedule.Schedule) *scheduling {
	s := &scheduling{world: newWorld(t), left: -1}
	s.cfg.Now = func() time.Time { return time.Now().Add(s.ahead) }
	s.cfg.QueueMax = map[string]int{schedule.Queue: 2}
	for i := range list {
		if list[i].Job == "" {
			list[i].Spec.Prompt = "p"
		}
		_, err := list[i].Check([]string{"job"})
		fatal(t, err)
	}
	s.list = list
	return s
}

// up starts the master and its schedules.
func (s *scheduling) up() {
	s.openUnwatched()
	s.schedules()
}

func (s *scheduling) schedules() {
	s.r = schedule.New(dyingRoom{s.c, &s.left, func() { s.cancel() }}, schedule.Options{
		List: func() ([]schedule.Schedule, error) { return s.list, nil }, Max: 2, Path: filepath.Join(s.dir, "job_runs.jsonl"),
		Jobs: map[string]schedule.Job{"job": func(ctx context.Context) (string, error) {
			select {
			case <-time.After(3 * time.Hour):
				return "did it", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}},
		Tell: func(kind, _, text string) { s.told = append(s.told, kind+": "+text) }, Now: s.cfg.Now, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.ended = cancel, make(chan struct{})
	go func() { s.r.Run(ctx); close(s.ended) }()
	synctest.Wait()
}

func (s *scheduling) down() {
	s.cancel()
	<-s.ended
	s.close()
}

// runs returns the lines of job_runs.jsonl of a schedule.
func (s *scheduling) runs(name string) (list []task.JobRun) {
	text, err := os.ReadFile(filepath.Join(s.dir, "job_runs.jsonl"))
	if err != nil {
		return nil
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var run task.JobRun
		check(s.t, json.Unmarshal(lines.Bytes(), &run))
		if run.Schedule == name {
			list = append(list, run)
		}
	}
	return list
}

// outcomes returns the same in short.
func (s *scheduling) outcomesOf(name string) string {
	var words []string
	for _, run := range s.runs(name) {
		word := strings.TrimSuffix(run.Outcome+"("+run.Reason+")", "()")
		if run.Count > 1 {
			word += fmt.Sprint(run.Count)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestPromise9SchedulesFireOnce: in a hundred days with crashes, restarts, suspends and clocks that are set,
// over two changes of daylight saving, each scheduled instant is fired once or recorded as skipped, and never
// both. Masters die between any two steps of it.
func TestPromise9SchedulesFireOnce(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		bubble(t, fmt.Sprint(seed), func(t *testing.T) { hundredDays(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func hundredDays(t *testing.T, random *rand.Rand) {
	s := newScheduling(t,
		schedule.Schedule{Name: "berlin", Cron: "30 2 * * *", Zone: "Europe/Berlin"},
		schedule.Schedule{Name: "sydney", Cron: "30 2 * * *", Zone: "Australia/Sydney", Overlap: "parallel", Missed: "all"},
		schedule.Schedule{Name: "often", Cron: "15 */4 * * *", Zone: "UTC", Overlap: "queue", Missed: "all", Most: 3},
		schedule.Schedule{Name: "late", Cron: "0 12 * * *", Zone: "UTC", Missed: "skip", Jitter: "3h"},
		schedule.Schedule{Name: "job", Cron: "@every 5h", Job: "job", Overlap: "queue"},
	)
	s.agent.do = func(ctx context.Context, _ task.Turn, _ func(task.Event)) task.Outcome {
		select {
		case <-time.After(time.Duration(random.Int64N(int64(3 * time.Hour)))):
			return task.Outcome{Result: "fine"}
		case <-ctx.Done():
			return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1}
		}
	}
	s.cfg.Timeout, s.cfg.MaxRetries = 0, 1000
	s.up()
	begun, crashes := s.cfg.Now(), 0
	for s.cfg.Now().Sub(begun) < 100*24*time.Hour {
		time.Sleep(time.Duration(random.Int64N(int64(12 * time.Hour))))
		synctest.Wait()
		switch random.IntN(8) {
		case 0: // restart, after a while
			s.down()
			time.Sleep(time.Duration(random.Int64N(int64(60 * time.Hour))))
			s.up()
		case 1: // suspend, or a clock that is put forward
			s.ahead += time.Duration(random.Int64N(int64(40 * time.Hour)))
		case 2: // put back
			s.ahead -= time.Duration(random.Int64N(int64(3 * time.Hour)))
		case 3: // kill
			s.left = 1 + random.IntN(8)
		case 4:
			_, err := s.r.JobRuns(t.Context(), "often", 5) // which settles, too
			if err != nil && s.left != 0 {
				t.Error(err)
			}
		}
		if s.left == 0 {
			crashes++
			s.cancel() // it may have died while it was going down
			<-s.ended
			s.left = -1
			check(t, s.quit())
			s.up()
		}
	}
	s.left = -1
	time.Sleep(48 * time.Hour) // what is queued ends
	synctest.Wait()
	controls := s.c.Schedules()
	for i := range s.list {
		sc := &s.list[i]
		fired, skipped, instants := map[string]bool{}, 0, 0
		for _, run := range s.runs(sc.Name) {
			key := state.FormatTime(run.Scheduled)
			switch {
			case run.Outcome == task.RunSkipped:
				skipped += max(1, run.Count)
			case fired[key]:
				t.Errorf("%s: two lines of %s", sc.Name, key)
			default:
				fired[key] = true
			}
		}
		if open := controls[sc.Name].OpenFirings; sc.Job == "" && open != "" {
			t.Errorf("%s: still open: %s", sc.Name, open)
		}
		for open := range strings.FieldsSeq(controls[sc.Name].OpenFirings) {
			fired[open] = true
		}
		for at := begun; ; instants++ {
			if at = sc.Next(at, 1)[0]; at.After(controls[sc.Name].FiredThrough) {
				break
			}
		}
		if len(fired)+skipped != instants || instants < 90 {
			t.Errorf("%s: %d instants, of which %d fired and %d were skipped", sc.Name, instants, len(fired), skipped)
		}
		t.Logf("%s: %d fired, %d skipped, %d deaths", sc.Name, len(fired), skipped, crashes)
	}
	s.down()
}
