package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"stint/coordinator/postgres"
	"stint/coordinator/statedir"
)

// shownDifferences is how many differences are listed without --all.
const shownDifferences = 100

const syncVerifyHelp = `Compare the copy with the ledger, as far as the copy goes, and print each difference
as one line, then a summary. A master may be at work: what it changes meanwhile is
counted and not compared. The exit code is 0 if both are the same, else 1. What
differs, stint sync rebuild mends.`

func (a *app) syncVerifyCommand() *cobra.Command {
	var asJSON, all bool
	c := &cobra.Command{
		Use:     "verify [OPTIONS]",
		Short:   "compare the copy with the ledger",
		Long:    syncVerifyHelp,
		Example: "  stint sync verify\n  stint sync verify --all --json | jq -r 'select(.id) | .id' | sort -u",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx := c.Context()
			dir, o, err := a.copyOptions(c)
			if err != nil {
				return err
			}
			tasks, stop := a.startTally(ctx, "comparing")
			r, err := postgres.Verify(ctx, o, func(upTo uint64) (postgres.VerifySource, error) {
				l, err := statedir.ReadCopy(ctx, dir, upTo)
				return tally{l, tasks}, err
			})
			stop()
			if err := syncError(ctx, err); err != nil {
				return err
			}
			if err := a.printDifferences(&r, all, asJSON); err != nil {
				return err
			}
			if len(r.Differences)+r.More > 0 {
				return &cliError{code: exitFailure} // the list says it
			}
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, fmt.Sprintf("list all differences, not the first %d alone", shownDifferences))
	syncFlags(c, &asJSON)
	return c
}

// A copySummary is the last line of sync verify --json.
type copySummary struct {
	Seq         uint64 `json:"seq"` // that far both were compared
	Tasks       int    `json:"tasks"`
	Runs        int    `json:"runs"`
	Files       int    `json:"files"`
	Differences int    `json:"differences"`
	InFlight    int    `json:"inFlight"` // tasks that were changed meanwhile and not compared
}

// printDifferences prints the differences that are to be shown, and the summary.
func (a *app) printDifferences(r *postgres.Report, all, asJSON bool) error {
	shown := r.Differences
	if !all {
		shown = shown[:min(len(shown), shownDifferences)]
	}
	sum := copySummary{r.Seq, r.Tasks, r.Runs, r.Files, len(r.Differences) + r.More, r.InFlight}
	for _, d := range shown {
		if err := a.printEither(asJSON, d, oneLine(d.Text)); err != nil {
			return err
		}
	}
	if more := sum.Differences - len(shown); more > 0 && !asJSON {
		text := fmt.Sprintf("and %d more", more)
		if !all {
			text += "; with --all they are listed"
		}
		if err := printText(a.stdout, text); err != nil {
			return err
		}
	}
	return a.printEither(asJSON, sum, sum.String())
}

// printEither prints what a program, or a person, is to see.
func (a *app) printEither(asJSON bool, v any, text string) error {
	if asJSON {
		return printJSON(a.stdout, v)
	}
	return printText(a.stdout, text)
}

// String returns the summary for people.
func (s *copySummary) String() string {
	what := "no difference"
	if s.Differences > 0 {
		what = count(s.Differences, "difference")
	}
	text := fmt.Sprintf("%s in %s, %s and %s, up to record %d", what, count(s.Tasks, "task"), count(s.Runs, "run"), count(s.Files, "file"), s.Seq)
	if s.InFlight > 0 {
		text += fmt.Sprintf("; %s changed meanwhile, not compared", count(s.InFlight, "task"))
	}
	return text
}
