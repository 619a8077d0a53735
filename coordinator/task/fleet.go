package task

import "time"

// An Instance is an assistant that runs as a service on a server, as clients see it. What the configuration says of it
// comes from there, and who has claimed it and how it is from its control record.
type Instance struct {
	ID        string    `json:"instance_id" doc:"Its id in the configuration" example:"shop"`
	Server    string    `json:"server" doc:"Id of its server" example:"s1"`
	Service   string    `json:"service" doc:"Name of its systemd service" example:"openclaw-shop"`
	Gateway   string    `json:"gateway" doc:"URL at which its health is asked for" example:"http://10.0.0.5:18789/health"`
	User      string    `json:"user_id,omitempty" doc:"Who has claimed it" example:"ana"`
	TgUser    string    `json:"tg_user_id,omitempty" doc:"Id of that user at Telegram" example:"123456789"`
	ClaimedAt time.Time `json:"claimed_at,omitzero" doc:"When it was claimed" example:"2026-11-29T09:00:00Z"`
	BotRef    string    `json:"bot_ref,omitempty" doc:"Where the token of its bot is: a file, or env:NAME" example:"/home/ana/keys/shop-bot"`
	Health    string    `json:"health" enum:"unknown,running,failed,idle" doc:"How it was when it was checked last" example:"running"`
	FailCount int       `json:"fail_count" doc:"Checks that failed since the last one that did not" example:"0"`
	CheckedAt time.Time `json:"checked_at,omitzero" doc:"When this master checked it last" example:"2026-11-29T09:05:00Z"`
	Detail    string    `json:"detail,omitempty" doc:"What went wrong in that check" example:"the gateway answered 500"`
	Setup     string    `json:"setup,omitempty" doc:"Status of the newest job that sets it up" example:"succeeded"`
}

// A Server is a machine with instances, with its newest sample.
type Server struct {
	ID        string        `json:"server_id" doc:"Its id in the configuration" example:"s1"`
	SSH       string        `json:"ssh" doc:"Its destination for ssh" example:"root@s1.example.com"`
	Instances int           `json:"instances" doc:"Instances on it" example:"20"`
	Last      *ServerMetric `json:"last,omitempty" doc:"Its newest sample"`
}

// A ServerMetric is a line of server_metrics.jsonl: the resources of a server at one time.
type ServerMetric struct {
	Server    string    `json:"server_id" doc:"Id of the server" example:"s1"`
	CPU       float64   `json:"cpu_pct" doc:"Share of the processors that was in use, in percent" example:"12.5"`
	MemUsed   int       `json:"mem_used_mb" doc:"Memory in use, in MiB" example:"2048"`
	MemTotal  int       `json:"mem_total_mb" doc:"All memory, in MiB" example:"8192"`
	DiskUsed  float64   `json:"disk_used_gb" doc:"Used on the file system of /, in GiB" example:"20.5"`
	DiskTotal float64   `json:"disk_total_gb" doc:"Size of that, in GiB" example:"80"`
	Load      float64   `json:"load_1m" doc:"Load average of a minute" example:"0.42"`
	SampledAt time.Time `json:"sampled_at" doc:"When" example:"2026-11-29T09:05:00Z"`
}

// A UsageDay is a line of usage_daily.jsonl: what an instance has used on one day.
type UsageDay struct {
	Instance  string    `json:"instance_id" doc:"Id of the instance" example:"shop"`
	Date      string    `json:"date" doc:"Day in UTC" example:"2026-11-29"`
	Requests  int64     `json:"requests" doc:"Requests" example:"42"`
	Tokens    int64     `json:"tokens" doc:"Tokens, of prompts and answers" example:"120345"`
	Cost      float64   `json:"cost_usd" doc:"What they cost, in US dollars" example:"1.25"`
	UpdatedAt time.Time `json:"updated_at" doc:"When these figures changed last" example:"2026-11-29T09:15:00Z"`
}
