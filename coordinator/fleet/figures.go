package fleet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// LiteLLM is where the virtual keys of instances are accounted for.
type LiteLLM struct {
	URL        string // "": nowhere
	KeyRef     string // of an administrator's key, which may ask about all
	AlertBelow int    // dollars
}

// Where the figures are kept in the state directory.
const (
	metricsName = "server_metrics.jsonl"
	usageName   = "usage_daily.jsonl"
)

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
	var list []*Instance // each stands for its server
	for _, s := range f.opts.Servers {
		list = append(list, &Instance{ID: s.ID, Server: s.ID})
	}
	err := f.each(ctx, list, 1, func(ctx context.Context, s *Instance) error {
		out, err := f.remote(ctx, s.ID, sample, "", nil)
		m, wrong := parseSample(string(out))
		if err = cmp.Or(err, wrong); err != nil {
			return err
		}
		f.files.Lock()
		defer f.files.Unlock()
		m.Server, m.SampledAt = s.ID, f.opts.Now().UTC().Truncate(time.Millisecond) // in the order of the file
		return durable.AppendLine(durable.OS, filepath.Join(f.opts.Dir, metricsName), m, false)
	})
	return fmt.Sprintf("sampled %d", len(f.opts.Servers)), errors.Join(err, f.forget())
}

// forget removes samples that are older than those that are kept, once a day.
func (f *Fleet) forget() error {
	f.files.Lock()
	defer f.files.Unlock()
	now := f.opts.Now()
	if f.opts.Keep == 0 || now.Sub(f.forgot).Abs() < 24*time.Hour {
		return nil
	}
	f.forgot = now
	return durable.KeepLines(durable.OS, filepath.Join(f.opts.Dir, metricsName), func(line []byte) bool {
		var m task.ServerMetric
		return json.Unmarshal(line, &m) == nil && now.Sub(m.SampledAt) <= f.opts.Keep
	})
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
	const kPerM, kPerG, most = 1 << 10, 1 << 20, math.MaxInt32 // as the table has them
	m.MemTotal, m.MemUsed = int(min(most, number(3, 1)/kPerM)), int(min(most, max(0, number(3, 1)-number(4, 1))/kPerM))
	m.Load, m.DiskTotal, m.DiskUsed = math.Round(100*number(0, 0))/100, math.Round(100*number(5, 1)/kPerG)/100, math.Round(100*number(5, 2)/kPerG)/100
	return m, err
}

// Servers returns the configured servers with their newest samples.
func (f *Fleet) Servers() ([]task.Server, error) {
	list := []task.Server{}
	for _, s := range f.opts.Servers {
		n := len(f.where(func(in *Instance, _ state.Control) bool { return in.Server == s.ID }))
		list = append(list, task.Server{ID: s.ID, SSH: s.SSH, Instances: n})
	}
	oldest := f.opts.Now().Add(-24 * time.Hour)
	err := newest(f, metricsName, func(m *task.ServerMetric) bool {
		if i := slices.IndexFunc(list, func(s task.Server) bool { return s.ID == m.Server }); i >= 0 && list[i].Last == nil {
			list[i].Last = m
		}
		return m.SampledAt.After(oldest)
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

// MetricsSince returns the samples of all servers from a time on.
func (f *Fleet) MetricsSince(since time.Time) (list []task.ServerMetric, err error) {
	err = newest(f, metricsName, func(m *task.ServerMetric) bool {
		if !m.SampledAt.Before(since) {
			list = append(list, *m)
		}
		return !m.SampledAt.Before(since)
	})
	return list, err
}

// Usage returns the days of an instance, or of all (""), for which there are figures, from a date on, the oldest first.
func (f *Fleet) Usage(instance, from string) (list []task.UsageDay, err error) {
	err = newest(f, usageName, func(u *task.UsageDay) bool {
		if u.Date >= from && (instance == "" || u.Instance == instance) {
			list = append(list, *u)
		}
		return u.Date >= from
	})
	slices.Reverse(list)
	return list, err
}

// withKey returns the instances that have a virtual key.
func (f *Fleet) withKey() []*Instance {
	return f.where(func(in *Instance, _ state.Control) bool { return in.KeyRef != "" && f.opts.LiteLLM.URL != "" })
}

// ask makes a request about the virtual key of an instance to LiteLLM, which knows it by its SHA-256, and reads the answer.
func (f *Fleet) ask(ctx context.Context, in *Instance, path, param string, query url.Values, answer any) error {
	key, err := f.opts.Secret(in.KeyRef)
	admin, wrong := f.opts.Secret(f.opts.LiteLLM.KeyRef)
	if err = cmp.Or(err, wrong); err != nil {
		return err
	}
	query.Set(param, fmt.Sprintf("%x", sha256.Sum256([]byte(key))))
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(f.opts.LiteLLM.URL, "/")+path+"?"+query.Encode(), http.NoBody) // its URL was checked
	req.Header.Set("Authorization", "Bearer "+admin)
	status, body, err := f.do(req)
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return fmt.Errorf("LiteLLM answered %d to GET %s", status, path)
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("LiteLLM's answer to GET %s cannot be read: %w", path, err)
	}
	return nil
}

// syncUsage is the job token_usage_sync: it brings the figures of today and yesterday up to date. So those of a day are
// complete after its end, and what is read twice counts once.
func (f *Fleet) syncUsage(ctx context.Context) (string, error) {
	now := f.opts.Now().UTC()
	yesterday, today := now.AddDate(0, 0, -1).Format(time.DateOnly), now.Format(time.DateOnly)
	list, read := f.withKey(), map[string]task.UsageDay{}
	var mu sync.Mutex // guards read
	err := f.each(ctx, list, mostHTTP, func(ctx context.Context, in *Instance) error {
		// https://docs.litellm.ai/docs/proxy/cost_tracking#daily-spend-breakdown-api
		var answer struct {
			Results []struct {
				Date    string `json:"date"`
				Metrics *struct {
					Spend    float64 `json:"spend"`
					Tokens   int64   `json:"total_tokens"`
					Requests int64   `json:"api_requests"`
				} `json:"metrics"`
			} `json:"results"`
		}
		query := url.Values{"start_date": {yesterday}, "end_date": {today}, "page_size": {"1000"}}
		if err := f.ask(ctx, in, "/user/daily/activity", "api_key", query, &answer); err != nil {
			return err
		}
		if answer.Results == nil {
			return errors.New("LiteLLM's answer to GET /user/daily/activity says nothing of days")
		}
		mu.Lock()
		defer mu.Unlock()
		for _, r := range answer.Results {
			m := r.Metrics
			if r.Date != yesterday && r.Date != today || m == nil || m.Requests < 0 || m.Requests > math.MaxInt32 || m.Tokens < 0 || !(m.Spend >= 0 && m.Spend < 9999.9999995) { // as the table has them
				return errors.New("LiteLLM's answer to GET /user/daily/activity has a day without a date that was asked for, or without figures that can be")
			}
			read[in.ID+" "+r.Date] = task.UsageDay{Instance: in.ID, Date: r.Date, Requests: m.Requests, Tokens: m.Tokens, Cost: math.Round(1e6*m.Spend) / 1e6, UpdatedAt: now.Truncate(time.Millisecond)}
		}
		return nil
	})
	n, kept := f.keepUsage(read)
	return fmt.Sprintf("read %d instances, %d days have changed", len(list), n), errors.Join(err, kept)
}

// keepUsage puts days into usage_daily.jsonl, and returns how many were not there, or were other ones.
func (f *Fleet) keepUsage(read map[string]task.UsageDay) (changed int, err error) {
	f.files.Lock()
	defer f.files.Unlock()
	list, err := f.Usage("", "")
	if err != nil {
		return 0, err
	}
	for i, old := range list {
		now, has := read[old.Instance+" "+old.Date]
		delete(read, old.Instance+" "+old.Date)
		if old.UpdatedAt = now.UpdatedAt; has && old != now {
			list[i], changed = now, changed+1
		}
	}
	for _, u := range read {
		list, changed = append(list, u), changed+1
	}
	if changed == 0 {
		return 0, nil
	}
	slices.SortFunc(list, func(a, b task.UsageDay) int {
		return cmp.Or(strings.Compare(a.Date, b.Date), strings.Compare(a.Instance, b.Instance))
	})
	var text []byte
	for _, u := range list {
		line, _ := durable.JSONLine(u) // what was read from JSON
		text = append(text, line...)
	}
	return changed, durable.ReplaceFile(durable.OS, filepath.Join(f.opts.Dir, usageName), text)
}

// checkBalances is the job key_balance_alert: it tells of a key once when little is left of its budget, and again
// when that has happened anew.
func (f *Fleet) checkBalances(ctx context.Context) (string, error) {
	list := f.withKey()
	err := f.each(ctx, list, mostHTTP, func(ctx context.Context, in *Instance) error {
		var answer struct {
			Info *struct {
				Spend  float64  `json:"spend"`
				Budget *float64 `json:"max_budget"` // null: no bound
			} `json:"info"`
		}
		if err := f.ask(ctx, in, "/key/info", "key", url.Values{}, &answer); err != nil {
			return err
		}
		if answer.Info == nil {
			return errors.New("LiteLLM's answer to GET /key/info says nothing about the key")
		}
		isLow, wasLow, left := false, false, 0.0
		if answer.Info.Budget != nil {
			left = *answer.Info.Budget - answer.Info.Spend
			isLow = left < float64(f.opts.LiteLLM.AlertBelow)
		}
		err := f.change(ctx, in.ID, func(c *state.Control) { wasLow, c.LowBalance = c.LowBalance, isLow })
		if err == nil && isLow && !wasLow {
			f.opts.Tell("key-balance", in.ID, fmt.Sprintf("the key of instance %s has $%.2f left", in.ID, left))
		}
		return err
	})
	return fmt.Sprintf("read %d keys", len(list)), err
}
