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
	"slices"
	"strings"
	"sync/atomic"
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
	left *atomic.Int64 // steps until then; negative: it does not die
	full *atomic.Bool  // the disk: it changes nothing
	held *atomic.Int64 // calls that keep the master
	die  func()
}

var errDied = errors.New("killed")

// step reports whether the master is dead.
func (d dyingRoom) step() error {
	if d.left.Load() > 0 && d.left.Add(-1) == 0 {
		d.die()
	}
	if d.left.Load() == 0 {
		return errDied
	}
	if d.full.Load() {
		return errors.New("no space left")
	}
	return nil
}

func (d dyingRoom) Call() (end func()) {
	done := d.Room.Call()
	d.held.Add(1)
	return func() { d.held.Add(-1); done() }
}

func (d dyingRoom) ChangeControl(ctx context.Context, prefix, name string, change func(*state.Control)) error {
	if err := d.step(); err != nil {
		return err
	}
	return errors.Join(d.Room.ChangeControl(ctx, prefix, name, change), d.step())
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
	list   atomic.Pointer[[]schedule.Schedule]
	ahead  atomic.Int64  // of the bubble's clock, in nanoseconds
	left   atomic.Int64  // see dyingRoom
	full   atomic.Bool   // the same
	held   atomic.Int64  // the same
	jobs   atomic.Int64  // that have ended
	takes  time.Duration // a job
	r      *schedule.Runner
	cancel func()
	ended  chan struct{}
	told   lines
}

func newScheduling(t *testing.T, list ...schedule.Schedule) *scheduling {
	s := &scheduling{world: newWorld(t), takes: 3 * time.Hour}
	s.left.Store(-1)
	s.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }
	s.cfg.QueueMax = map[string]int{schedule.Queue: 2}
	for i := range list {
		if list[i].Job == "" {
			list[i].Spec.Prompt = "p"
		}
		_, err := list[i].Check([]string{"job"})
		fatal(t, err)
	}
	s.list.Store(&list)
	return s
}

// up starts the master and its schedules.
func (s *scheduling) up() {
	s.openUnwatched()
	s.schedules()
}

func (s *scheduling) schedules() {
	s.r = schedule.New(dyingRoom{s.c, &s.left, &s.full, &s.held, func() { s.cancel() }}, schedule.Options{
		List: func() ([]schedule.Schedule, error) { return slices.Clone(*s.list.Load()), nil }, Max: 2, Path: filepath.Join(s.dir, "job_runs.jsonl"),
		Jobs: map[string]schedule.Job{"job": func(ctx context.Context) (string, error) {
			select {
			case <-time.After(s.takes):
				s.jobs.Add(1)
				return "did it", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}},
		Tell: func(kind, _, text string) { _, _ = fmt.Fprintln(&s.told, kind+": "+text) }, Now: s.cfg.Now, Log: slog.New(slog.DiscardHandler),
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

// turns returns how many runs have begun.
func (s *scheduling) turns() int {
	s.agent.mu.Lock()
	defer s.agent.mu.Unlock()
	return len(s.agent.turns)
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
	t.Parallel()
	for _, seed := range []uint64{1} {
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
		case <-time.After(time.Duration(rand.Int64N(int64(3 * time.Hour)))):
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
			s.ahead.Add(random.Int64N(int64(40 * time.Hour)))
		case 2: // put back
			s.ahead.Add(-random.Int64N(int64(3 * time.Hour)))
		case 3: // kill
			s.left.Store(1 + random.Int64N(8))
		case 4:
			_, err := s.r.JobRuns(t.Context(), "often", 5) // which settles, too
			if err != nil && s.left.Load() != 0 {
				t.Error(err)
			}
		}
		if s.left.Load() == 0 {
			crashes++
			s.cancel() // it may have died while it was going down
			<-s.ended
			s.left.Store(-1)
			check(t, s.quit())
			s.up()
		}
	}
	s.left.Store(-1)
	list := *s.list.Load()
	for _, sc := range list {
		_, err := s.r.ActOnSchedule(t.Context(), sc.Name, "pause", time.Time{})
		check(t, err)
	}
	time.Sleep(48 * time.Hour) // what is queued ends
	synctest.Wait()
	controls := s.c.Controls(state.ControlSchedule)
	for i := range list {
		sc := &list[i]
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

// TestOverlap: while a firing goes on, the next one is skipped, comes after it, or runs beside it.
func TestOverlap(t *testing.T) {
	for overlap, want := range map[string]string{"skip": "skipped(overlap) ok", "queue": "ok ok", "parallel": "ok ok"} {
		bubble(t, overlap, func(t *testing.T) {
			s := newScheduling(t, schedule.Schedule{Name: "s", Cron: "@every 1h", Overlap: overlap})
			s.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
				time.Sleep(90 * time.Minute)
				return task.Outcome{Result: "fine"}
			}
			s.cfg.Timeout = 0
			s.up()
			time.Sleep(2*time.Hour + 10*time.Minute)
			synctest.Wait()
			if most := map[string]int{"skip": 1, "queue": 1, "parallel": 2}[overlap]; s.agent.most != most {
				t.Errorf("%d at the same time", s.agent.most)
			}
			_, err := s.r.ActOnSchedule(t.Context(), "s", "pause", time.Time{})
			check(t, err)
			time.Sleep(10 * time.Hour)
			if got := s.outcomesOf("s"); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			_, err = s.r.ActOnSchedule(t.Context(), "s", "resume", time.Time{}) // what was due meanwhile is dropped
			check(t, err)
			time.Sleep(time.Minute)
			if got := s.outcomesOf("s"); strings.Contains(got, "missed") {
				t.Error(got)
			}
			s.down()
		})
	}
}

// TestOverlapIsBounded: of a schedule whose firings do not end, no more than 100 wait.
func TestOverlapIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduling(t, schedule.Schedule{Name: "s", Cron: "@every 1m", Overlap: "queue"})
		s.up()
		check(t, s.c.Pause(t.Context(), "", "client"))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if n := len(strings.Fields(s.c.Controls(state.ControlSchedule)["s"].OpenFirings)); n != 100 || len(s.runs("s")) != 20 {
			t.Errorf("%d are open, %d were skipped", n, len(s.runs("s")))
		}
		s.down()
	})
}

// TestMissed: what was missed runs later as the schedule says, and a person hears of it.
func TestMissed(t *testing.T) {
	for how, want := range map[string]string{
		"skip queue": "ok skipped(missed)5", "once queue": "ok skipped(missed)4 ok", "all queue": "ok skipped(missed)2 ok ok ok",
		"all skip": "ok skipped(missed)2 ok ok ok", "all parallel": "ok skipped(missed)2 ok ok ok",
	} {
		bubble(t, how, func(t *testing.T) {
			missed, overlap, _ := strings.Cut(how, " ")
			s := newScheduling(t, schedule.Schedule{Name: "s", Cron: "@every 1h", Overlap: overlap, Missed: missed, Most: 3})
			s.up()
			time.Sleep(time.Hour + time.Minute)
			s.ahead.Add(int64(5*time.Hour + 2*time.Minute))
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			_, err := s.r.JobRuns(t.Context(), "s", 1)
			check(t, err)
			if got := s.outcomesOf("s"); got != want || s.agent.most > 1 && overlap != "parallel" {
				t.Errorf("%s, want %s; %d at the same time", got, want, s.agent.most)
			}
			made := fmt.Sprintf("; run now: %d\n", strings.Count(want, "ok")-1)
			if told := s.told.String(); !strings.HasPrefix(told, "schedule-missed: schedule s: firings missed: 5") || !strings.HasSuffix(told, made) {
				t.Errorf("told %q", told)
			}
			if at := s.runs("s")[1].Scheduled; !at.Equal(at.Truncate(time.Hour)) {
				t.Errorf("nothing was due at %v", at)
			}
			s.down()
		})
	}
}

// TestLongJitter: with a jitter longer than the interval no firing is missed or lost, also where its master is killed
// at any step.
func TestLongJitter(t *testing.T) {
	t.Parallel()
	for kill := range int64(30) {
		bubble(t, fmt.Sprint(kill), func(t *testing.T) {
			s := newScheduling(t, schedule.Schedule{Name: "s", Cron: "@every 5m", Missed: "skip", Overlap: "parallel", Jitter: "20m"})
			s.up()
			begun := s.cfg.Now()
			if kill > 0 {
				s.left.Store(kill)
			}
			for s.cfg.Now().Sub(begun) < 90*time.Minute {
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if s.left.Load() == 0 {
					<-s.ended
					s.left.Store(-1)
					check(t, s.quit())
					s.up()
				}
			}
			_, err := s.r.JobRuns(t.Context(), "s", 1)
			check(t, err)
			want := int(s.c.Controls(state.ControlSchedule)["s"].FiredThrough.Sub(begun) / (5 * time.Minute))
			if got := s.outcomesOf("s"); want < 14 || got != strings.TrimSpace(strings.Repeat("ok ", want)) || s.turns() != want || s.told.String() != "" {
				t.Errorf("%d instants: %s, %d runs; told %q", want, got, s.turns(), s.told.String())
			}
			s.down()
		})
	}
}

// TestToldWhenNoted: what cannot be noted, because the ledger or the history cannot be written, is not lost, and is
// told of once, when it is noted.
func TestToldWhenNoted(t *testing.T) {
	for how, want := range map[string]string{
		"ledger all":    "ok ok ok ok ok ok; schedule-missed: schedule s: firings missed: 5, the last one at 06:00; run now: 5",
		"ledger once":   "ok skipped(missed)4 ok; schedule-missed: schedule s: firings missed: 4, the last one at 05:00; run now: 0; schedule-missed: schedule s: firings missed: 1, the last one at 06:00; run now: 1",
		"history skip":  "ok skipped(missed)5; schedule-missed: schedule s: firings missed: 5, the last one at 06:00; run now: 0",
		"history wrong": "ok error(invalid); schedule-failed: schedule s: the firing of 02:00 failed: stint cron runs s",
	} {
		bubble(t, how, func(t *testing.T) {
			where, missed, _ := strings.Cut(how, " ")
			one := schedule.Schedule{Name: "s", Cron: "@every 1h", Missed: strings.Replace(missed, "wrong", "skip", 1)}
			s := newScheduling(t, one)
			s.up()
			time.Sleep(time.Hour + time.Minute)
			_, err := s.r.JobRuns(t.Context(), "s", 1)
			check(t, err)
			path := filepath.Join(s.dir, "job_runs.jsonl")
			if where == "history" {
				check(t, os.Rename(path, path+".away"))
				check(t, os.Mkdir(path, 0o700))
			}
			s.full.Store(where == "ledger")
			if missed == "wrong" {
				wrong := slices.Clone(*s.list.Load())
				wrong[0].Spec.Agent = "nobody"
				s.list.Store(&wrong)
				time.Sleep(59 * time.Minute)
			} else {
				s.ahead.Add(int64(5*time.Hour + 2*time.Minute))
			}
			time.Sleep(40 * time.Second)
			if s.held.Load() != 1 {
				t.Error("an idle master would end")
			}
			if where == "history" {
				if told := s.told.String(); told != "" {
					t.Errorf("told before it was noted: %s", told)
				}
				check(t, os.Remove(path))
				check(t, os.Rename(path+".away", path))
			}
			s.full.Store(false)
			s.r.Wake()
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			_, err = s.r.JobRuns(t.Context(), "s", 1)
			check(t, err)
			told := strings.NewReplacer("\n", "; ", ":00:00", ":00", s.cfg.Now().Local().Format(time.DateOnly)+" ", "").Replace(s.told.String())
			if got := s.outcomesOf("s") + "; " + strings.TrimSuffix(told, "; "); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
			s.down()
		})
	}
}

// TestPauseFails: a pause that cannot be noted is none, and loses no firing.
func TestPauseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduling(t, schedule.Schedule{Name: "s", Cron: "@every 1h"})
		s.up()
		time.Sleep(time.Hour - time.Second)
		s.full.Store(true)
		time.Sleep(2 * time.Second) // it is due, and cannot be made
		if _, err := s.r.ActOnSchedule(t.Context(), "s", "pause", time.Time{}); err == nil {
			t.Error("paused")
		}
		s.full.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.turns() != 1 {
			t.Errorf("%d runs", s.turns())
		}
		s.down()
	})
}

// TestDueBefore: a schedule is due until its firing is made, which a jitter makes late, and not while it is paused.
func TestDueBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduling(t, schedule.Schedule{Name: "s", Cron: "@every 24h", Jitter: "12h"})
		s.up()
		isDue := func() bool { return s.r.DueBefore(s.cfg.Now().Add(5 * time.Minute)) }
		if isDue() {
			t.Error("a day before")
		}
		time.Sleep(24 * time.Hour)
		was := false
		for ; s.turns() == 0; synctest.Wait() {
			was = isDue()
			time.Sleep(time.Minute)
		}
		if late := s.cfg.Now().Sub(s.c.Controls(state.ControlSchedule)["s"].FiredThrough); !was || isDue() || late < 6*time.Minute {
			t.Errorf("fired %v late; due just before: %v, and after: %v", late, was, isDue())
		}
		_, err := s.r.ActOnSchedule(t.Context(), "s", "pause", time.Time{})
		check(t, err)
		if s.r.DueBefore(s.cfg.Now().AddDate(1, 0, 0)) {
			t.Error("due while it is paused")
		}
		s.down()
	})
}

// TestScheduleChanges: another expression, a removal and a clock that was wrong make nothing due that was not.
func TestScheduleChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduling(t, schedule.Schedule{Name: "s", Cron: "@every 1h"})
		s.up()
		time.Sleep(90 * time.Minute)
		later := schedule.Schedule{Name: "s", Cron: "@every 7m"}
		later.Spec.Prompt = "p"
		_, err := later.Check(nil)
		check(t, err)
		s.list.Store(&[]schedule.Schedule{later})
		time.Sleep(time.Minute) // 01:24 has passed
		synctest.Wait()
		if runs := s.turns(); runs != 1 {
			t.Errorf("%d runs after a change", runs)
		}
		s.ahead.Add(int64(1000 * time.Hour)) // and back: what is settled is far in the future
		time.Sleep(time.Minute)
		s.ahead.Add(-int64(1000 * time.Hour))
		synctest.Wait()
		before := s.turns()
		time.Sleep(8 * time.Minute)
		synctest.Wait()
		if got := s.turns() - before; got != 1 {
			t.Errorf("%d runs after the clock was put right", got)
		}
		_, err = s.r.ActOnSchedule(t.Context(), "s", "pause", time.Time{})
		check(t, err)
		s.list.Store(&[]schedule.Schedule{}) // an editor empties the file before it writes it
		time.Sleep(31 * time.Second)
		s.list.Store(&[]schedule.Schedule{later})
		time.Sleep(time.Minute)
		if c := s.c.Controls(state.ControlSchedule)["s"]; !c.Paused || s.turns() != before+1 {
			t.Errorf("a schedule that was paused, and away for a moment: %+v", c)
		}
		s.list.Store(&[]schedule.Schedule{})
		time.Sleep(2 * time.Minute)
		if c := s.c.Controls(state.ControlSchedule); len(c) > 0 {
			t.Errorf("of a schedule that was removed there is still %+v", c)
		}
		s.down()
	})
}

// TestJobFails: a job is tried again as its schedule says, its failure is told, and one that its master's end
// interrupts runs again.
func TestJobFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := schedule.Schedule{Name: "s", Cron: "@every 24h", Job: "job"}
		one.Spec.Timeout, one.Spec.MaxAttempts = "1h", 2
		s := newScheduling(t, one)
		s.up()
		time.Sleep(24*time.Hour + 5*time.Minute)
		s.down()
		s.up()
		time.Sleep(3 * time.Hour)
		if got := s.outcomesOf("s"); got != "error(timeout)" || !strings.HasPrefix(s.told.String(), "schedule-failed: ") {
			t.Errorf("%s, %q", got, s.told.String())
		}
		if run := s.runs("s")[0]; run.Duration < 7200 || run.Duration > 7300 {
			t.Errorf("two tries of an hour took %v", run.Duration)
		}
		s.down()
	})
}

// TestEndOfJobCannotBeNoted: a job whose end cannot be noted is run again, but not at once.
func TestEndOfJobCannotBeNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduling(t, schedule.Schedule{Name: "s", Cron: "@yearly", Job: "job"})
		s.takes = time.Second
		s.up()
		path := filepath.Join(s.dir, "job_runs.jsonl")
		_, err := s.r.ActOnSchedule(t.Context(), "s", "run", time.Time{})
		check(t, err)
		check(t, os.Mkdir(path, 0o700))
		time.Sleep(5 * time.Minute)
		if n := s.jobs.Load(); n < 2 || n > 12 {
			t.Errorf("it was run %d times", n)
		}
		check(t, os.Remove(path))
		time.Sleep(time.Minute)
		if got := s.outcomesOf("s"); got != "ok" {
			t.Error(got)
		}
		s.down()
	})
}

// TestFiringIsRefused: a task that cannot be queued is an error of its firing, and the next one is made.
func TestFiringIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := schedule.Schedule{Name: "s", Cron: "@every 1h"}
		one.Spec.Agent = "nobody"
		s := newScheduling(t, one)
		s.up()
		time.Sleep(2*time.Hour + time.Minute)
		if got := s.outcomesOf("s"); got != "error(invalid) error(invalid)" || strings.Count(s.told.String(), "\n") != 2 {
			t.Errorf("%s, %q", got, s.told.String())
		}
		s.down()
	})
}

// TestJobByHand: a job that a person starts goes on when the request has ended, and is not started twice.
func TestJobByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := schedule.Schedule{Name: "s", Cron: "@yearly", Job: "job"}
		one.Spec.Timeout = "5h"
		s := newScheduling(t, one)
		s.up()
		ctx, cancel := context.WithCancel(t.Context())
		_, err := s.r.ActOnSchedule(ctx, "s", "run", time.Time{})
		check(t, err)
		cancel()
		time.Sleep(2 * time.Hour)
		_, err = s.r.Schedules(ctx)
		check(t, err)
		time.Sleep(2 * time.Hour)
		if runs := s.runs("s"); s.outcomesOf("s") != "ok" || runs[0].Duration != 3*3600 {
			t.Errorf("%+v", runs)
		}
		s.down()
	})
}

// TestRepeatedFiringByHand: a request to fire a schedule that is made again, because its answer was lost, is the same
// firing: at once, after a restart and once it has ended. Another instant is another one, and has to be about now.
func TestRepeatedFiringByHand(t *testing.T) {
	for _, job := range []string{"", "job"} {
		bubble(t, "job="+job, func(t *testing.T) {
			one := schedule.Schedule{Name: "s", Cron: "@yearly", Job: job}
			one.Spec.Timeout = "5h"
			s := newScheduling(t, one)
			s.up()
			at := s.cfg.Now()
			run := func(at time.Time) error {
				_, err := s.r.ActOnSchedule(t.Context(), "s", "run", at)
				return err
			}
			check(t, run(at))
			check(t, run(at))
			s.down()
			s.up()
			check(t, run(at))
			time.Sleep(4 * time.Hour)
			check(t, run(at))
			check(t, run(at.Add(time.Hour)))
			time.Sleep(4 * time.Hour)
			_, err := s.r.Schedules(t.Context())
			check(t, err)
			if got := s.outcomesOf("s"); got != "ok ok" || s.turns()+int(s.jobs.Load()) != 2 {
				t.Errorf("%q, %d turns and %d jobs", got, s.turns(), s.jobs.Load())
			}
			for _, wrong := range []time.Duration{-25 * time.Hour, time.Hour} {
				if err := run(s.cfg.Now().Add(wrong)); code(err) != task.CodeInvalid {
					t.Errorf("%v: %v", wrong, err)
				}
			}
			s.down()
		})
	}
}
