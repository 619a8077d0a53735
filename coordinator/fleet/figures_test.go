package fleet

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"stint/coordinator/task"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	h, down, short := newHost(t), newHost(t), newHost(t)
	must(t, down.ln.Close())
	short.set("nodisk")
	w := newWorld(t, func(o *Options) {
		o.Servers, o.Keep = []Server{{h.name, h.name}, {down.name, down.name}, {short.name, short.name}}, 48*time.Hour
	})
	w.fails("server_metrics", "2 of 3 failed", down.name+": server "+down.name+" cannot be reached: ", short.name+": the server has printed 5 lines")
	list, err := w.Metrics(h.name, 10)
	if must(t, err); len(list) != 1 || list[0].MemTotal < 100 || list[0].MemUsed <= 0 || list[0].DiskTotal <= 0 || list[0].CPU < 0 || list[0].CPU > 100 || !list[0].SampledAt.Equal(start) {
		t.Errorf("%+v", list)
	}
	for range 3 {
		w.pass(36 * time.Hour)
		w.fails("server_metrics")
	}
	if list, err = w.Metrics(h.name, 10); err != nil || len(list) != 2 || !list[1].SampledAt.Equal(w.clock()) {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := w.Metrics("none", 1); !errors.Is(err, &task.Error{Code: task.CodeNotFound}) {
		t.Error(err)
	}
}

const sampled = `0.42 0.30 0.20 1/200 4711
cpu  100 0 100 700 100 0 0 0 0 0
cpu  150 0 150 850 150 0 0 0 0 0
MemTotal:        8388608 kB
MemAvailable:    6291456 kB
/dev/sda1 83886080 20971520 60000000 26% /
`

func TestParseSample(t *testing.T) {
	t.Parallel()
	want := task.ServerMetric{CPU: 33.3, MemUsed: 2048, MemTotal: 8192, DiskUsed: 20, DiskTotal: 80, Load: 0.42}
	if got, err := parseSample(sampled); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", sampled[:100], strings.Replace(sampled, "0.42", "x", 1), strings.Replace(sampled, "8388608", "NaN", 1), strings.Replace(sampled, "20971520", "1e999", 1), sampled + "more\n"} {
		if got, err := parseSample(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

func FuzzParseSample(f *testing.F) {
	for _, seed := range []string{sampled, "", strings.Repeat("\n", 5), strings.ReplaceAll(sampled, "0", "-1"), strings.ReplaceAll(sampled, "1", "NaN"), strings.ReplaceAll(sampled, "1", "1e308")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseSample(text)
		if err != nil {
			return
		}
		if _, err := json.Marshal(m); err != nil || m.CPU < 0 || m.CPU > 100 || m.MemUsed < 0 || m.MemUsed > m.MemTotal || m.DiskUsed < 0 || math.IsNaN(m.Load) {
			t.Errorf("%+v, %v", m, err)
		}
	})
}
