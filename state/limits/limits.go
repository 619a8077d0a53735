// Package limits reads and writes the bounds that people set for tasks and accounts: how much may be spent ([Budget]), in which
// hours work may start ([Hours]), and which share of a quota is kept for the user ([ParsePercent]). Each has one text for
// flags, the configuration and the ledger, and its zero value is no bound. The package knows neither tasks nor accounts.
package limits

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Budget is how much may be spent, of three things; 0 of one: any amount.
type Budget struct {
	USD    float64
	Tokens int64 // of input and output
	Time   time.Duration
}

// A Spending is what runs have spent.
type Spending = Budget

// Plus returns the sum of two amounts.
func (b Budget) Plus(c Budget) Budget {
	return Budget{b.USD + c.USD, max(b.Tokens, c.Tokens, b.Tokens+c.Tokens), b.Time + c.Time}
}

// most is the largest amount that is read, of dollars and of tokens: as good as any, and far from where sums overflow.
const most = 1e15

// ParseBudget reads a budget such as 5usd, 200ktok, 90m or "5usd 2h": amounts with a unit, with blanks
// or commas between them; "" is none.
func ParseBudget(s string) (b Budget, err error) {
	for _, word := range strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ',' }) {
		one, ok := amount(strings.ToLower(word))
		if !ok {
			return Budget{}, fmt.Errorf("%q is no budget such as 5usd, 200ktok or 90m", word)
		}
		if b.USD*one.USD > 0 || min(b.Tokens, one.Tokens) > 0 || min(b.Time, one.Time) > 0 {
			return Budget{}, fmt.Errorf("%q is the second amount of its kind; write one, such as 1h30m", word)
		}
		b = b.Plus(one)
	}
	return b, nil
}

// amount reads one of those, which is no less than the smallest.
func amount(word string) (b Budget, ok bool) {
	if d, err := time.ParseDuration(word); err == nil {
		return Budget{Time: d}, d >= smallest.Time
	}
	i := strings.LastIndexAny(word, ".0123456789") + 1
	n, err := strconv.ParseFloat(word[:i], 64)
	if err != nil {
		return b, false
	}
	if word[i:] == "usd" {
		b.USD = min(n, most)
	}
	tokens := map[string]float64{"tok": 1, "ktok": 1e3, "mtok": 1e6}[word[i:]]
	b.Tokens = int64(min(n*tokens, most))
	return b, b.USD >= smallest.USD || b.Tokens >= smallest.Tokens
}

// String returns a budget as ParseBudget reads it.
func (b Budget) String() string {
	var words []string
	if b.USD > 0 {
		words = append(words, strconv.FormatFloat(math.Round(b.USD*1e4)/1e4, 'f', -1, 64)+"usd")
	}
	if b.Tokens > 0 {
		words = append(words, strconv.FormatInt(b.Tokens, 10)+"tok")
	}
	if b.Time > 0 {
		words = append(words, b.Time.Round(time.Second).String())
	}
	return strings.Join(words, " ")
}

// Over returns what of a budget is spent, such as "5.02usd of 5usd", and what more of it could be; "" if nothing is.
func (b Budget) Over(spent Spending) (text, more string) {
	switch {
	case b.USD > 0 && spent.USD >= b.USD:
		return Budget{USD: spent.USD}.String() + " of " + Budget{USD: b.USD}.String(), "+5usd"
	case b.Tokens > 0 && spent.Tokens >= b.Tokens:
		return Budget{Tokens: spent.Tokens}.String() + " of " + Budget{Tokens: b.Tokens}.String(), "+200ktok"
	case b.Time > 0 && spent.Time >= b.Time:
		return Budget{Time: spent.Time}.String() + " of " + Budget{Time: b.Time}.String(), "+30m"
	}
	return "", ""
}

// smallest is the least budget that ParseBudget reads. Nothing of an amount would be any amount.
var smallest = Budget{USD: 0.0001, Tokens: 1, Time: time.Second}

// Rest returns what is left of a budget of which that is spent, and at most the other one: the lesser of
// each amount, and the smallest where nothing is left.
func (b Budget) Rest(spent Spending, other Budget) Budget {
	left := func(all, used, other, smallest float64) float64 {
		if all > 0 {
			all = max(all-used, smallest)
		}
		if all > 0 && other > 0 {
			return min(all, other)
		}
		return all + other
	}
	return Budget{
		USD:    left(b.USD, spent.USD, other.USD, smallest.USD),
		Tokens: int64(left(float64(b.Tokens), float64(spent.Tokens), float64(other.Tokens), float64(smallest.Tokens))),
		Time:   time.Duration(left(float64(b.Time), float64(spent.Time), float64(other.Time), float64(smallest.Time))),
	}
}

// ParsePercent reads a percentage from 0 to 100, such as 20%; "" is 0.
func ParsePercent(s string) (float64, error) {
	text, ok := strings.CutSuffix(s, "%")
	if s == "" {
		return 0, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if !ok || err != nil || !(v >= 0 && v <= 100) {
		return 0, fmt.Errorf("%q is not within 0%% and 100%%; write for example 20%%", s)
	}
	return v, nil
}

// Hours are those of a day in which something may start, such as 22:00-07:00, which pass midnight. The zero value is all day.
type Hours struct{ From, To int } // minutes since midnight; From is in it, To is not

// ParseHours reads hours as String writes them; "" is all day.
func ParseHours(s string) (h Hours, err error) {
	if s == "" {
		return h, nil
	}
	var fromHour, from, toHour, to int
	n, err := fmt.Sscanf(s+"\n", "%2d:%2d-%2d:%2d\n", &fromHour, &from, &toHour, &to)
	h = Hours{60*fromHour + from, 60*toHour + to}
	if err != nil || n != 4 || h.String() != s || max(fromHour, toHour) > 24 || max(from, to) > 59 || max(h.From, h.To) > 24*60 || min(h.From, h.To) < 0 || h.From == h.To {
		return Hours{}, fmt.Errorf("%q are no hours such as 22:00-07:00", s)
	}
	return h, nil
}

// String returns the hours as 22:00-07:00, "" for all day.
func (h Hours) String() string {
	if h == (Hours{}) {
		return ""
	}
	return fmt.Sprintf("%02d:%02d-%02d:%02d", h.From/60, h.From%60, h.To/60, h.To%60)
}

// Opens returns when the hours begin that do not hold now; zero if they do. What counts is the clock
// on the wall, in the zone of now: a day on which that is set may have fewer or more of them.
func (h Hours) Opens(now time.Time) time.Time {
	at := 60*now.Hour() + now.Minute()
	isIn := h.From <= at && at < h.To
	if h.From > h.To {
		isIn = h.From <= at || at < h.To
	}
	if isIn || h == (Hours{}) {
		return time.Time{}
	}
	for day := 0; ; day++ {
		if t := time.Date(now.Year(), now.Month(), now.Day()+day, 0, h.From, 0, 0, now.Location()); t.After(now) {
			return t
		}
	}
}
