package api

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// serveContent answers with a content, or with the parts of it that a header Range names.
// What has changed while it was read ends the answer before its length is reached, which
// the client sees.
func serveContent(hctx huma.Context, content io.ReadSeeker, modified time.Time) {
	r, w := humago.Unwrap(hctx)
	http.ServeContent(&rangeWriter{ResponseWriter: w, cacheControl: w.Header().Get("Cache-Control")}, r, "", modified, content)
}

// A rangeWriter makes a problem of a range that cannot be had, which net/http tells as
// plain text.
type rangeWriter struct {
	http.ResponseWriter
	cacheControl string // net/http takes it away
	refused      bool
}

// WriteHeader implements [http.ResponseWriter].
func (w *rangeWriter) WriteHeader(status int) {
	if w.refused = status == http.StatusRequestedRangeNotSatisfiable; !w.refused {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	if w.cacheControl != "" {
		w.Header().Set("Cache-Control", w.cacheControl)
	}
	p := wire.NewProblem(status, task.CodeInvalid, "the header Range names nothing that is there; Content-Range says how many bytes there are", "for the last 1000 of them: Range: bytes=-1000")
	p.Field = "Range"
	p.Write(w.ResponseWriter)
}

// Write implements [io.Writer].
func (w *rangeWriter) Write(b []byte) (int, error) {
	if w.refused {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// patience is how long a request waits for others that cost as much.
const patience = 10 * time.Second

// A turnstile lets some requests pass at once; the others wait.
type turnstile chan struct{}

// enter waits for its turn, which lasts until leave is called. It gives up when the
// client does, or when it takes too long.
func (t turnstile) enter(ctx context.Context) (leave func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(patience):
		return nil, &task.Error{Code: task.CodeTooMany, Message: "others ask for the same, which takes long, and only a few can at once", Hint: "try again"}
	}
}
