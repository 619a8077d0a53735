package main

import (
	"github.com/spf13/cobra"

	"stint/coordinator/api/guard"
)

func (a *app) tokenCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "the token of the HTTP interface: a new one, or for curl",
		Example: `  stint token header | curl -sS -H @- http://127.0.0.1:7433/v1/tasks
  stint token rotate`,
	}
	c.AddCommand(noRun((*app).tokenHeaderCommand)(a), noRun((*app).tokenRotateCommand)(a))
	return c
}

const tokenHeaderHelp = `Print the header that requests over TCP need. Read it from stdin or a file, as
curl -H @- does: what stands on a command line, other users of the machine can see.`

func (a *app) tokenHeaderCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "header",
		Short:   "print the Authorization header",
		Long:    tokenHeaderHelp,
		Example: "  stint token header | curl -sS -H @- http://127.0.0.1:7433/v1/health",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := a.token()
			if err != nil {
				return err
			}
			return printText(a.stdout, "Authorization: Bearer "+text+"\n")
		},
	}
}

// token returns the token of the state directory, made if there is none yet.
func (a *app) token() (string, error) {
	state, err := a.ownState()
	if err != nil {
		return "", err
	}
	t, err := guard.OpenToken(tokenFile(state))
	if err != nil {
		return "", err
	}
	return t.Text()
}

// ownState returns the state directory, which must be there and be ours.
func (a *app) ownState() (string, error) {
	state, err := a.state()
	if err != nil {
		return "", err
	}
	return state, checkStateDir(state, a.stderr)
}

const tokenRotateHelp = `Put a new token in the place of the old one, which counts no more from then on, nor
does any browser that was let in: open the page again with stint ui. A master that
runs sees it at once.`

func (a *app) tokenRotateCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "rotate",
		Short:   "make a new token; the old one counts no more",
		Long:    tokenRotateHelp,
		Example: "  stint token rotate",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			state, err := a.ownState()
			if err != nil {
				return err
			}
			if err := guard.RotateToken(tokenFile(state)); err != nil {
				return err
			}
			a.hint("stint: the token is a new one; open the page with: stint ui\n")
			return nil
		},
	}
}
