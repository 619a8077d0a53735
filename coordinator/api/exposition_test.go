package api

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"stint/coordinator"
)

// Forms of the text format 0.0.4, as Prometheus' documentation has them.
var (
	metricForm = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelForm  = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)`)
	sampleForm = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)
)

// A family is what a checked text says of one name.
type family struct {
	name, kind string
	series     []series
}

type series struct {
	name   string
	labels map[string]string
	value  float64
}

// key names a series.
func (s *series) key() string { return fmt.Sprint(s.name, s.labels) }

// without gives the labels but one, as text.
func (s *series) without(label string) string {
	rest := map[string]string{}
	for k, v := range s.labels {
		if k != label {
			rest[k] = v
		}
	}
	return fmt.Sprint(rest)
}

// parseExposition reads a text as strictly as its format allows: each line must be in
// its place and say something new.
func parseExposition(text string) (families []family, err error) {
	if !strings.HasSuffix(text, "\n") || !utf8.ValidString(text) {
		return nil, errors.New("the text is no UTF-8 or does not end with a line end")
	}
	names, seen, help := map[string]bool{}, map[string]bool{}, ""
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		fail := func(why string) error { return fmt.Errorf("line %d: %s: %s", i+1, why, line) }
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, what, _ := strings.Cut(rest, " ")
			if !metricForm.MatchString(name) || names[name] || what == "" || help != "" {
				return nil, fail("a HELP without a name of its own, or a text")
			}
			names[name], help = true, name
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			if name != help || !slices.Contains([]string{"gauge", "counter", "histogram"}, kind) {
				return nil, fail("a TYPE that is not behind its HELP, or none")
			}
			families, help = append(families, family{name: name, kind: kind}), ""
			continue
		}
		s, err := parseSample(line)
		if err != nil {
			return nil, fail(err.Error())
		}
		if help != "" || len(families) == 0 {
			return nil, fail("a sample without a TYPE")
		}
		f := &families[len(families)-1]
		if !f.has(s.name) {
			return nil, fail("a sample in the family " + f.name)
		}
		if seen[s.key()] {
			return nil, fail("twice")
		}
		seen[s.key()] = true
		f.series = append(f.series, *s)
	}
	for i := range families {
		if err := families[i].check(); err != nil {
			return nil, err
		}
	}
	return families, nil
}

func parseSample(line string) (*series, error) {
	m := sampleForm.FindStringSubmatch(line)
	if m == nil {
		return nil, errors.New("no sample")
	}
	s := &series{name: m[1], labels: map[string]string{}}
	for rest := m[2]; rest != ""; {
		l := labelForm.FindStringSubmatch(rest)
		if l == nil || l[3] == "," && len(l[0]) == len(rest) {
			return nil, errors.New("no labels")
		}
		if _, twice := s.labels[l[1]]; twice {
			return nil, errors.New("a label twice")
		}
		s.labels[l[1]] = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\"`, `"`).Replace(l[2])
		rest = rest[len(l[0]):]
	}
	var err error
	s.value, err = strconv.ParseFloat(m[3], 64)
	return s, err
}

// has reports whether a sample of that name belongs to the family.
func (f *family) has(name string) bool {
	if f.kind != "histogram" {
		return name == f.name
	}
	return slices.Contains([]string{f.name + "_bucket", f.name + "_sum", f.name + "_count"}, name)
}

// check looks at what a family says as a whole.
func (f *family) check() error {
	if strings.HasSuffix(f.name, "_total") != (f.kind == "counter") {
		return fmt.Errorf("%s is a %s", f.name, f.kind)
	}
	last, bound := map[string]float64{}, map[string]float64{}
	sums, counts := map[string]bool{}, map[string]bool{}
	for i := range f.series {
		s := &f.series[i]
		at, le := s.without("le"), s.labels["le"]
		switch {
		case math.IsNaN(s.value) || math.IsInf(s.value, 0) || f.kind != "gauge" && s.value < 0:
			return fmt.Errorf("%s is %g", s.key(), s.value)
		case f.kind != "histogram":
		case s.name == f.name+"_sum":
			sums[at] = true
		case s.name == f.name+"_count":
			if counts[at] = true; last[at] != s.value || !math.IsInf(bound[at], 1) {
				return fmt.Errorf("%s is not the count of its buckets", s.key())
			}
		default:
			b, err := strconv.ParseFloat(le, 64)
			if _, begun := bound[at]; err != nil || begun && (b <= bound[at] || s.value < last[at]) {
				return fmt.Errorf("%s is not behind its bucket", s.key())
			}
			last[at], bound[at] = s.value, b
		}
	}
	if len(sums) != len(bound) || len(counts) != len(bound) {
		return fmt.Errorf("%s lacks sums or counts", f.name)
	}
	return nil
}

// mustParse gives the values of a text by family and labels, such as
// `stint_tasks{status="queued"}`.
func mustParse(t testing.TB, text string) map[string]float64 {
	t.Helper()
	families, err := parseExposition(text)
	if err != nil {
		t.Fatalf("%v, in\n%s", err, text)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, s := range f.series {
			key := s.name
			if len(s.labels) > 0 {
				var list []string
				for k, v := range s.labels {
					list = append(list, k+"="+strconv.Quote(v))
				}
				slices.Sort(list)
				key += "{" + strings.Join(list, ",") + "}"
			}
			values[key] = s.value
		}
	}
	return values
}

// TestTheCheckerIsStrict: what the tests below rest on.
func TestTheCheckerIsStrict(t *testing.T) {
	const head = "# HELP a text\n# TYPE a gauge\n"
	for name, text := range map[string]string{
		"no line end":            head + "a 1",
		"no type":                "a 1\n",
		"no help":                "# TYPE a gauge\na 1\n",
		"type behind the sample": "# HELP a text\na 1\n# TYPE a gauge\n",
		"another family's":       head + "b 1\n",
		"twice":                  head + "a 1\na 2\n",
		"twice, in other order":  head + "a{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 2\n",
		"a family in two parts":  head + "a 1\n# HELP b text\n# TYPE b gauge\nb 1\n" + head + "a{x=\"1\"} 1\n",
		"a bare quote":           head + "a{x=\"\"\"} 1\n",
		"a bare backslash":       head + "a{x=\"\\d\"} 1\n",
		"a comma too many":       head + "a{x=\"1\",} 1\n",
		"a label twice":          head + "a{x=\"1\",x=\"2\"} 1\n",
		"no number":              head + "a one\n",
		"not a number":           head + "a NaN\n",
		"a counter by its type":  "# HELP a text\n# TYPE a counter\na 1\n",
		"a gauge by its name":    "# HELP a_total text\n# TYPE a_total gauge\na_total 1\n",
		"no sum":                 "# HELP a text\n# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na_count 1\n",
		"no last bucket":         "# HELP a text\n# TYPE a histogram\na_bucket{le=\"1\"} 1\na_sum 1\na_count 1\n",
		"buckets out of order":   "# HELP a text\n# TYPE a histogram\na_bucket{le=\"2\"} 1\na_bucket{le=\"1\"} 1\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
		"buckets that fall":      "# HELP a text\n# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
	} {
		if _, err := parseExposition(text); err == nil {
			t.Errorf("%s: taken for good:\n%s", name, text)
		}
	}
}

// FuzzExposition: whatever a label's value, a help or a number is, the text is in form
// and the value comes back.
func FuzzExposition(f *testing.F) {
	for _, s := range []string{"", "plain", `a"b\c`, "two\nlines", "\\n", "}", `",x="`, "\xff", "ü\u2028"} {
		f.Add(s, 1.5)
	}
	f.Add("x", 1e300)
	f.Add("x", float64(1<<53))
	f.Fuzz(func(t *testing.T, s string, v float64) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return // no metric is one
		}
		e := &exposition{}
		e.family("a", gauge, "text "+strings.ToValidUTF8(s, ""))
		e.sample("a", v, "x", s, "y", "")
		h := coordinator.NewHistogram([]float64{-1, 0.5, 1})
		h.Observe(v)
		e.family("h", histogram, "text")
		e.histogram("h", &h, "x", s)
		families, err := parseExposition(string(e.text))
		if err != nil && (v >= 0 || !strings.Contains(err.Error(), "h_sum")) {
			t.Fatalf("%v in\n%s", err, e.text)
		}
		if err != nil {
			return // a sum below zero
		}
		if got := families[0].series[0]; got.value != v || got.labels["x"] != strings.ToValidUTF8(s, "\uFFFD") {
			t.Fatalf("%q and %g came back as %q and %g", s, v, got.labels["x"], got.value)
		}
	})
}
