package main

import (
	"context"
	"fmt"

	"stint/coordinator"
	"stint/coordinator/api/client"
)

// showPrompt prints what an agent was sent, byte for byte, and on stderr what was
// found in the notes for it.
func (a *app) showPrompt(ctx context.Context, o *showOptions, ref string) error {
	var p coordinator.SentPrompt
	err := a.call(ctx, func(c *client.Client) (err error) { p, err = c.Prompt(ctx, ref, o.run); return err })
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(a.stdout, p)
	}
	out, flush := terminalSafe(a.stdout)
	if _, err = out.Write(p.Bytes()); err == nil {
		err = flush()
	}
	if err != nil {
		return err
	}
	if isTTY(a.stdout) {
		a.hint("\n\n")
	}
	a.hint("%s", escapeText(describeSent(&p)))
	return nil
}

// describeSent tells which prompt it is, and what was found for it.
func describeSent(p *coordinator.SentPrompt) string {
	which := fmt.Sprintf("%d of %d", p.Number, p.Of)
	if p.Number == 0 {
		which = string(p.Phase)
	}
	text := fmt.Sprintf("stint: run %s of task %s (%s, attempt %d", p.RunID, p.TaskID, which, p.Attempt)
	if p.Iteration > 0 {
		text += fmt.Sprintf(", round %d", p.Iteration)
	}
	text += ")\nsha256:        " + p.SHA256 + "\n"
	if p.Memory == nil {
		return text
	}
	return text + describeMemory(p.Memory)
}
