package metrics

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"stint/coordinator/task"
)

// An exposition is metrics as text in the format of Prometheus, version 0.0.4.
type exposition struct{ text []byte }

// ContentType is the content type of that format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// The kinds of metrics.
const (
	gauge     = "gauge"
	counter   = "counter"
	histogram = "histogram"
)

// Escapes of the format.
var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// family begins the metrics of a name. All of them follow it.
func (e *exposition) family(name, kind, help string) {
	e.text = fmt.Appendf(e.text, "# HELP %s %s\n# TYPE %s %s\n", name, helpEscapes.Replace(help), name, kind)
}

// sample adds a value; labels are names and values in turn.
func (e *exposition) sample(name string, value float64, labels ...string) {
	e.text = append(e.text, name...)
	for i := 0; i < len(labels); i += 2 {
		e.text = append(e.text, "{,"[min(i, 1)])
		e.text = append(append(append(append(e.text, labels[i]...), `="`...), labelEscapes.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD"))...), '"')
	}
	if len(labels) > 0 {
		e.text = append(e.text, '}')
	}
	e.text = append(e.text, ' ')
	if value == math.Trunc(value) && math.Abs(value) < 1<<53 { // without exponent, for those who read it
		e.text = strconv.AppendInt(e.text, int64(value), 10)
	} else {
		e.text = strconv.AppendFloat(e.text, value, 'g', -1, 64)
	}
	e.text = append(e.text, '\n')
}

// one adds a family of one value.
func (e *exposition) one(name, kind, help string, value float64) {
	e.family(name, kind, help)
	e.sample(name, value)
}

// histogram adds the values of a histogram.
func (e *exposition) histogram(name string, h *task.Histogram, labels ...string) {
	total := uint64(0)
	for i, n := range h.Counts {
		total += n
		bound := "+Inf"
		if i < len(h.Bounds) {
			bound = strconv.FormatFloat(h.Bounds[i], 'g', -1, 64)
		}
		e.sample(name+"_bucket", float64(total), append(labels[:len(labels):len(labels)], "le", bound)...)
	}
	e.sample(name+"_sum", h.Sum, labels...)
	e.sample(name+"_count", float64(total), labels...)
}

// truth is 1 for true and 0 for false.
func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
