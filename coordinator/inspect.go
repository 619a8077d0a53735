package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"stint/state"
)

// The heuristics: what can be seen of an answer without asking anybody. They are
// meant to be right rather than complete: a finding that is none costs a person's
// time, and may queue a task.

// An answered is what the heuristics look at.
type answered struct {
	prompt string
	answer string
	policy string // the output policy, as text
	verify string // the verify command; "": there is none
	diff   string // what the attempt has changed in its checkout, as git diff -U0 has it; "": not known

	prose     string   // of the answer; inspect sets it
	sentences []string // likewise
}

// heuristics are the kinds of findings in their order. find gives the message, or "".
var heuristics = []struct {
	kind string
	find func(*answered) string
}{
	{"empty", findEmpty},
	{"refusal", findRefusal},
	{"error-text", findErrorText},
	{"reasoning", findReasoning},
	{"promised", findPromise},
	{"repeats-question", findRepeat},
	{"over-policy", findOver},
	{"verify-weakened", findWeakened},
}

// inspect gives what is to be said of an answer, a kind at most once. Its work grows
// with the length of what it looks at, and ends with ctx.
func inspect(ctx context.Context, a answered) (found []state.Issue) {
	a.answer, a.prompt = ends(strings.ReplaceAll(a.answer, "\r\n", "\n")), ends(a.prompt)
	a.prose = prose(a.answer)
	a.sentences = sentences(a.prose)
	for _, h := range heuristics {
		if ctx.Err() != nil {
			return nil
		}
		if message := h.find(&a); message != "" {
			found = append(found, state.Issue{Kind: h.kind, Message: message})
		}
	}
	return found
}

// ends gives the head and the tail of a text that is too long to be looked at whole.
func ends(text string) string {
	const most = 32 << 10
	if len(text) <= 2*most {
		return text
	}
	return strings.ToValidUTF8(text[:most]+"\n"+text[len(text)-most:], "")
}

// evidence quotes a piece of a text, on one line and not too long.
func evidence(text string) string {
	const most = 100
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most-1]) + "…"
	}
	return strconv.Quote(text)
}

// A pattern is compiled when it is first used: most processes, the gates of all runs
// among them, never use it.
type pattern = func() *regexp.Regexp

func caseless(expr string) pattern { return exactly("(?i)" + expr) }

func exactly(expr string) pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

var (
	inlineCode = exactly("`[^`\n]*`")
	listMark   = exactly(`^\s*(?:[-*+•]|\d+[.)])\s+`)
)

// prose gives a text without its code and its quotations, with plain apostrophes.
func prose(text string) string {
	var b strings.Builder
	fence := ""
	for line := range strings.Lines(text) {
		mark := strings.TrimLeft(line, " \t")
		switch {
		case fence != "":
			if strings.HasPrefix(mark, fence) {
				fence = ""
			}
		case strings.HasPrefix(mark, "```"), strings.HasPrefix(mark, "~~~"):
			fence = mark[:3]
		case !strings.HasPrefix(mark, ">"):
			b.WriteString(line)
		}
	}
	return strings.ReplaceAll(inlineCode().ReplaceAllString(b.String(), "`x`"), "’", "'")
}

var shortForm = caseless(`^\(?(?:e\.g|i\.e|etc|vs|cf|approx|resp|no|mr|mrs|dr|z\.b|d\.h|bzw|usw|ca|nr|p\.ex)\.$`)

// sentences takes a prose apart. The end of a line ends a sentence.
func sentences(text string) (list []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(listMark().ReplaceAllString(line, ""))
		line = strings.TrimSpace(strings.Trim(line, "#*_ "))
		begin, word, runes := 0, 0, []rune(line)
		for i, r := range runes {
			if unicode.IsSpace(r) {
				word = i + 1
			}
			last := i+1 == len(runes) || strings.ContainsRune("。！？", r)
			if !last && (!strings.ContainsRune(".!?", r) || !unicode.IsSpace(runes[i+1]) || isShort(runes[word:i+1])) {
				continue
			}
			if s := strings.Trim(string(runes[begin:i+1]), " *_"); strings.ContainsFunc(s, isWordRune) {
				list = append(list, s)
			}
			begin = i + 1
		}
	}
	return list
}

// isShort reports whether a dot belongs to the word before it.
func isShort(word []rune) bool { return len(word) < 10 && shortForm().MatchString(string(word)) }

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// What is asked for, and what was done.

var (
	// question is a prompt that an answer in words satisfies.
	question = caseless(`[?？]\s*$|^(?:how|why|what|which|who|when|where|is|are|can|could|should|does|do|suggest|propose|recommend|advise|plan|explain|describe|compare|check|review|investigate|analy[sz]e|audit|find|verify)\b`)
	// asksForError is a prompt whose right answer may be an error message.
	asksForError = caseless(`\b(?:what|which|show|print|paste|give|report|quote|return|reply|say|tell)\b[^.?!\n]*\b(?:errors?|outputs?|messages?|traces?|logs?|prints?|stderr)\b`)
	// asksForSame is a prompt whose answer rightly has much of it.
	asksForSame = caseless(`\b(?:translat|rewrit|rephras|paraphras|proofread|correct|edit|format|repeat|echo|quot|copy|summari[sz]|shorten|reply with|answer with|print|say|output|spell|convert|polish|sort|list|extract)|übersetz|korrigier|wiederhol|tradui|traduc|翻译|改写|重复|校对`)
	// asksForMuch is a prompt whose answer rightly is long: a list, code, a text.
	asksForMuch = caseless(`(?:^|[.!?:;,\n] *|\b(?:and|then|also|please|to|me|you) )(?:list|show|print|write|draft|report|explain|describe|document|review|compare|translate|generate|quote|give|summari[sz]e|outline|plan|propose|suggest|output|table)\b`)
)

func matchesAny(list []pattern, s string) bool {
	return slices.ContainsFunc(list, func(p pattern) bool { return p().MatchString(s) })
}

var (
	deeds = []pattern{ // their verb
		caseless(`\b(?:i|we)(?:'ve| have)? (?:(?:now|also|just|already|then|\pL+ly) )?(\pL+)`),
		caseless(`(?:^|[\n.!?:;])[^\pL\n.!?:;]*(\pL+)`), // a sentence that begins with it
	}
	deedForm = caseless(`^(?:\pL+ed|made|wrote|written|rewrote|built|split|cut|put|took|ran|done)$`)
	// Who has looked, or speaks of what is, has done nothing yet.
	noDeed = caseless(`^(?:need|indeed|based|looked|examined|inspected|investigated|reviewed|analy[sz]ed|identified|traced|located|searched|reproduced|tried|attempted|wanted|needed|explored|noticed|discovered|planned|considered|expected|failed|refused|declined|decided|denied|apologi[sz]ed|determined|learned|started|opened|asked|limited|required|related|supposed|proceed|succeed|feed|red|speed)$`)
	isDone = caseless(`\b(?:is|are|been) (?:now |all )*(?:fixed|done|in place|complete|completed|updated|implemented|added|removed|corrected|ready|rewritten|resolved|gone)\b|\btests? (?:now |all )*pass|\b(?:habe|wurden?|(?:ist|sind) (?:jetzt|nun)|behoben)\b|\bj'ai \pL+é|\best corrigé|\bhe (?:añadido|corregido|creado|actualizado)\b|已`)
)

// worked reports whether an attempt has done something, by its changes or its words.
func (a *answered) worked() bool {
	return strings.TrimSpace(a.diff) != "" || isDone().MatchString(a.prose) || slices.ContainsFunc(deeds, func(p pattern) bool {
		return slices.ContainsFunc(p().FindAllStringSubmatch(a.prose, -1), func(m []string) bool {
			return deedForm().MatchString(m[1]) && !noDeed().MatchString(m[1])
		})
	})
}

// empty

var nothing = caseless(`^[\[(<*_]*(?:no (?:output|content|answer|response|response requested|text)|empty(?: (?:answer|response|output|message))?)[\])>*_.]*$`)

func findEmpty(a *answered) string {
	text := strings.TrimSpace(a.answer)
	says := func(r rune) bool {
		return isWordRune(r) || r != '`' && unicode.IsSymbol(r) || strings.ContainsRune(`[]{}"`, r)
	}
	switch {
	case text == "":
		return "the answer is empty"
	case !strings.ContainsFunc(text, says):
		return "the answer says nothing: " + evidence(text)
	case nothing().MatchString(text) && !asksForError().MatchString(a.prompt):
		return "the answer says that it is none: " + evidence(text)
	}
	return ""
}

// refusal

var (
	apology = caseless(`^(?:(?:i'm|i am) (?:very |so |really )?(?:sorry|afraid)\b|sorry\b|my apologies\b|i apologi[sz]e\b|as an? (?:ai|(?:large )?language model)\b)`)
	// After an apology, what is not done is mostly refused; without one the words must say so.
	declines = caseless(`\bi(?:'m| am)? (?:can't|cannot|can not|won't|will not|not able to|unable to|must decline|not going to)\b`)
	refuses  = caseless(`^(?:unfortunately,? )?i(?:'m| am)? (?:can't|cannot|can not|won't|will not|not able to|unable to|not going to) (?:help|assist|comply|fulfill?|do (?:that|this|so)|engage|(?:provide|create|write|generate|share|complete|perform|answer|carry out|proceed with) (?:that|this|such|the requested|your request|instructions))\b|` +
		`^i (?:must|have to) decline|^i (?:decline|refuse) to\b|^i(?:'m| am) not comfortable\b|^i (?:don't|do not) feel comfortable\b|^(?:this|that|your) request (?:violates|goes against)|` +
		`\bkann ich (?:\pL+ ){0,2}nicht (?:weiter)?helfen|\bje ne peux pas (?:vous |t')?aider|\bno puedo ayudar|我(?:无法|不能)(?:帮助|协助)`)
	// Somebody who looked and found nothing has not refused.
	looked = caseless(`(?:can't|cannot|can not|able to) (?:find|reproduce|see|locate|tell|confirm|say|verify|determine|detect|help (?:but|noticing|feeling|thinking|wondering))\b`)
)

func findRefusal(a *answered) string {
	list := a.sentences
	for i, s := range list[:min(2, len(list))] {
		sorry := apology().MatchString(s) || i == 1 && apology().MatchString(list[0]) && utf8.RuneCountInString(list[0]) < 40
		if (sorry && declines().MatchString(s) || refuses().MatchString(s)) && !looked().MatchString(s) && !a.worked() {
			return "the agent refuses: " + evidence(s)
		}
	}
	return ""
}

// error-text

var (
	ofCLI      = caseless(`^(?:npm err|prompt is too long|credit balance is too low|invalid api key|not logged in|you(?:'ve| have) (?:hit|reached) your (?:usage )?limit) ?(?:[.!:·(]|$)`)
	errorLines = []pattern{
		ofCLI,
		caseless(`^(?:error|fatal|fatal error|runtime error|api error|panic): |^traceback \(most recent call last\)|^exception in thread |^\S+:.*(?:command not found|no such file or directory|permission denied)$|^\{\s*"(?:type"\s*:\s*"error|error"\s*:)`),
		caseless(`^(?:(?:http )?(?:4|5)\d\d[: ]+(?:bad request|unauthorized|forbidden|not found|too many requests|internal server error|bad gateway|service unavailable|gateway timeout)|internal server error|request timed out|connection (?:refused|reset|error)|rate limit (?:exceeded|reached)|execution error|segmentation fault) ?(?:[.!:·(]|$)`),
		exactly(`^(?:Uncaught )?(?:[\w.$]+\.)?[A-Z]\w*(?:Error|Exception)(?: \[\w+\])?: |^goroutine \d+ \[`),
	}
	traceLine = exactly(`^(?:\s+at |\s+File "|\s{2,}\S|\t|goroutine \d+|created by |exit status \d|Caused by|caused by|\s*\.\.\. \d+ more|[\w./*()\-]+\(.*\)$|npm ERR!|Node\.js v|\s*\^+\s*$|[\w.]+(?:Error|Exception)\b|[\w./\-]+:\d+)`)
	explains  = caseless(`\b(?:i|we|now|none|pass|passes|fixed|added|changed|should|because|was|were|happens|occurs|so that)\b`)
)

func findErrorText(a *answered) string {
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(a.answer), "\n"), func(l string) bool {
		l = strings.TrimSpace(l)
		return l == "" || strings.HasPrefix(l, "```")
	})
	if len(lines) == 0 || len(a.answer) > 16<<10 || asksForError().MatchString(a.prompt) {
		return ""
	}
	head := strings.TrimSpace(strings.ReplaceAll(lines[0], "’", "'"))
	if !matchesAny(errorLines, head) || explains().MatchString(inlineCode().ReplaceAllString(head, "")) || len(sentences(head)) > 1 && !ofCLI().MatchString(head) {
		return ""
	}
	other := 0
	for _, l := range lines[1:] {
		if !traceLine().MatchString(l) && !matchesAny(errorLines, l) {
			other++
		}
	}
	if other*5 > len(lines) {
		return ""
	}
	return "the answer is nothing but an error: " + evidence(head)
}

// reasoning

var (
	thinkTag  = caseless(`</?(?:think|thinking|thought|reasoning|scratchpad)>|<\|channel\|>`)
	thinkHead = caseless(`(?m)^[\s#*_>]*(?:thinking(?: process)?|thought process|chain of thought)[\s:*_]*$`)
	thinks    = caseless(`^(?:ok(?:ay)?,? |so,? |well,? |now,? )*(?:let me think\b|hmm+\b|i need to (?:figure out|think about)\b|wait,? (?:no|actually)\b)|^step \d+[:.)]+ (?:i will|i'll|i need|let me)\b`)
	begins    = caseless(`^(?:ok(?:ay)?,? |so,? )*(?:the user (?:wants|asks|asked|is asking)\b|first,? i(?:'ll| will| need to| should) (?:find|look|understand|check|read|figure|see)\b)`)
	asksWhy   = caseless(`step[- ]by[- ]step|\breason|\bthink|\bthought|\bexplain|walk (?:me|us) through|show your work|\bwhy\b|<think`)
	ofPeople  = caseless(`\b(?:users?|customers?|tickets?|issues?|feedback|reports?|mails?|emails?)\b`)
)

func findReasoning(a *answered) string {
	if asksWhy().MatchString(a.prompt) {
		return ""
	}
	shown := cmp.Or(thinkTag().FindString(a.prose), thinkHead().FindString(a.prose))
	list := a.sentences
	if shown == "" && len(list) > 0 && begins().MatchString(list[0]) && !ofPeople().MatchString(a.prompt) {
		shown = list[0]
	}
	if i := slices.IndexFunc(list, thinks().MatchString); shown == "" && i >= 0 {
		shown = list[i]
	}
	if shown == "" {
		return ""
	}
	return "the answer shows its reasoning: " + evidence(shown)
}

// promised

var (
	promises = caseless(`^(?:(?:ok(?:ay)?|great|perfect|now|next|then|first|so|finally|and)[,:]? )*(?:i'll|i will|i'm going to|i am going to|let me) (?:(?:now|next|first|then|also|just|quickly) )*(?:start|begin|proceed|continue|go ahead|implement|add|fix|update|create|write|run|check|look|take a look|read|examine|inspect|investigate|explore|search|review|refactor|make|apply|remove|rename|replace|change|test|mend|move|install|set up|use|handle|address)\b|` +
		`^ich werde (?:nun|jetzt|zuerst)\b|^(?:nun|jetzt|als nächstes) werde ich\b|^je vais (?:maintenant|ensuite|d'abord|commencer)\b|^voy a \pL+r\b|^(?:接下来|下一步)[，,]?我|^让我`)
	asksLeave = caseless(`^(?:so,? )?(?:(?:shall|should) (?:i|we)|(?:would|do) you (?:like|want|prefer) me to|(?:do you )?want me to|(?:may|can) i (?:proceed|go ahead|continue|start)|is it ok(?:ay)? (?:if i|for me to)|soll ich|dois-je|voulez-vous que je|¿quieres que)\b.*\?$|` +
		`^(?:please )?let me know if (?:i should|you(?:'d| would) like me to|you want me to)\b|(?:需要|要不要)我.*[吗？?]`)
	depends = caseless(`\b(?:if|once|when|whenever|unless|until|as soon as|after|wenn|falls|sobald)\b|如果`)
)

// findPromise looks at how an answer ends.
func findPromise(a *answered) string {
	list := a.sentences
	if len(list) == 0 || strings.HasSuffix(strings.TrimSpace(a.answer), "```") || question().MatchString(strings.TrimSpace(a.prompt)) || a.worked() {
		return ""
	}
	switch last := list[len(list)-1]; {
	case asksLeave().MatchString(last):
		return "the answer ends with a question in place of the work: " + evidence(last)
	case promises().MatchString(last) && !depends().MatchString(last):
		return "the answer ends with what it is yet to do: " + evidence(last)
	}
	return ""
}

// repeats-question

const (
	wholePrompt = 12 // words of a prompt that is repeated nearly whole
	partPrompt  = 20 // words in a row that come from a longer one
	mostWords   = 600
)

func findRepeat(a *answered) string {
	if asksForSame().MatchString(a.prompt) {
		return ""
	}
	var asked []string
	starts := map[int]bool{} // who reports on the work changes at least the verb that a sentence begins with
	for _, s := range sentences(prose(a.prompt)) {
		starts[len(asked)] = true
		asked = append(asked, words(s)...)
	}
	run := longestRun(asked[:min(len(asked), mostWords)], words(a.prose), starts)
	if n := size(run); n >= partPrompt || n >= wholePrompt && n*10 >= size(asked)*8 {
		return "the answer repeats the question: " + evidence(strings.Join(run, " "))
	}
	return ""
}

// wordForm takes a path or a name for one word.
var wordForm = exactly(`[\p{Han}\p{Hiragana}\p{Katakana}]|[\pL\pN_]+(?:[./\-]+[\pL\pN_]+)*`)

func words(text string) []string {
	return wordForm().FindAllString(strings.ToLower(text), mostWords)
}

// size counts words; of Han and kana two characters are one.
func size(list []string) int {
	n := 0
	for _, w := range list {
		n++
		if r, _ := utf8.DecodeRuneInString(w); !unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana) {
			n++
		}
	}
	return n / 2
}

// longestRun gives the longest run of words that begins in a at one of starts and
// stands in b too.
func longestRun(a, b []string, starts map[int]bool) (run []string) {
	row := make([]int, len(b)+1) // how far a and b go on alike, from here
	for i := len(a) - 1; i >= 0; i-- {
		for j := range b {
			if row[j] = 0; a[i] == b[j] {
				row[j] = row[j+1] + 1
			}
			if starts[i] && row[j] > len(run) {
				run = b[j : j+row[j]]
			}
		}
	}
	return run
}

// over-policy

var numbers = map[string]int{"one": 1, "a single": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "twelve": 12, "fifteen": 15, "twenty": 20, "fifty": 50, "a hundred": 100, "one hundred": 100}

var (
	amount = `(\d[\d,]*|` + strings.Join(slices.Sorted(maps.Keys(numbers)), "|") + `)\s+(?:short |brief |plain |bullet[- ]?)?(lines?|words?|characters?|chars?|sentences?|bullets?|points?|paragraphs?)\b`
	atMost = caseless(`\b(at most|no more than|not more than|maximum(?: of)?|up to|within|under|fewer than|less than|below|limit(?:ed)?(?: \w+){0,3} to|not exceed(?:ing)?|no longer than)\s+` + amount)
	orLess = caseless(`()\b` + amount + `\s*,? ?(?:at most|or fewer|or less|max(?:imum)?)`)
	clause = exactly(`[.;\n]+(?:\s|$)|\n`)
	// Not a limit of the whole answer: "each bullet at most ten words".
	ofParts   = caseless(`\b(?:each|every|per|summar\w+|titles?|subjects?|headings?|headers?|names?|intro\w*|commits?|messages?|columns?|wide|width|quot\w+|code|functions?|methods?|files?|snippets?|examples?|comments?|bullets?|lines? of|paragraphs? of|sentences? of|then|followed by)\b`)
	mayBeLong = caseless(`\b(?:begin|start|open)s? with an? (?:\w+ )?summary\b`)
)

// A textLimit is how much of a unit an answer may have.
type textLimit struct {
	most int
	unit string // lines, words, characters, sentences, bullets, paragraphs
}

// limitsOf reads the limits of a whole answer from an output policy, one of a clause.
func limitsOf(policy string) (list []textLimit) {
	for _, text := range clause().Split(policy, -1) {
		m := atMost().FindStringSubmatchIndex(text)
		if m == nil {
			m = orLess().FindStringSubmatchIndex(text)
		}
		if m == nil || ofParts().MatchString(text[:m[0]]) || ofParts().MatchString(text[m[1]:]) {
			continue
		}
		n, ok := numbers[strings.ToLower(text[m[4]:m[5]])]
		if !ok {
			n, _ = strconv.Atoi(strings.ReplaceAll(text[m[4]:m[5]], ",", "")) // 0 for what is beyond an int
		}
		if slices.Contains([]string{"fewer than", "less than", "under", "below"}, strings.ToLower(text[m[2]:m[3]])) {
			n--
		}
		if n > 0 {
			list = append(list, textLimit{n, unitName(text[m[6]:m[7]])})
		}
	}
	return list
}

func unitName(unit string) string {
	unit = strings.TrimSuffix(strings.ToLower(unit), "s") + "s"
	switch unit {
	case "chars":
		return "characters"
	case "points":
		return "bullets"
	}
	return unit
}

// count gives how much of a unit a text has. Code and quotations are no lines.
func (l textLimit) count(text string) (n int) {
	switch l.unit {
	case "words":
		return len(slices.DeleteFunc(strings.Fields(text), func(w string) bool { return !strings.ContainsFunc(w, isWordRune) }))
	case "characters":
		return utf8.RuneCountInString(strings.TrimSpace(text))
	case "sentences":
		return len(sentences(prose(text)))
	}
	between := true // paragraphs
	for line := range strings.Lines(prose(text)) {
		blank := strings.TrimSpace(line) == ""
		if !blank && (l.unit == "lines" || l.unit == "bullets" && listMark().MatchString(line) || l.unit == "paragraphs" && between) {
			n++
		}
		between = blank
	}
	return n
}

// slack is by how much a count that is a matter of opinion may be over.
func (l textLimit) slack() int {
	if l.unit == "words" || l.unit == "sentences" {
		return l.most / 10
	}
	return 0
}

func findOver(a *answered) string {
	if asksForMuch().MatchString(a.prompt) {
		return ""
	}
	for _, l := range limitsOf(a.policy) {
		n := l.count(a.answer)
		if n <= l.most+l.slack() || mayBeLong().MatchString(a.policy) && hasSummary(a.answer, l) {
			continue
		}
		return fmt.Sprintf("the answer has %d %s, and the output policy allows %d", n, l.unit, l.most)
	}
	return ""
}

var heading = exactly(`^(?:#|\*\*.*\*\*:?$)`)

// hasSummary reports whether a text begins with words that keep the limit, before the
// first blank line, list, table or code.
func hasSummary(text string, l textLimit) bool {
	var summary strings.Builder
	for line := range strings.Lines(text) {
		mark := strings.TrimSpace(line)
		switch {
		case summary.Len() == 0 && (mark == "" || heading().MatchString(mark)):
		case mark == "", listMark().MatchString(line), strings.HasPrefix(mark, "|"), strings.HasPrefix(mark, "```"):
			return summary.Len() > 0 && l.count(summary.String()) <= l.most
		default:
			summary.WriteString(line)
		}
	}
	return false
}
