package session

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"time"
)

// fileEntry is an entry as it stands in sessions.json:
//
//	{
//	"web":{"sessionId":"…","updatedAt":"…","transcriptPath":"…","agent":"codex","codexSessionId":"…"}
//	}
//
// A key that was used with several agents or accounts has its newest session
// here and the rest, newest first, in "others". The file is for other programs: stint
// never reads it back.
type fileEntry struct {
	SessionID      string      `json:"sessionId"`
	UpdatedAt      time.Time   `json:"updatedAt"`
	TranscriptPath string      `json:"transcriptPath"`
	Agent          string      `json:"agent,omitempty"`
	Account        string      `json:"account,omitempty"`
	Codex          string      `json:"codexSessionId,omitempty"`
	Claude         string      `json:"claudeSessionId,omitempty"`
	Gemini         string      `json:"geminiSessionId,omitempty"`
	Demo           string      `json:"demoSessionId,omitempty"`
	Native         string      `json:"agentSessionId,omitempty"` // of any other agent
	Others         []fileEntry `json:"others,omitempty"`
}

// native returns the field that holds the native id of the entry's agent.
func (f *fileEntry) native() *string {
	own := map[string]*string{"codex": &f.Codex, "claude": &f.Claude, "gemini": &f.Gemini, "demo": &f.Demo}
	return cmp.Or(own[f.Agent], &f.Native)
}

// encode returns the bytes of sessions.json, one key a line. Entries are in the
// order of Store.list.
func encode(dir string, entries []Entry) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	sep := "\n"
	for i := 0; i < len(entries); {
		key := entries[i].Key
		var forms []fileEntry
		for ; i < len(entries) && entries[i].Key == key; i++ {
			forms = append(forms, toFile(dir, &entries[i]))
		}
		forms[0].Others = forms[1:]
		k, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		v, err := json.Marshal(&forms[0])
		if err != nil {
			return nil, fmt.Errorf("session key %q: %w", key, err)
		}
		fmt.Fprintf(&b, "%s%s:%s", sep, k, v)
		sep = ",\n"
	}
	b.WriteString("\n}\n")
	return b.Bytes(), nil
}

func toFile(dir string, e *Entry) fileEntry {
	f := fileEntry{
		SessionID:      e.SessionID,
		UpdatedAt:      e.UpdatedAt,
		TranscriptPath: TranscriptPath(dir, e.SessionID),
		Agent:          e.Agent,
		Account:        e.Account,
	}
	*f.native() = e.Native
	return f
}
