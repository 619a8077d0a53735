package statedir

import (
	"testing"

	"stint/ledger"
)

// TestAloneDiffers names the first task or job that is another one.
func TestAloneDiffers(t *testing.T) {
	list := func(text string) map[string][]byte {
		if text == "" {
			return map[string][]byte{}
		}
		return map[string][]byte{"a": []byte(text)}
	}
	const queued, running, more = `{"status":"queued"}`, `{"status":"running"}`, `{"status":"queued","x":1}`
	for want, c := range map[string][2]string{
		"": {queued, queued},
		`job a has status "running" in the journal, and "queued" by jobs.md alone`: {queued, running},
		"job a is only in the journal":                                             {"", queued},
		"job a is not in the journal":                                              {queued, ""},
		"job a has more in jobs.md alone than in the journal":                      {more, queued},
	} {
		if _, how := aloneDiffers(ledger.JobFiles, list(c[0]), list(c[1])); how != want {
			t.Errorf("%q; not %q", how, want)
		}
	}
}
