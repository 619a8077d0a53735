package main

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

func (a *app) instanceCommand() *cobra.Command {
	var claim wire.ClaimBody
	claims := a.noRun(a.aboutInstance("claim ID --user USER [OPTIONS]", "make an instance a user's, and set it up", 1, func(args []string) (string, string, any, error) {
		if claim.Instance = args[0]; claim.User == "" {
			return "", "", nil, usage("stint instance claim "+args[0]+" --user ana", "--user is missing: it names who claims the instance")
		}
		return http.MethodPost, "/me/instances/claim", claim, nil
	}))
	claims.Flags().StringVar(&claim.User, "user", "", "`id` of the user")
	claims.Flags().StringVar(&claim.TgUser, "tg-user", "", "`number` of that user at Telegram: the bot answers nobody else then")
	bot := a.noRun(a.aboutInstance("set-bot ID REF", "name the token of an instance's bot: a file, or env:NAME", 2, func(args []string) (string, string, any, error) {
		ref, err := args[1], error(nil)
		switch number, _, isToken := strings.Cut(ref, ":"); {
		case number == "env":
		case isToken:
			return "", "", nil, usage("put it into a file of mode 600, and name that", "a token itself has no place on a command line, where others can read it")
		default:
			ref, err = filepath.Abs(ref)
		}
		return http.MethodPost, instancePath(args[0]) + "/bot", map[string]string{"token_ref": ref}, err
	}))
	return group(command("instance", "assistants that run as services on other machines", nil, nil),
		a.withJSON(a.withIDs(command("ls [OPTIONS]", "list instances", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
			out, err := fromMaster[wire.InstancesBody](a, c, http.MethodGet, "/v1/instances", nil)
			head := []string{"INSTANCE", "SERVER", "USER", "HEALTH", "FAILED", "CHECKED", "DETAIL"}
			return printTable(a, out.Instances, err, "no instances; add [[server]] and [[instance]] blocks with: stint config edit", head, []string{"DETAIL", "CHECKED"}, func(in task.Instance) (string, []string) {
				return in.ID, []string{in.ID, in.Server, in.User, in.Health, fmt.Sprint(in.FailCount), localTime(in.CheckedAt), oneLine(task.OneSentence(in.Detail, maxReason))}
			})
		}))), claims, bot,
		a.aboutInstance("show [OPTIONS] ID", "show an instance", 1, func(args []string) (string, string, any, error) {
			return http.MethodGet, instancePath(args[0]), nil, nil
		}),
		a.instanceAct("check", "ask an instance now how it is"), a.instanceAct("sync", "compare the configuration of an instance with what it has to be"),
		a.instanceAct("recover", "restart an instance, and wait until it answers"))
}

// fromMaster makes a request to the master, for which the state directory is made.
func fromMaster[T any](a *app, c *cobra.Command, method, path string, in any) (T, error) {
	a.creates = true
	return fetch[T](c.Context(), a.callOrOpen, method, path, in)
}

func instancePath(id string) string { return "/v1/instances/" + url.PathEscape(id) }

// aboutInstance returns a command that makes a request about an instance, and shows it as it is then.
func (a *app) aboutInstance(use, short string, n int, request func(args []string) (method, path string, body any, err error)) *cobra.Command {
	return a.withJSON(command(use, short, cobra.ExactArgs(n), func(c *cobra.Command, args []string) error {
		method, path, body, err := request(args)
		if err != nil {
			return err
		}
		in, err := fromMaster[task.Instance](a, c, method, path, body)
		if err != nil {
			return err
		}
		d := &description{}
		d.line("instance", in.ID)
		d.line("server", in.Server)
		d.line("service", in.Service)
		d.line("gateway", in.Gateway)
		d.line("user", in.User)
		d.line("Telegram", in.TgUser)
		d.line("claimed", localTime(in.ClaimedAt))
		d.line("bot", cmp.Or(in.BotRef, "none: stint instance set-bot "+in.ID+" FILE"))
		d.line("setup", in.Setup)
		d.line("health", in.Health)
		d.line("failed", strings.TrimPrefix(count(in.FailCount, "check"), "0 checks"))
		d.line("checked", localTime(in.CheckedAt))
		d.text("detail", in.Detail)
		return a.print(in, d.String())
	}))
}

// instanceAct returns a command that does something with instances now, until one fails.
func (a *app) instanceAct(act, short string) *cobra.Command {
	repair := false
	c := a.noRun(a.withJSON(command(act+" [OPTIONS] ID…", short, cobra.MinimumNArgs(1), func(c *cobra.Command, args []string) error {
		for _, id := range args {
			out, err := fromMaster[wire.DetailBody](a, c, http.MethodPost, instancePath(id)+"/"+act+"?repair="+strconv.FormatBool(repair), nil)
			if err == nil {
				err = a.print(out, id+": "+oneLine(out.Detail))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})))
	if act == "sync" {
		c.Flags().BoolVar(&repair, "repair", false, "correct what differs, and restart the service then")
	}
	return c
}

func (a *app) serverCommand() *cobra.Command {
	most := 0
	metrics := a.withJSON(command("metrics [OPTIONS] ID", "show the resources of a server over time", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		out, err := fromMaster[wire.MetricsBody](a, c, http.MethodGet, "/api/v1/admin/server-metrics/"+url.PathEscape(args[0])+"?limit="+strconv.Itoa(most), nil)
		if err == nil && len(out.Metrics) > 0 && !a.json {
			err = printText(a.stdout, sparkline("cpu", out.Metrics, 100, func(m *task.ServerMetric) float64 { return m.CPU })+
				sparkline("memory", out.Metrics, 1, func(m *task.ServerMetric) float64 { return float64(m.MemUsed) })+
				sparkline("load", out.Metrics, 1, func(m *task.ServerMetric) float64 { return m.Load }))
		}
		return printTable(a, out.Metrics, err, "no samples yet; the job server_metrics takes them: stint cron run server_metrics", []string{"SAMPLED", "CPU %", "MEMORY MIB", "OF", "DISK GIB", "OF", "LOAD"}, nil, func(m task.ServerMetric) (string, []string) {
			return m.Server, []string{localTime(m.SampledAt), fmt.Sprint(m.CPU), fmt.Sprint(m.MemUsed), fmt.Sprint(m.MemTotal), fmt.Sprint(m.DiskUsed), fmt.Sprint(m.DiskTotal), fmt.Sprint(m.Load)}
		})
	}))
	metrics.Flags().IntVarP(&most, "limit", "n", 60, "`number` of samples at most")
	return group(command("server", "machines that instances run on", nil, nil),
		a.withJSON(a.withIDs(command("ls [OPTIONS]", "list servers with their newest samples", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
			out, err := fromMaster[wire.ServersBody](a, c, http.MethodGet, "/v1/servers", nil)
			return printTable(a, out.Servers, err, "no servers; add [[server]] blocks with: stint config edit", []string{"SERVER", "SSH", "INSTANCES", "CPU %", "MEMORY MIB", "LOAD", "SAMPLED"}, []string{"SSH"}, func(s task.Server) (string, []string) {
				row := []string{s.ID, s.SSH, fmt.Sprint(s.Instances), "", "", "", ""}
				if m := s.Last; m != nil {
					row = append(row[:3], fmt.Sprint(m.CPU), fmt.Sprintf("%d of %d", m.MemUsed, m.MemTotal), fmt.Sprint(m.Load), localTime(m.SampledAt))
				}
				return s.ID, row
			})
		}))), metrics)
}

// sparkline draws figures, from 0 to the largest of them or to top, if that is more, and the last one as a number.
func sparkline(name string, list []task.ServerMetric, top float64, figure func(*task.ServerMetric) float64) string {
	figures, line := mapped(list, figure), ""
	for _, n := range figures {
		top = math.Max(top, n)
	}
	for _, n := range figures {
		line += string([]rune("▁▂▃▄▅▆▇█")[int(min(7, 8*n/top))])
	}
	return fmt.Sprintf("%-7s %s %g\n", name, line, figures[len(figures)-1])
}
