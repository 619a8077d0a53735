package api

import (
	"context"
	"net/http"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

type (
	signInInput struct {
		host string
		Body struct {
			Code string `json:"code" doc:"The one-time code of the address that stint ui opened" example:"UqvYqjzVfNa4dQZ3RNh2bA"`
		}
	}

	cookieOutput struct {
		Cookie string `header:"Set-Cookie"`
		Body   struct {
			Key string `json:"key" doc:"For the header Stint-Page, which requests that change something need beside the cookie" example:"5dZ9cB1yCqvGk0wYw2lq3g"`
		}
	}
)

// Resolve implements [request.Resolver].
func (in *signInInput) Resolve(r *http.Request) error {
	in.host = r.Host
	return nil
}

const (
	pathSignIn = "/ui/session" // where the page's script exchanges the code for a cookie
	maxSignIn  = 1<<10 - 1     // bytes of a body that is read from whoever sends one; with more the answer is 413
)

func (s *Server) browserRoutes() {
	answers(s, op(http.MethodPost, "/v1/ui/code", "ui-code", "Give an address that lets one browser in, once", "The address holds a one-time code that expires after a minute. stint ui opens it. A master without a TCP port opens one, until an hour after the page was used last; if it cannot, the answer is 409.", http.StatusConflict), s.code)
	register(s, op(http.MethodPost, pathSignIn, "ui-session", "Take a one-time code, and give a browser its cookie (TCP only)", "The page's script sends the code of its address, and gets a cookie and a key for the header Stint-Page. A code that was used before, or has expired, is a 401.").upTo(maxSignIn), s.signIn)
}

func (s *Server) code(context.Context, *with[*noBody]) (wire.PageAddress, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.port.Load() == nil && s.opts.OpenPage != nil {
		if err := s.opts.OpenPage(); err != nil {
			return wire.PageAddress{}, err
		}
	}
	p := s.port.Load()
	if p == nil {
		return wire.PageAddress{}, task.Conflict("run one that does: stint serve (http = \"127.0.0.1:7433\")", "this master has no page: it opens no TCP port")
	}
	defer p.use()()
	url, until, err := p.guard.NewBrowser()
	return wire.PageAddress{URL: url, ExpiresAt: until}, err
}

func (s *Server) signIn(ctx context.Context, in *signInInput) (*cookieOutput, error) {
	badCode := wire.NewProblem(http.StatusUnauthorized, "the code was used before, or is too old", "stint ui")
	g := guard.Of(ctx)
	if g == nil {
		return nil, badCode
	}
	cookie, key, ok, err := g.SignIn(in.host, in.Body.Code)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, badCode
	}
	out := &cookieOutput{Cookie: cookie.String()}
	out.Body.Key = key
	return out, nil
}
