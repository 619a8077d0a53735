package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"stint/ledger"
)

// An Account is what the control records say of an account's credentials.
type Account struct {
	Name       string    `json:"name" doc:"Name of the account" example:"codex-main"`
	Hold       bool      `json:"hold,omitempty" doc:"No task of the account starts until a person or an event ends the hold" example:"false"`
	Reason     string    `json:"reason,omitempty" doc:"Why it is on hold or cools down" example:"rate-limited"`
	CoolUntil  time.Time `json:"coolUntil,omitzero" doc:"No task of the account starts before this instant" example:"2026-11-21T03:15:09.482Z"`
	Guessed    bool      `json:"coolGuessed,omitempty" doc:"Nobody has named the end of the cool-down: it is a backoff" example:"false"`
	LimitWaits int       `json:"limitWaits,omitempty" doc:"Rate limits in a row; while there are any, one task at a time starts" example:"1"`
	LimitedAt  time.Time `json:"limitedAt,omitzero" doc:"When it met its last rate limit" example:"2026-11-21T02:15:09.482Z"`
	Disabled   bool      `json:"disabled,omitempty" doc:"A person has taken it out of use" example:"false"`
	Quota      []Window  `json:"quota,omitempty" doc:"How much of its provider's quota was used, as its CLI told last; left out: unknown"`
}

// TooLong reports whether a task does not wait until the account has cooled down: it waits for nothing, or, since it has met a
// limit without a named end, for no more than most. For a time that the provider or a person has named, every other task waits.
func (a *Account) TooLong(since time.Time, most time.Duration) bool {
	return most == 0 || a.Guessed && !since.IsZero() && a.CoolUntil.After(since.Add(most))
}

// What the reason of a hold begins with that ends by itself.
const (
	MissingPrefix = string(ClassAgentMissing) + ": " // the agent's program is missing: when it is back
	KeylessPrefix = "no key: "                       // the agent was not logged in, and the master had no key for it: with the first one that has
)

// IsMissing reports whether the account is on hold because its agent's program is missing.
func (a *Account) IsMissing() bool { return a.Hold && strings.HasPrefix(a.Reason, MissingPrefix) }

// IsKeyless reports whether the account is on hold for want of a key.
func (a *Account) IsKeyless() bool { return a.Hold && strings.HasPrefix(a.Reason, KeylessPrefix) }

// An AccountConfig is an account as accounts.toml has it: credentials of an agent, and what bounds their use. No secret is in it.
type AccountConfig struct {
	ID        string   `json:"-"`
	Tool      string   `json:"-"` // its agent
	Title     string   `json:"title,omitempty" doc:"What the user calls it: no other account of the agent is called so" example:"work"`
	GroupName string   `json:"groupName,omitempty" doc:"Free text" example:"team"`
	Max       int      `json:"max,omitempty" doc:"Tasks that may run with it at the same time; left out: any number" example:"5"`
	Variables []string `json:"variables,omitempty" doc:"Names of the variables that it gives its agent" example:"OPENAI_BASE_URL"`
	Reserve   string   `json:"reserve,omitempty" doc:"Share of each window of its quota that is kept for the user; left out: none" example:"20%"`
	Budget    string   `json:"budget,omitempty" doc:"What its runs may spend in a day, by the clock of the master; left out: any amount" example:"10usd"`
	Hours     string   `json:"hours,omitempty" doc:"When queued tasks may start with it, by the clock of the master; left out: always" example:"22:00-07:00"`
	CredRef   string   `json:"credRef,omitempty" doc:"Path of the file that has its credentials" example:"/home/ana/.secrets/work.json"`
	Dangerous bool     `json:"dangerous,omitempty" doc:"An agent of it may run without a guard" example:"false"`
}

// An AccountRule is what the configuration says of an account now.
type AccountRule struct {
	Slots  int       // tasks that may run at the same time; 0: any number
	Closed string    // why none may start, to be said behind its name; "": they may
	Until  time.Time // when that ends by itself; zero: nobody knows

	SpareFrom time.Time // before which no spare task may start; zero: one may
	Told      string    // of the window that says so
}

// An AccountUse is an account, and the tasks that use it or want to.
type AccountUse struct {
	Account
	AccountConfig
	Agent   string `json:"agent,omitempty" doc:"Agent of the tasks that use it" example:"codex"`
	Running int    `json:"running" doc:"Tasks that run with it" example:"1"`
	Closed  string `json:"closed,omitempty" doc:"What keeps all its tasks from starting, in a few words; left out: nothing" example:"limit until 15:04"`
	Why     string `json:"why,omitempty" doc:"The same as a sentence, with what ends it" example:"account codex-work is disabled; to use it again: stint account enable codex-work"`
	Waiting int    `json:"waiting" doc:"Queued tasks" example:"4"`
	Spent   string `json:"spentToday,omitempty" doc:"What its ended runs have spent today, if any budget needs that" example:"2.25usd 48213tok 12m30s"`
}

// WithConfigured returns a list of accounts, in the order of their names, with those that are
// configured, and with what is configured for each.
func WithConfigured(list []AccountUse, configs []AccountConfig) []AccountUse {
	for _, c := range configs {
		i, known := slices.BinarySearchFunc(list, c.ID, func(a AccountUse, name string) int { return cmp.Compare(a.Name, name) })
		if !known {
			list = slices.Insert(list, i, AccountUse{Account: Account{Name: c.ID}})
		}
		list[i].Agent, list[i].AccountConfig = c.Tool, c
	}
	return list
}

// A Filter says which tasks to list. Its zero value lists all.
type Filter struct {
	Status   []Status `query:"status" doc:"Any of these, separated by commas, in one parameter or several" example:"[\"queued\",\"running\"]"`
	Session  string   `query:"session" doc:"Tasks of this session" example:"web"`
	Label    string   `query:"label" doc:"Tasks with this label" example:"nightly"`
	TenantID string   `query:"tenant" doc:"Tasks of this tenant" example:"ana"`
	Queue    string   `query:"queue" doc:"Tasks of this queue" example:"nightly"`
	Agent    string   `query:"agent" doc:"Tasks of this agent" example:"codex"`
	Limit    int      `query:"limit" minimum:"0" default:"100" doc:"At most so many; 0: all" example:"100"`
	Before   uint64   // of a list, only what is older than the task with this fold.Row.First; 0: from the newest on
	Prompts  bool     // also prompts; to Rows, which are all tasks then, the caller adds them
	Text     bool     // the rows are for people: first all that run, then the others
}

// Match reports whether the filter lets a task through.
func (f *Filter) Match(t *Task) bool {
	return (len(f.Status) == 0 || slices.Contains(f.Status, t.Status)) && (f.Session == "" || f.Session == t.SessionKey) &&
		TagsOf(t).Match(Tags{f.Label, f.TenantID, f.Queue, f.Agent})
}

// A Row is one task of a list. Of a task that has ended it is what was made of it, unless the list has prompts.
type Row struct {
	Task    *Task // or nil
	Encoded []byte
	First   uint64 // number of the task's first record, by which lists are ordered: it stays, whatever becomes of the task
}

// A Session is a conversation with an agent, kept over tasks, as the task records name it.
type Session struct {
	Key       string    `json:"key" doc:"Name of the session, or its lane" example:"web"`
	ID        string    `json:"sessionId" doc:"Id of the conversation, which names its transcript" example:"019ab3f0-70aa-7b52-8f1e-5d0c3b9e4a10"`
	Agent     string    `json:"agent" doc:"Agent whose conversation it is" example:"codex"`
	Account   string    `json:"account,omitempty" doc:"Account, as the task names it" example:"codex-main"`
	Native    string    `json:"nativeId,omitempty" doc:"Id of the conversation as the agent's CLI knows it" example:"01999d1c-5f0b-7c11-b1c4-2a8d0e7c9b31"`
	UpdatedAt time.Time `json:"updatedAt,omitzero" doc:"When the last record of a task that uses it was written" example:"2026-11-21T03:15:09.482Z"`
	LastTask  string    `json:"lastTask,omitempty" doc:"Id of that task" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	Thread    Usage     `json:"thread,omitzero" doc:"What the CLI has counted over the whole conversation so far"`
}

// Tags are the words of a task that lists are filtered by.
type Tags struct{ Label, Tenant, Queue, Agent string }

// TagsOf returns those of a task.
func TagsOf(t *Task) Tags { return Tags{t.Label, t.TenantID, t.Queue, t.Agent} }

// Match reports whether v has every word of want that is not empty.
func (v Tags) Match(want Tags) bool {
	return (want.Label == "" || want.Label == v.Label) && (want.Tenant == "" || want.Tenant == v.Tenant) &&
		(want.Queue == "" || want.Queue == v.Queue) && (want.Agent == "" || want.Agent == v.Agent)
}

// Control is what a control record can say: of dispatch, of an account, of a schedule, or of an instance.
type Control struct {
	Account // without its name; Reason is that of a pause too
	Paused  bool

	Cron         string
	FiredThrough time.Time
	OpenFirings  string

	User, TgUser      string
	BotRef            string
	ClaimedAt, InitAt time.Time
	Health            string // "": unknown
	FailCount         int
	LowBalance        bool
}

// The states of an instance that is known to be in one.
const (
	HealthRunning = "running"
	HealthIdle    = "idle"
	HealthFailed  = "failed"
)

// ReadControl folds a control record into c.
func ReadControl(sec *ledger.Section, c Control) (Control, error) {
	quota := ""
	fields := map[string]any{
		KeyPaused: &c.Paused, KeyHold: &c.Hold, KeyReason: &c.Reason, KeyCoolUntil: &c.CoolUntil, KeyCoolGuessed: &c.Guessed, KeyLimitWaits: &c.LimitWaits,
		KeyLimitedAt: &c.LimitedAt, KeyDisabled: &c.Disabled, KeyQuota: &quota, KeyCron: &c.Cron, KeyFiredThrough: &c.FiredThrough, KeyOpenFirings: &c.OpenFirings,
		KeyUser: &c.User, KeyTgUser: &c.TgUser, KeyBotRef: &c.BotRef, KeyClaimedAt: &c.ClaimedAt, KeyInitAt: &c.InitAt, KeyHealth: &c.Health, KeyFailCount: &c.FailCount, KeyLowBalance: &c.LowBalance,
	}
	for i := range sec.Fields {
		f := &sec.Fields[i]
		err := read(fields[string(f.Key)], f, nil, KeepNone)
		switch string(f.Key) {
		case KeyCoolUntil:
			c.Guessed = false // unless the record says it again
		case KeyQuota:
			c.Quota, err = ParseQuota(quota)
		case KeyHealth:
			if !slices.Contains([]string{"", HealthRunning, HealthIdle, HealthFailed}, c.Health) {
				err = fmt.Errorf("%q is none of %s, %s and %s; empty means unknown", Cut(c.Health, 40), HealthRunning, HealthIdle, HealthFailed)
			}
		case KeyOpenFirings:
			for open := range strings.FieldsSeq(c.OpenFirings) {
				if _, bad := ParseTime(open); bad != nil {
					err = bad
				}
			}
		}
		if err != nil {
			return c, NewRecordError(sec, f, err)
		}
	}
	return c, nil
}

// Record is the inverse of ReadControl.
func (c *Control) Record(id string) ledger.Record {
	r := ledger.Record{Kind: ledger.KindControl, ID: id}
	r.AddIf(KeyPaused, Flag(c.Paused)).AddIf(KeyHold, Flag(c.Hold)).AddIf(KeyReason, c.Reason).
		AddIf(KeyCoolUntil, ExactTime(c.CoolUntil)).AddIf(KeyCoolGuessed, Flag(c.Guessed)).
		AddIf(KeyLimitWaits, OrNone(c.LimitWaits)).AddIf(KeyLimitedAt, ExactTime(c.LimitedAt)).
		AddIf(KeyQuota, FormatQuota(c.Quota)).AddIf(KeyDisabled, Flag(c.Disabled)).
		AddIf(KeyCron, c.Cron).AddIf(KeyFiredThrough, ExactTime(c.FiredThrough)).AddIf(KeyOpenFirings, c.OpenFirings).
		AddIf(KeyUser, c.User).AddIf(KeyTgUser, c.TgUser).AddIf(KeyBotRef, c.BotRef).AddIf(KeyClaimedAt, ExactTime(c.ClaimedAt)).AddIf(KeyInitAt, ExactTime(c.InitAt)).
		AddIf(KeyHealth, c.Health).AddIf(KeyFailCount, OrNone(c.FailCount)).AddIf(KeyLowBalance, Flag(c.LowBalance))
	return r
}
