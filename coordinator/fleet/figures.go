package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// metricsName is the file of the state directory in which samples are kept.
const metricsName = "server_metrics.jsonl"

// newest passes on the values in a file of JSON lines of the state directory, the newest first, until more returns
// false; of lines that a crash has cut off, nothing.
func newest[T any](f *Fleet, name string, more func(*T) bool) error {
	return durable.Newest(durable.OS, filepath.Join(f.opts.Dir, name), func(line []byte) bool {
		var v T
		return json.Unmarshal(line, &v) != nil || more(&v)
	})
}

// sampleAll is the job server_metrics.
func (f *Fleet) sampleAll(ctx context.Context) (string, error) {
	err := each(ctx, f, f.opts.Servers, 1, func(s Server) (string, string) { return s.ID, s.ID }, func(ctx context.Context, s Server) error {
		out, err := f.remote(ctx, s.ID, sample, "", nil)
		if err != nil {
			return err
		}
		m, err := parseSample(string(out))
		if err != nil {
			return err
		}
		m.Server, m.SampledAt = s.ID, f.opts.Now().UTC().Truncate(time.Millisecond)
		f.files.Lock()
		defer f.files.Unlock()
		return durable.AppendLine(durable.OS, filepath.Join(f.opts.Dir, metricsName), m, false)
	})
	return fmt.Sprintf("sampled %d", len(f.opts.Servers)), errors.Join(err, f.forget())
}

// forget removes samples that are older than those that are kept, a day's at once.
func (f *Fleet) forget() error {
	f.files.Lock()
	defer f.files.Unlock()
	path := filepath.Join(f.opts.Dir, metricsName)
	text, err := durable.ReadFile(durable.OS, path)
	oldest, first := f.opts.Now().Add(-f.opts.Keep), task.ServerMetric{}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if err != nil || f.opts.Keep == 0 || json.Unmarshal(line, &first) == nil && !first.SampledAt.Before(oldest.Add(-24*time.Hour)) {
		return err
	}
	var kept []byte
	for line := range bytes.Lines(text) {
		if m := (task.ServerMetric{}); json.Unmarshal(line, &m) == nil && !m.SampledAt.Before(oldest) {
			kept = append(kept, line...)
		}
	}
	return durable.ReplaceFile(durable.OS, path, kept)
}

// parseSample reads what the script sample prints: the load, the times of the processors twice, the memory and the disk.
func parseSample(text string) (m task.ServerMetric, err error) {
	rows := strings.Split(strings.TrimSpace(text), "\n")
	if len(rows) != 6 {
		return m, fmt.Errorf("the server has printed %d lines of figures, and not 6", len(rows))
	}
	number := func(row, column int) float64 {
		fields := strings.Fields(rows[row])
		if column >= len(fields) {
			err = fmt.Errorf("%q has fewer figures than %d", rows[row], column+1)
			return 0
		}
		n, wrong := strconv.ParseFloat(fields[column], 64)
		if wrong == nil && !(n >= 0 && n < 1e15) { // also what is no number
			wrong = fmt.Errorf("%q is no figure of a server", fields[column])
		}
		err = cmp.Or(err, wrong)
		return n
	}
	var total, idle float64
	for column := 1; column <= 8 && err == nil; column++ { // user nice system idle iowait irq softirq steal
		d := number(2, column) - number(1, column)
		if total += d; column == 4 || column == 5 {
			idle += d
		}
	}
	if total > 0 {
		m.CPU = math.Round(1000*min(max(0, total-idle)/total, 1)) / 10 // that of waiting can go back
	}
	const kPerM, kPerG = 1 << 10, 1 << 20
	m.Load, m.MemTotal, m.MemUsed = number(0, 0), int(number(3, 1)/kPerM), int(max(0, number(3, 1)-number(4, 1))/kPerM)
	m.DiskTotal, m.DiskUsed = math.Round(100*number(5, 1)/kPerG)/100, math.Round(100*number(5, 2)/kPerG)/100
	return m, err
}

// Servers returns the configured servers with their newest samples.
func (f *Fleet) Servers() ([]task.Server, error) {
	list := []task.Server{}
	missing := len(f.opts.Servers)
	for _, s := range f.opts.Servers {
		n := len(f.where(func(in *Instance, _ state.Control) bool { return in.Server == s.ID }))
		list = append(list, task.Server{ID: s.ID, SSH: s.SSH, Instances: n})
	}
	oldest := f.opts.Now().Add(-24 * time.Hour)
	err := newest(f, metricsName, func(m *task.ServerMetric) bool {
		if i := slices.IndexFunc(list, func(s task.Server) bool { return s.ID == m.Server }); i >= 0 && list[i].Last == nil {
			list[i].Last, missing = m, missing-1
		}
		return missing > 0 && m.SampledAt.After(oldest)
	})
	return list, err
}

// Metrics returns the newest samples of a server, the oldest of them first.
func (f *Fleet) Metrics(server string, most int) (list []task.ServerMetric, err error) {
	if !slices.ContainsFunc(f.opts.Servers, func(s Server) bool { return s.ID == server }) {
		return nil, &task.Error{Code: task.CodeNotFound, Message: "there is no server " + task.OneSentence(server, 64) + " in the configuration", Hint: "stint server ls"}
	}
	err = newest(f, metricsName, func(m *task.ServerMetric) bool {
		if m.Server == server {
			list = append(list, *m)
		}
		return len(list) < most
	})
	slices.Reverse(list)
	return list, err
}
