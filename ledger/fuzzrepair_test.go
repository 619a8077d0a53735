package ledger_test

import (
	"bytes"
	"testing"

	"stint/ledger"
	"stint/ledger/repair"

	"github.com/google/go-cmp/cmp"
)

// FuzzRepair: a repaired ledger has no findings, repairing it again changes nothing,
// and it has the good records and no other.
func FuzzRepair(f *testing.F) {
	ledger.AddLedgers(f)
	for _, s := range []string{ // that once went wrong
		"## Task okx\n- status: queued\n- prompt: do it\n #T#ask oky\n- seq: 5",
		"## Task hand\n- prompt: do it\n\n- seq: 3\n<!-- end 2 -->\n- status: done\n  ## Task x\n-->\n  ## Task x\n",
		"## Control c\n<<<<<<< a\n<!-- end 2 -->\n ## Task a\n````go\n## Task a\n- seq: 1\n- status: queued\n<!-- end 1 -->\n>>>>>>> b\n",
		"a\x00b\n### Task a\n– prompt: x\n  - seq: 6\n<!-- end 2 -->\n<x>\n ## Task a\n",
		"* seq:00\n# \r*prompt:0",
		"- item\n<!-- end 4 -->\n  ## Task x\n",
		"<<<<<<< a\n  ## Task x\n- seq: 3\n  ## Task x\n-prompt: x\n",
		"## Job j\n~~~\na\x00b\n- seq: 1\n<x>\n## Control c\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, ledger.LedgerOfBytes(data)} {
			got, _ := repair.Repair(data, nil, nil)
			doc := ledger.Parse(got)
			if len(doc.Findings) > 0 {
				t.Fatalf("%v is left in\n%s\nof %q", doc.Findings[0], got, data)
			}
			if again, _ := repair.Repair(got, nil, nil); !bytes.Equal(again, got) {
				t.Fatalf("%q\nbecomes %q\nand then %q", data, got, again)
			}
			if diff := cmp.Diff(ledger.RecordsOf(ledger.Parse(data)), ledger.RecordsOf(doc)); diff != "" {
				t.Fatalf("%s in\n%s\nof %q", diff, got, data)
			}
		}
	})
}
