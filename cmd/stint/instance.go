package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

func (a *app) instanceCommand() *cobra.Command {
	return group(command("instance", "assistants that run as services on other machines", nil, nil),
		a.instanceLsCommand(), a.noRun(a.instanceClaimCommand()), a.noRun(a.instanceBotCommand()), a.instanceShowCommand(),
		a.noRun(a.instanceAct("check", "ask an instance now how it is")), a.noRun(a.instanceSyncCommand()),
		a.noRun(a.instanceAct("recover", "restart an instance, and wait until it answers")))
}

func (a *app) instanceLsCommand() *cobra.Command {
	return a.withJSON(a.withIDs(command("ls [OPTIONS]", "list instances", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		a.creates = true
		list, err := ask(c.Context(), a.callOrOpen, func(cl *client.Client) ([]task.Instance, error) { return cl.Instances(c.Context()) })
		head := []string{"INSTANCE", "SERVER", "USER", "HEALTH", "FAILED", "CHECKED", "DETAIL"}
		return printTable(a, list, err, "no instances; add [[server]] and [[instance]] blocks with: stint config edit", head, []string{"DETAIL", "CHECKED"}, func(in task.Instance) (string, []string) {
			return in.ID, []string{in.ID, in.Server, in.User, in.Health, fmt.Sprint(in.FailCount), localTime(in.CheckedAt), oneLine(task.OneSentence(in.Detail, maxReason))}
		})
	})))
}

func (a *app) instanceShowCommand() *cobra.Command {
	return a.withJSON(command("show [OPTIONS] ID", "show an instance", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		a.creates = true
		in, err := ask(c.Context(), a.callOrOpen, func(cl *client.Client) (task.Instance, error) { return cl.Instance(c.Context(), args[0]) })
		if err != nil {
			return err
		}
		return a.showInstance(in)
	}, a.completeInstances))
}

// showInstance prints an instance.
func (a *app) showInstance(in task.Instance) error {
	d := &description{}
	d.line("instance", in.ID)
	d.line("server", in.Server)
	d.line("service", in.Service)
	d.line("gateway", in.Gateway)
	d.line("user", strings.TrimSuffix(in.User+" (Telegram "+in.TgUser+")", " (Telegram )"))
	d.line("claimed", localTime(in.ClaimedAt))
	d.line("bot", map[bool]string{true: "its token is kept", false: "none: stint instance set-bot " + in.ID}[in.HasBot])
	d.line("setup", in.Setup)
	d.line("health", in.Health)
	if in.FailCount > 0 {
		d.line("failed", count(in.FailCount, "check"))
	}
	d.line("checked", localTime(in.CheckedAt))
	d.text("detail", in.Detail)
	return a.print(in, d.String())
}

func (a *app) instanceClaimCommand() *cobra.Command {
	var claim wire.ClaimBody
	c := a.withJSON(command("claim ID --user USER [OPTIONS]", "make an instance a user's, and set it up", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		if claim.User == "" {
			return usage("stint instance claim "+args[0]+" --user ana", "--user is missing: it names who claims the instance")
		}
		claim.Instance, a.creates = args[0], true
		in, err := ask(c.Context(), a.call, func(cl *client.Client) (task.Instance, error) { return cl.Claim(c.Context(), claim) })
		if err != nil {
			return err
		}
		a.hint("stint: it is set up within ten seconds; how that goes: stint instance show %s\n", in.ID)
		return a.showInstance(in)
	}, a.completeInstances))
	c.Flags().StringVar(&claim.User, "user", "", "`id` of the user")
	c.Flags().StringVar(&claim.TgUser, "tg-user", "", "`number` of that user at Telegram: the bot answers nobody else then")
	return c
}

// maxToken is how many bytes the token of a bot can have.
const maxToken = 1 << 10

func (a *app) instanceBotCommand() *cobra.Command {
	file := ""
	c := a.withJSON(command("set-bot ID [OPTIONS]", "keep the token of an instance's bot, read from stdin", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		text, err := "", error(nil)
		if file != "" {
			text, err = readSecret(file)
		} else {
			a.hint("stint: type or paste the token, and end with Enter and Ctrl-D\n")
			var data []byte
			data, err = interruptibly(c.Context(), "interrupted; nothing was kept", func() ([]byte, error) { return io.ReadAll(io.LimitReader(os.Stdin, maxToken)) })
			text = string(data)
		}
		if err != nil {
			return err
		}
		a.creates = true
		in, err := ask(c.Context(), a.call, func(cl *client.Client) (task.Instance, error) {
			return cl.SetBot(c.Context(), args[0], strings.TrimSpace(text))
		})
		if err != nil {
			return err
		}
		return a.showInstance(in)
	}, a.completeInstances))
	c.Flags().StringVar(&file, "token-file", "", "`path` of a file of mode 600 that has it")
	return c
}

// instanceAct returns a command that does something with instances now, in the order in which they are named.
func (a *app) instanceAct(act, short string) *cobra.Command {
	return a.withJSON(command(act+" [OPTIONS] ID…", short, cobra.MinimumNArgs(1), func(c *cobra.Command, args []string) error {
		return a.actOnInstances(c.Context(), args, act, false)
	}, a.completeInstances))
}

func (a *app) actOnInstances(ctx context.Context, ids []string, act string, repair bool) (failed error) {
	for _, id := range ids {
		out, err := ask(ctx, a.call, func(cl *client.Client) (wire.DetailBody, error) { return cl.ActOnInstance(ctx, id, act, repair) })
		if err == nil {
			err = a.print(out, id+": "+oneLine(out.Detail))
		} else if message, _ := explain(err); failed != nil {
			a.hint("stint: %s\n", message) // the first one is the command's own
		}
		if failed == nil {
			failed = err
		}
	}
	return failed
}

func (a *app) instanceSyncCommand() *cobra.Command {
	repair := false
	c := a.withJSON(command("sync [OPTIONS] ID…", "compare the configuration of an instance with what it has to be", cobra.MinimumNArgs(1), func(c *cobra.Command, args []string) error {
		return a.actOnInstances(c.Context(), args, "sync", repair)
	}, a.completeInstances))
	c.Flags().BoolVar(&repair, "repair", false, "correct what differs, and restart the service then")
	return c
}

func (a *app) completeInstances(*cobra.Command, []string, string) (ids []string, _ cobra.ShellCompDirective) {
	if cfg, err := a.base(); err == nil {
		for _, in := range cfg.Instances {
			ids = append(ids, in.ID+"\t"+in.Service+" on "+in.Server)
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) serverCommand() *cobra.Command {
	most := 0
	metrics := a.withJSON(command("metrics [OPTIONS] ID", "show the resources of a server over time", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		a.creates = true
		list, err := ask(c.Context(), a.callOrOpen, func(cl *client.Client) ([]task.ServerMetric, error) { return cl.Metrics(c.Context(), args[0], most) })
		if err == nil && len(list) > 0 && !a.json {
			if err := printText(a.stdout, sparkline("cpu", list, 100, func(m *task.ServerMetric) float64 { return m.CPU })+"\n"+
				sparkline("memory", list, 0, func(m *task.ServerMetric) float64 { return float64(m.MemUsed) })+"\n"+
				sparkline("load", list, 0, func(m *task.ServerMetric) float64 { return m.Load })+"\n"); err != nil {
				return err
			}
		}
		return printTable(a, list, err, "no samples yet; the job server_metrics takes them: stint cron run server_metrics", []string{"SAMPLED", "CPU %", "MEMORY MIB", "OF", "DISK GIB", "OF", "LOAD"}, nil, func(m task.ServerMetric) (string, []string) {
			return m.Server, []string{localTime(m.SampledAt), fmt.Sprint(m.CPU), fmt.Sprint(m.MemUsed), fmt.Sprint(m.MemTotal), fmt.Sprint(m.DiskUsed), fmt.Sprint(m.DiskTotal), fmt.Sprint(m.Load)}
		})
	}))
	metrics.Flags().IntVarP(&most, "limit", "n", 60, "`number` of samples at most")
	return group(command("server", "machines that instances run on", nil, nil),
		a.withJSON(a.withIDs(command("ls [OPTIONS]", "list servers with their newest samples", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
			a.creates = true
			list, err := ask(c.Context(), a.callOrOpen, func(cl *client.Client) ([]task.Server, error) { return cl.Servers(c.Context()) })
			return printTable(a, list, err, "no servers; add [[server]] blocks with: stint config edit", []string{"SERVER", "SSH", "INSTANCES", "CPU %", "MEMORY MIB", "LOAD", "SAMPLED"}, []string{"SSH"}, func(s task.Server) (string, []string) {
				row := []string{s.ID, s.SSH, fmt.Sprint(s.Instances), "", "", "", ""}
				if m := s.Last; m != nil {
					row = append(row[:3], fmt.Sprint(m.CPU), fmt.Sprintf("%d of %d", m.MemUsed, m.MemTotal), fmt.Sprint(m.Load), localTime(m.SampledAt))
				}
				return s.ID, row
			})
		}))), metrics)
}

// sparkline draws figures from 0 to the largest of them, or to most if that is not 0.
func sparkline(name string, list []task.ServerMetric, most float64, figure func(*task.ServerMetric) float64) string {
	bars, last := []rune("▁▂▃▄▅▆▇█"), 0.0
	top := most
	for i := range list {
		last = figure(&list[i])
		if most == 0 {
			top = math.Max(top, last)
		}
	}
	line := ""
	for i := range list {
		line += string(bars[int(min(7, 8*figure(&list[i])/math.Max(top, 1e-9)))])
	}
	return fmt.Sprintf("%-7s %s %g", name, line, last)
}
