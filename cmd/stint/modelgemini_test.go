package main

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// gemini is Google's generateContent and streamGenerateContent, as gemini speaks
// them.
type geminiAPI struct{}

var geminiPath = regexp.MustCompile(`/models/([^/:]+):(generateContent|streamGenerateContent)$`)

func (geminiAPI) read(path string, body []byte) (*modelRequest, error) {
	var in struct {
		Contents []struct {
			Role  string
			Parts []struct {
				Text             string
				Thought          bool
				FunctionResponse *struct{ Response json.RawMessage }
			}
		}
		Tools []struct {
			FunctionDeclarations []struct{ Name string }
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	where := geminiPath.FindStringSubmatch(path)
	req := &modelRequest{Model: where[1], Whole: where[2] == "generateContent"}
	for _, t := range in.Tools {
		for _, f := range t.FunctionDeclarations {
			req.Tools = append(req.Tools, f.Name)
		}
	}
	for _, c := range in.Contents {
		for _, p := range c.Parts {
			switch {
			case p.FunctionResponse != nil:
				req.toolOutput(string(p.FunctionResponse.Response))
			case c.Role == "user":
				req.userText(p.Text)
			case p.Text != "" && !p.Thought:
				req.Answers = append(req.Answers, p.Text)
			}
		}
	}
	return req, nil
}

func (geminiAPI) reject(w http.ResponseWriter, number, status int, opts map[string]string) {
	name := map[int]string{
		http.StatusTooManyRequests: "RESOURCE_EXHAUSTED", http.StatusUnauthorized: "UNAUTHENTICATED",
		http.StatusForbidden: "PERMISSION_DENIED", http.StatusBadRequest: "INVALID_ARGUMENT", http.StatusNotFound: "NOT_FOUND",
	}[status]
	if name == "" {
		name = "INTERNAL"
	}
	details := []any{}
	if id := map[string]string{"day": "PerDay", "quota": "PerDay", "usage": "PerDay", "min": "PerMinute"}[opts["kind"]]; id != "" {
		details = append(details, map[string]any{
			"@type": "type.googleapis.com/google.rpc.QuotaFailure",
			"violations": []any{map[string]any{
				"quotaMetric": "generativelanguage.googleapis.com/generate_content_requests",
				"quotaId":     "GenerateRequests" + id + "PerProjectPerModel",
			}},
		})
	}
	if ra := opts["ra"]; ra != "" {
		details = append(details, map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": ra + "s"})
	}
	writeJSON(w, status, map[string]any{"error": map[string]any{
		"code": status, "message": rejection(status, opts), "status": name, "details": details,
	}})
}

func (geminiAPI) begin(w http.ResponseWriter, number int, req *modelRequest) answerWriter {
	a := &geminiAnswer{w: w, req: req, number: number}
	if !req.Whole {
		a.stream = newEventStream(w, number)
	}
	return a
}

// A geminiAnswer is an answer of generateContent.
type geminiAnswer struct {
	w      http.ResponseWriter
	stream eventStream // unless the answer is one document
	req    *modelRequest
	number int
	parts  []any // of a whole answer
}

// chunk is a document with these parts; the last one says why it ends.
func (a *geminiAnswer) chunk(last bool, parts ...any) map[string]any {
	candidate := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
	doc := map[string]any{"candidates": []any{candidate}, "modelVersion": a.req.Model, "responseId": "r" + strconv.Itoa(a.number)}
	if last {
		candidate["finishReason"] = "STOP"
		doc["usageMetadata"] = map[string]any{
			"promptTokenCount": 110, "cachedContentTokenCount": 40, "candidatesTokenCount": 21,
			"thoughtsTokenCount": 5, "totalTokenCount": 136,
		}
	}
	return doc
}

func (a *geminiAnswer) part(p map[string]any) {
	if a.req.Whole {
		a.parts = append(a.parts, p)
		return
	}
	a.stream.send("", a.chunk(false, p))
}

func (a *geminiAnswer) start() {}

func (a *geminiAnswer) delta(text string) { a.part(map[string]any{"text": text}) }

func (a *geminiAnswer) message(text string) { a.delta(text) }

func (a *geminiAnswer) reasoning(text string) {
	a.part(map[string]any{"text": "**Thinking** " + text, "thought": true})
}

func (a *geminiAnswer) call(name string, args map[string]any) {
	a.part(map[string]any{"functionCall": map[string]any{"name": name, "args": args}})
}

func (a *geminiAnswer) shell(cmd string) {
	a.call("run_shell_command", map[string]any{"command": cmd, "description": "as the test wants it"})
}

func (a *geminiAnswer) write(path, text string) {
	a.call("write_file", map[string]any{"file_path": path, "content": text})
}

func (a *geminiAnswer) edit(path, from, to string) {
	a.call("replace", map[string]any{
		"file_path": path, "old_string": from, "new_string": to, "instruction": "as the test wants it",
	})
}

// failed ends the stream as Google does: with an error in place of a chunk.
func (a *geminiAnswer) failed(code string) {
	doc := map[string]any{"error": map[string]any{"code": 500, "message": "fake " + code, "status": strings.ToUpper(code)}}
	if a.req.Whole {
		writeJSON(a.w, http.StatusInternalServerError, doc)
		return
	}
	a.stream.send("", doc)
}

func (a *geminiAnswer) completed() {
	if a.req.Whole {
		writeJSON(a.w, http.StatusOK, a.chunk(true, a.parts...))
		return
	}
	a.stream.send("", a.chunk(true, map[string]any{"text": ""}))
}
