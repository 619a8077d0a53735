package main

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
	}{
		{"90s", 90 * time.Second},
		{"1h30m", 90 * time.Minute},
		{"3d", 72 * time.Hour},
		{"0", 0},
	} {
		if got, err := parseDuration(c.text); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.text, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "x", "10", "-1s", "d", "1.5d", "-1d", "99999999d"} {
		if d, err := parseDuration(bad); err == nil {
			t.Errorf("%q is taken for %s", bad, d)
		}
	}
}

func TestShortDuration(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{30 * time.Minute, "30m"},
		{24 * time.Hour, "24h"},
		{90 * time.Minute, "1h30m"},
		{5 * time.Second, "5s"},
		{0, "0s"},
		{time.Hour + time.Second, "1h0m1s"},
		{10 * time.Minute, "10m"},
		{10 * time.Second, "10s"},
	} {
		if got := shortDuration(c.d); got != c.want {
			t.Errorf("%v: %s, want %s", c.d, got, c.want)
		}
		if d, err := time.ParseDuration(shortDuration(c.d)); err != nil || d != c.d {
			t.Errorf("%v does not come back: %v, %v", c.d, d, err)
		}
	}
}

func TestParseAt(t *testing.T) {
	zone := time.FixedZone("test", 2*3600)
	now := time.Date(2026, 11, 21, 12, 30, 0, 0, zone)
	for _, c := range []struct {
		text string
		want time.Time
	}{
		{"2026-12-01T10:00:00Z", time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)},
		{"2026-12-01 10:00", time.Date(2026, 12, 1, 10, 0, 0, 0, zone)},
		{"2026-12-01T10:00", time.Date(2026, 12, 1, 10, 0, 0, 0, zone)},
		{"13:00", time.Date(2026, 11, 21, 13, 0, 0, 0, zone)},
		{"12:30", time.Date(2026, 11, 22, 12, 30, 0, 0, zone)},
		{"00:05", time.Date(2026, 11, 22, 0, 5, 0, 0, zone)},
	} {
		if got, err := parseAt(c.text, now); err != nil || !got.Equal(c.want) {
			t.Errorf("%s: %s, %v; want %s", c.text, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "soon", "25:00", "2026-13-01 10:00", "12"} {
		if got, err := parseAt(bad, now); err == nil {
			t.Errorf("%q is taken for %s", bad, got)
		}
	}
}

func TestAgo(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0s"}, {4 * time.Second, "4s"}, {134 * time.Second, "2m14s"}, {3*time.Hour + 5*time.Minute, "3h05m"}, {52 * time.Hour, "2d4h"},
	} {
		if got := ago(c.d); got != c.want {
			t.Errorf("%s: %s, want %s", c.d, got, c.want)
		}
	}
}
