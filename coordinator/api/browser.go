package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator"
)

type (
	codeOutput struct{ Body PageAddress }

	sessionInput struct {
		Body struct {
			Code string `json:"code" doc:"The one-time code of the address that stint ui opened"`
		}
	}

	cookieOutput struct {
		Cookie http.Cookie `header:"Set-Cookie"`
		Body   struct {
			Key string `json:"key" doc:"For the header Stint-Page, which requests that change something need beside the cookie"`
		}
	}
)

// A PageAddress lets one browser in, once.
type PageAddress struct {
	URL       string    `json:"url" doc:"Address of the page, with a one-time code behind its #, which no browser sends to a server"`
	ExpiresAt time.Time `json:"expiresAt" doc:"When the code counts no more"`
}

const (
	pathSignIn = "/ui/session" // where the page's script gives the code for a cookie
	maxSignIn  = 1 << 10       // bytes of a body that is read from whoever sends one
)

func (s *Server) browserRoutes(api huma.API) {
	huma.Register(api, op(http.MethodPost, "/v1/ui/code", "ui-code", "Give an address that lets one browser in, once"), s.code)
	signIn := op(http.MethodPost, pathSignIn, "ui-session", "Take a one-time code, and give a browser its cookie (TCP only)")
	signIn.MaxBodyBytes = maxSignIn
	huma.Register(api, signIn, s.signIn)
}

func (s *Server) code(context.Context, *bareInput) (*codeOutput, error) {
	h := s.master.Health()
	if h.HTTP == "" {
		return nil, asProblem(noPage(h.HTTPError))
	}
	now := s.opts.Now()
	return &codeOutput{Body: PageAddress{URL: "http://" + h.HTTP + "/#code=" + s.codes.add(now), ExpiresAt: now.Add(codeTime).UTC()}}, nil
}

// noPage says that there is no TCP port; failed is why there is none that should be, or "".
func noPage(failed string) *coordinator.Error {
	e := &coordinator.Error{
		Code: coordinator.CodeConflict, Message: "this master has no page: " + cmp.Or(failed, "it opens no TCP port"),
		Hint: "run one that does: stint serve (http = \"127.0.0.1:7433\")",
	}
	if failed != "" {
		e.Hint = "run one on a port that is free: stint serve --http 127.0.0.1:0"
	}
	return e
}

func (s *Server) signIn(ctx context.Context, in *sessionInput) (*cookieOutput, error) {
	g := guardOf(ctx)
	if g == nil || !s.codes.take(in.Body.Code, s.opts.Now()) {
		return nil, newProblem(http.StatusUnauthorized, coordinator.CodeUnauthorized, "the code was used before, or is too old", "stint ui")
	}
	value, err := s.opts.Token.cookie(s.opts.Now())
	if err != nil {
		return nil, asProblem(err)
	}
	out := &cookieOutput{Cookie: http.Cookie{Name: g.cookie, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}}
	if out.Body.Key, err = s.opts.Token.pageKey(value); err != nil {
		return nil, asProblem(err)
	}
	return out, nil
}

// PageAddress gives the address of the page, with a code that lets one browser in.
func (c *Client) PageAddress(ctx context.Context) (p PageAddress, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/ui/code", nil, &p)
	return p, err
}
