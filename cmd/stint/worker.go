package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"stint/coordinator"
	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/postgres/shared"
	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
	"stint/ledger/durable"
)

func (a *app) workerCommand() *cobra.Command {
	return group(command("worker", "run tasks of the shared queue on this machine", nil, nil), a.noRun(a.workerStartCommand()), a.workerStatusCommand(),
		command("stop", "ask the worker here to exit after its runs, and wait for that", cobra.NoArgs, func(c *cobra.Command, _ []string) error { return a.stopMaster(c.Context()) }))
}

func (a *app) workerStartCommand() *cobra.Command {
	m := &master{app: a, leases: true}
	c := command("start [OPTIONS]", "run the master, with tasks of the shared queue too", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		m.flags = c.Flags()
		for _, name := range m.tools {
			if !slices.Contains(tables.Tools, name) {
				return usage("name some of "+strings.Join(tables.Tools, ", "), "--tools: the shared queue has no agent %q", name)
			}
		}
		return m.serve(context.WithoutCancel(c.Context()))
	})
	for i := range keys {
		if keys[i].section != "fleet" && keys[i].section != "litellm" {
			addKeyFlag(c.Flags(), &keys[i])
		}
	}
	c.Flags().StringSliceVar(&m.tools, "tools", nil, "use the accounts of these agents: `list`")
	c.Flags().StringVar(&m.only.TenantID, "tenant", "", "lease only tasks of this `tenant`")
	c.Flags().StringVar(&m.only.Queue, "queue", "", "lease only tasks of this `queue`")
	exclusive(c, "accounts", "tools", "group")
	return c
}

func (a *app) workerStatusCommand() *cobra.Command {
	return a.withJSON(command("status [OPTIONS]", "list the workers of the shared queue", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		return a.onShared(c, func(ctx context.Context, q *shared.Queue) error {
			list, err := q.Workers(ctx)
			if err != nil {
				return err
			}
			return printTable(a, list, nil, "no worker is registered", []string{"HOST", "PID", "TASKS", "LEASES", "LAST SEEN", "ACCOUNTS"}, []string{"PID"}, func(w task.WorkerRow) (string, []string) {
				heard := w.Silent + " ago"
				if w.Draining {
					heard += ", ends after its runs"
				}
				return w.ID, []string{w.Host, fmt.Sprint(w.PID), fmt.Sprint(w.Processes), fmt.Sprint(w.Leases), heard, w.Accounts}
			})
		})
	}))
}

// workerID returns the id of the worker of a state directory, which it has for good: by that it finds again what it had leased.
func workerID(state string) (uuid.UUID, error) {
	path := filepath.Join(state, "worker.id")
	text, err := durable.ReadFile(durable.OS, path)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(uuid.NewString() + "\n")
		err = durable.WriteFile(durable.OS, path, text)
	}
	if err != nil {
		return uuid.Nil, err
	}
	id, err := uuid.ParseBytes([]byte(strings.TrimSpace(string(text))))
	if err != nil {
		return id, task.Conflict("remove it, if no other machine has a copy of this directory", "%s has no id of a worker", path)
	}
	return id, nil
}

const bothAccounts = "it takes one in the shared queue (stint account add --shared) and one of the same id and agent here (stint account add)"

// openQueue connects to the shared queue, and says which of the accounts that were named cannot be used.
func (m *master) openQueue(ctx context.Context) (q *shared.Queue, err error) {
	if m.shared == nil {
		return nil, errNoShared
	}
	if c := m.cfg; c.WorkerRenew <= 0 || c.WorkerPoll <= 0 || c.WorkerLeaseTTL < 2*c.WorkerRenew+c.leaseMargin() {
		return nil, usage("stint worker start --help", "worker.lease_ttl (%s) has to be longer than two times worker.renew (%s) and grace (%s), and worker.poll_interval not 0",
			task.FormatLimit(c.WorkerLeaseTTL), task.FormatLimit(c.WorkerRenew), task.FormatLimit(c.Grace))
	}
	err = m.shared.Do(ctx, func(queue *shared.Queue) error {
		q = queue
		list, err := q.Accounts(ctx)
		usable := m.usable(list)
		for _, id := range m.cfg.WorkerAccounts {
			if err == nil && id != "auto" && !slices.Contains(usable, id) {
				err = task.Invalid("stint account ls, and stint account ls --shared", "account %s cannot be used: %s", id, bothAccounts)
			}
		}
		if err == nil && len(usable) == 0 {
			m.log.Warn("no account can be used: " + bothAccounts)
		}
		return err
	})
	return q, err
}

// usable returns the ids of the shared queue's accounts with which this worker runs tasks.
func (m *master) usable(list []shared.Account) (ids []string) {
	for _, a := range list {
		here := m.accounts.find(a.ID)
		isNamed := slices.Contains(m.cfg.WorkerAccounts, a.ID) || slices.Contains(m.cfg.WorkerAccounts, "auto")
		isMeant := (len(m.tools) == 0 || slices.Contains(m.tools, a.Tool)) && (m.cfg.WorkerGroup == "" || m.cfg.WorkerGroup == a.GroupName)
		if isNamed && isMeant && here != nil && here.Tool == a.Tool {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

// newWorker returns the worker of a master, which looks at the queue at once when wake says that there is something.
func (m *master) newWorker(c *coordinator.Coordinator, q *shared.Queue, wake <-chan struct{}) (*shared.Worker, error) {
	o, _ := postgresOptions(m.cfg, m.state, m.log) // there is a database
	id, err := workerID(m.state)
	if err != nil {
		return nil, err
	}
	o.RunDir = c.RunDir
	return shared.NewWorker(shared.Options{
		Holder: shared.Holder{Worker: id, Host: o.Host, TTL: m.cfg.WorkerLeaseTTL},
		Renew:  m.cfg.WorkerRenew, Poll: m.cfg.WorkerPoll, Processes: m.cfg.WorkerConcurrency, Margin: m.cfg.leaseMargin(), Filter: m.only,
		Row:  task.WorkerRow{PID: os.Getpid(), StateDir: m.state, Processes: m.cfg.WorkerConcurrency, Version: versionName()},
		Rows: o.Of,
		Accounts: func(ctx context.Context) ([]string, error) {
			list, err := q.Accounts(ctx)
			return m.usable(list), err
		},
		SessionDir: func(key string) (string, error) {
			data, err := xdg("XDG_DATA_HOME", ".local/share")
			dir := filepath.Join(data, "stint", "shared", key)
			if err == nil {
				err = durable.MkdirAll(durable.OS, dir)
			}
			return dir, err
		},
		Now: hold.Uptime, Log: m.log,
	}, q, c, wake), nil
}

// leaseMargin is how long before its end a lease is given up: its gate looks twice a second, and then the agent has its grace.
func (c *Config) leaseMargin() time.Duration { return cmp.Or(c.Grace, 5*time.Second) + 2*time.Second }
