package coordinator

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"stint/state"
)

// The heuristics: what can be seen of an answer without asking anybody. They are
// meant to be right rather than complete: a finding that is none costs a person's
// time, and may queue a task.

// maxFindings is how many findings the heuristics leave on a task.
const maxFindings = 10

// An answered is what the heuristics look at.
type answered struct {
	prompt string
	answer string
	policy string // the output policy, as text
	verify string // the verify command; "": there is none
	diff   string // what the attempt has changed in its checkout, as git diff -U0 has it; "": not known
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

// inspect gives what is to be said of an answer, a kind at most once.
func inspect(a answered) (found []state.Issue) {
	a.answer, a.prompt = ends(strings.ReplaceAll(a.answer, "\r\n", "\n")), ends(a.prompt)
	for _, h := range heuristics {
		if message := h.find(&a); message != "" && len(found) < maxFindings {
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

// rx compiles a pattern that knows no upper and lower case.
func rx(pattern string) *regexp.Regexp { return regexp.MustCompile("(?i)" + pattern) }

var (
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	listMark   = regexp.MustCompile(`^\s*(?:[-*+•]|\d+[.)])\s+`)
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
	return strings.ReplaceAll(inlineCode.ReplaceAllString(b.String(), "`x`"), "’", "'")
}

var shortForm = rx(`(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|resp|no|mr|mrs|dr|z\.b|d\.h|bzw|usw|ca|nr|p\.ex)|^\d+)\.$`)

// sentences takes a prose apart. The end of a line ends a sentence.
func sentences(text string) (list []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(listMark.ReplaceAllString(line, ""))
		line = strings.TrimSpace(strings.Trim(line, "#*_ "))
		begin, runes := 0, []rune(line)
		for i, r := range runes {
			last := i+1 == len(runes)
			far := strings.ContainsRune("。！？", r)
			if last || far || strings.ContainsRune(".!?", r) && unicode.IsSpace(runes[i+1]) && !shortForm.MatchString(string(runes[begin:i+1])) {
				if s := strings.Trim(string(runes[begin:i+1]), " *_"); strings.ContainsFunc(s, isWordRune) {
					list = append(list, s)
				}
				begin = i + 1
			}
		}
	}
	return list
}

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// empty

var nothing = rx(`^[\[(<{*_]*(?:no (?:output|content|answer|response|response requested|text)|empty(?: (?:answer|response|output|message))?|blank|nothing to (?:say|report)|no response (?:needed|required))[\])>}*_.]*$`)

func findEmpty(a *answered) string {
	text := strings.TrimSpace(a.answer)
	bare := strings.ReplaceAll(text, "`", "")
	switch {
	case text == "":
		return "the answer is empty"
	case !strings.ContainsFunc(bare, func(r rune) bool { return isWordRune(r) || unicode.IsSymbol(r) }):
		return "the answer says nothing: " + evidence(text)
	case nothing.MatchString(text):
		return "the answer says that it is none: " + evidence(text)
	}
	return ""
}

// refusal

var (
	apology = rx(`^(?:(?:i'm|i am|we're|we are) (?:very |so |really |terribly )?(?:sorry|afraid)\b|sorry\b|my apologies\b|i apologi[sz]e\b|as an? (?:ai|artificial|(?:large )?language model)\b)`)
	// After an apology, what is not done is mostly refused; without one the words must say so.
	declines = rx(`\b(?:i|we) (?:can't|cannot|can not|won't|will not|am not able to|am unable to|must decline|have to decline|am not going to|do not have|don't have)\b|\bi'm (?:not able|unable|not going) to\b|\bnot able to (?:help|assist|comply)`)
	// Somebody who looked and found nothing has not refused.
	looked  = rx(`(?:can't|cannot|can not|unable to|not able to|wasn't able to) (?:find|reproduce|see|locate|tell|confirm|say|verify|determine|detect|spot|connect|open|reach)\b`)
	refuses = rx(`^(?:unfortunately,? )?(?:(?:i|we) (?:can't|cannot|can not|won't|will not|am not able to|am unable to|'m unable to)|i'm (?:unable|not able|not going) to) (?:help|assist|comply|fulfil|fulfill|do (?:that|this|so)\b|engage|participate|accommodate|discuss|(?:proceed|continue) with (?:this|that|your)|(?:provide|create|write|generate|produce|share|give|perform|support|complete|answer|carry out|process) (?:that|this|such|the requested|your request|instructions|assistance|help|any (?:help|information|assistance|content)))`)
	unable  = rx(`^(?:unfortunately,? )?(?:i|we) (?:must|have to|need to|respectfully) (?:respectfully )?decline|^i (?:decline|refuse) to\b|^i(?:'m| am) not comfortable\b|^i (?:don't|do not) feel comfortable\b|^(?:this|that|your) request (?:violates|goes against)|^(?:this|that) (?:is|would be) against my (?:guidelines|policy|policies)`)
	noHelp  = rx(`help (?:but|noticing|feeling|thinking|wondering)\b`)

	refusesElsewhere = []*regexp.Regexp{
		rx(`^(?:es )?tut mir (?:sehr )?leid\b.*\b(?:kann|darf|werde)\b.*\b(?:nicht|keine?n?)\b`),
		rx(`^(?:leider )?(?:(?:das|dabei|hierbei|damit) kann ich|kann ich|ich kann|ich darf)\b.*\bnicht (?:helfen|weiterhelfen|tun|machen|erfüllen|nachkommen|behilflich|beantworten|unterstützen)`),
		rx(`^(?:je suis )?(?:vraiment )?désolée?.*\bje ne (?:peux|puis|suis) pas`),
		rx(`^(?:malheureusement,? )?je ne (?:peux|puis) pas (?:vous |t'|te )?(?:aider|faire (?:cela|ça)|répondre à (?:cette|votre)|donner suite|accéder à votre)`),
		rx(`^lo (?:siento|lamento)\b.*\bno puedo`),
		rx(`^(?:lamentablemente,? )?no puedo (?:ayudar|cumplir|hacer eso|asistir|ayudarte|ayudarle)`),
		rx(`^(?:非常|很|十分)?(?:抱歉|对不起|不好意思).{0,12}(?:无法|不能|没办法|没有办法)`),
		rx(`^我(?:无法|不能)(?:帮助|协助|提供|满足|回答您|回答你|完成(?:这个|该|此))`),
	}
)

func findRefusal(a *answered) string {
	list := sentences(prose(a.answer))
	for i, s := range list[:min(2, len(list))] {
		sorry := apology.MatchString(s) || i == 1 && apology.MatchString(list[0]) && utf8.RuneCountInString(list[0]) < 40
		switch {
		case noHelp.MatchString(s), looked.MatchString(s):
		case sorry && declines.MatchString(s), refuses.MatchString(s), unable.MatchString(s), matchesAny(refusesElsewhere, s):
			return "the agent refuses: " + evidence(s)
		}
	}
	return ""
}

func matchesAny(list []*regexp.Regexp, s string) bool {
	return slices.ContainsFunc(list, func(p *regexp.Regexp) bool { return p.MatchString(s) })
}

// error-text

var (
	// asksForError is a prompt whose right answer may be an error message.
	asksForError = rx(`\b(?:what|which|show|print|paste|give|report|quote|repeat|return|run|output|reply|say|tell|translate|write)\b[^.?!\n]{0,80}\b(?:errors?|outputs?|messages?|traces?|tracebacks?|logs?|prints?|printed|says?|stderr)\b`)
	errorLines   = []*regexp.Regexp{
		rx(`^api error\b`), rx(`^traceback \(most recent call last\)`), regexp.MustCompile(`^panic: `), rx(`^exception in thread\b`),
		rx(`\bcommand not found$`), rx(`^\S+:.*: (?:no such file or directory|permission denied)$`), rx(`^npm err!`),
		rx(`^\{\s*"(?:type"\s*:\s*"error"|error"\s*:)`), rx(`^(?:http )?(?:400|401|403|404|429|5\d\d)[: ]+(?:bad request|unauthorized|forbidden|not found|too many requests|internal server error|bad gateway|service unavailable|gateway timeout)`),
		rx(`^segmentation fault\b`), rx(`^prompt is too long\b`), rx(`^credit balance is too low`), rx(`^request timed out\b`), rx(`^(?:error: )?connection (?:refused|reset|error)\b`),
		rx(`^(?:error: )?rate limit (?:exceeded|reached)`), rx(`^internal server error\b`), rx(`^stream (?:error|disconnected)\b`), rx(`^invalid api key\b`), rx(`^not logged in\b`), rx(`^you(?:'ve| have) (?:hit|reached) your (?:usage )?limit`),
		rx(`^(?:un(?:caught|handled)) (?:\(in promise\) )?\w*(?:error|exception|rejection)`), rx(`^execution error$`),
		regexp.MustCompile(`^(?:[\w.$]+\.)?[A-Z]\w*(?:Error|Exception)(?: \[\w+\])?: `), regexp.MustCompile(`^(?i:error|fatal|fatal error|runtime error): `), regexp.MustCompile(`^goroutine \d+ \[`),
	}
	traceLine = regexp.MustCompile(`^(?:\s+at |\s+File "|\s{2,}\S|\t|goroutine \d+|created by |exit status \d|Caused by|caused by|\s*\.\.\. \d+ more|[\w./*()\-]+\(.*\)$|npm ERR!|Node\.js v|\s*\^+\s*$|[\w.]+(?:Error|Exception)\b|[\w./\-]+:\d+)`)
	explains  = rx(`\b(?:i|we|fixed|added|changed|should|because|was|were|happens|occurs|so that)\b`)
)

func findErrorText(a *answered) string {
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(a.answer), "\n"), func(l string) bool {
		l = strings.TrimSpace(l)
		return l == "" || strings.HasPrefix(l, "```")
	})
	if len(lines) == 0 || len(a.answer) > 16<<10 || asksForError.MatchString(a.prompt) {
		return ""
	}
	head := strings.TrimSpace(strings.ReplaceAll(lines[0], "’", "'"))
	if !matchesAny(errorLines, head) || explains.MatchString(inlineCode.ReplaceAllString(head, "")) && !errorLines[0].MatchString(head) {
		return ""
	}
	other := 0
	for _, l := range lines[1:] {
		if !traceLine.MatchString(l) && !matchesAny(errorLines, l) {
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
	thinkTag  = rx(`</?(?:think|thinking|thought|thoughts|reasoning|scratchpad|inner_monologue|antthinking)>|<\|channel\|>\s*analysis|\[/?think(?:ing)?\]`)
	thinkHead = rx(`(?m)^[\s#*_>]*(?:thinking(?: process)?|chain of thought|(?:internal|my) (?:reasoning|thoughts|thinking)|thought process|scratchpad)[\s:*_]*$`)
	thinks    = rx(`^(?:ok(?:ay)?,? |alright,? |so,? |well,? |now,? )*(?:let me think\b|let's think\b|let me reason\b|let me work through\b|let me reconsider\b|let me break (?:this|it) down\b|hmm+\b|the user (?:wants|is asking|asked|asks|needs|said|has asked)\b|i need to (?:figure out|think about|first)\b|first,? i (?:need|have|should|will)(?: to)?\b|wait,? (?:no|actually|i|that|but|the user|let)\b|actually,? wait\b|hold on,)|^step \d+[:.)\-– ]+(?:i |i'll|i'm|let me|first,? i|understand the (?:request|question|task))`)
	asksWhy   = rx(`step[- ]by[- ]step|\breason|\bthink|\bthought|\bexplain|walk (?:me|us) through|show your work|\bwhy\b|<think`)
)

func findReasoning(a *answered) string {
	if asksWhy.MatchString(a.prompt) {
		return ""
	}
	text := prose(a.answer)
	if tag := thinkTag.FindString(text); tag != "" {
		return "the answer shows its reasoning: " + evidence(tag)
	}
	if head := thinkHead.FindString(text); head != "" {
		return "the answer shows its reasoning: " + evidence(head)
	}
	for _, s := range sentences(text) {
		if thinks.MatchString(s) {
			return "the answer shows its reasoning: " + evidence(s)
		}
	}
	return ""
}

// promised

var (
	promises = []*regexp.Regexp{
		rx(`^(?:(?:ok(?:ay)?|great|perfect|now|next|then|first|so|finally|and|after that|from here)[,:]? )*(?:i'll|i will|i'm going to|i am going to|we'll|we will) (?:(?:now|next|first) \w|(?:then |also |just |quickly )*(?:start|begin|go ahead|proceed|continue|implement|add|fix|update|create|write|run|check|look|read|examine|inspect|investigate|explore|search|review|refactor|make|apply|remove|rename|replace|test|verify|move|set up|work|use|open|analy[sz]e|do|try|build|prepare|draft|edit|mend|solve|resolve|handle|address|change|delete|install|generate|extend|convert|debug|finish|complete)\b)`),
		rx(`^(?:(?:ok(?:ay)?|great|perfect|now|next|then|first|so|finally|and)[,:]? )*let me (?:now |first |just |quickly |also |start by |begin by )*(?:check|look|take a look|examin|inspect|explor|read|run|search|find|fix|updat|creat|implement|add|writ|start|begin|try|verify|see|review|investigat|continue|proceed|mak|apply|test|open|analy[sz])`),
		rx(`^(?:ich werde|ich will|ich schaue|ich beginne|ich fange) (?:nun|jetzt|als nächstes|zuerst|mir jetzt|damit)\b`), rx(`^als nächstes (?:werde|\S+) ich\b`), rx(`^(?:nun|jetzt) werde ich\b`),
		rx(`^(?:maintenant,? |ensuite,? )?je vais (?:maintenant|ensuite|d'abord|commencer|créer|ajouter|corriger|vérifier|exécuter|lire)\b`),
		rx(`^(?:ahora|a continuación|luego),? (?:voy a|procederé|comenzaré)\b`), rx(`^voy a (?:empezar|crear|añadir|corregir|revisar|ejecutar|leer|implementar)`),
		rx(`^(?:接下来|现在|下一步|然后)[，,]?我(?:将|会|要|来|就)`), rx(`^我(?:现在|马上|接下来|稍后)(?:将|会|就|来|开始)`), rx(`^让我(?:先|来|现在)?(?:看|检查|查看|修改|运行|开始)`),
	}
	asksLeave = []*regexp.Regexp{
		rx(`^(?:so,? )?(?:shall|should) (?:i|we)\b.*\?$`), rx(`^(?:would|do) you (?:like|want|prefer) (?:me|us) to\b.*\?$`), rx(`^(?:do you )?want me to\b.*\?$`),
		rx(`^(?:may|can) i (?:proceed|go ahead|continue|start|begin|apply)\b.*\?$`), rx(`^is it ok(?:ay)? (?:if i|for me to)\b.*\?$`), rx(`^(?:please )?let me know if (?:i should|you(?:'d| would) like me to|you want me to)\b`),
		rx(`^soll ich\b.*\?$`), rx(`^(?:möchtest du|möchten sie|willst du|wollen sie),? dass ich\b`), rx(`^(?:voulez-vous|souhaitez-vous|veux-tu) que je\b`), rx(`^dois-je\b.*\?$`),
		rx(`^¿(?:quieres|quiere|desea|deseas) que\b`), rx(`(?:需要|要不要|是否需要|要)我.*[吗？?]`),
	}
	depends = rx(`\b(?:if|once|when|whenever|unless|until|as soon as|after) (?:you|i|we|the|that|this|it|there)\b|\bif needed\b|\b(?:wenn|falls|sobald) (?:du|sie)\b|\bsi (?:vous|tu)\b|如果`)
	didWork = rx(`\b(?:i|we)(?:'ve| have)? (?:now |also |just |already |successfully )?(?:added|fixed|updated|implemented|created|removed|changed|renamed|refactored|moved|replaced|wrote|written|deleted|converted|bumped|made|ran|run|corrected|checked)\b|(?:^|\n)\W*(?:added|fixed|updated|implemented|created|removed|changed|renamed|refactored|moved|replaced|wrote|done|deleted|converted|bumped|corrected)\b|\b(?:is|are|was|were|been) (?:now )?(?:fixed|done|in place|complete|completed|updated|implemented|added|removed|corrected)\b|\btests? (?:now |all )?pass\b|\b(?:habe|wurde|wurden|ist jetzt|sind jetzt)\b|\bj'ai \p{L}+é|\bhe (?:añadido|corregido|creado|actualizado)|已(?:经)?`)
	asks    = rx(`\?\s*$|？\s*$|^(?:how|why|what|which|who|when|where|is|are|can|could|should|does|do|suggest|propose|recommend|advise|plan|explain|describe|compare)\b`)
)

// findPromise looks at how an answer ends.
func findPromise(a *answered) string {
	if strings.HasSuffix(strings.TrimSpace(a.answer), "```") {
		return "" // it ends with what it promises
	}
	text := prose(a.answer)
	list := sentences(text)
	if len(list) == 0 {
		return ""
	}
	last := list[len(list)-1]
	switch {
	case matchesAny(asksLeave, last):
		if didWork.MatchString(text) || asks.MatchString(strings.TrimSpace(a.prompt)) {
			return "" // an offer
		}
		return "the answer ends with a question in place of the work: " + evidence(last)
	case !depends.MatchString(last) && matchesAny(promises, last) && !asks.MatchString(strings.TrimSpace(a.prompt)):
		return "the answer ends with what it is yet to do: " + evidence(last)
	}
	return ""
}

// repeats-question

// asksForText is a prompt whose answer rightly has much of it.
var asksForText = rx(`\b(?:translat|rewrit|rephras|paraphras|proofread|correct|edit|format|repeat|echo|quot|copy|summari[sz]|shorten|reply with|answer with|print|say|output|spell|convert|polish|sort|list|extract)|übersetz|korrigier|wiederhol|tradui|traduc|翻译|改写|重复|校对`)

const (
	wholePrompt = 12 // words of a prompt that is repeated nearly whole
	partPrompt  = 20 // words in a row that come from a longer one
	mostWords   = 600
)

func findRepeat(a *answered) string {
	if asksForText.MatchString(a.prompt) {
		return ""
	}
	asked, said := words(prose(a.prompt)), words(prose(a.answer))
	from, n := longestRun(asked[:min(len(asked), mostWords)], said[:min(len(said), mostWords)])
	if n >= partPrompt || n >= wholePrompt && n*10 >= len(asked)*8 {
		return "the answer repeats the question: " + evidence(strings.Join(said[from:from+n], " "))
	}
	return ""
}

var wordForm = regexp.MustCompile(`[\p{Han}\p{Hiragana}\p{Katakana}]|[\p{L}\p{N}_]+`)

func words(text string) []string { return wordForm.FindAllString(strings.ToLower(text), -1) }

// longestRun gives the longest run of words of b that stands in a too.
func longestRun(a, b []string) (from, n int) {
	row := make([]int, len(b)+1)
	for i := range a {
		for j := len(b); j > 0; j-- {
			if a[i] != b[j-1] {
				row[j] = 0
			} else if row[j] = row[j-1] + 1; row[j] > n {
				from, n = j-row[j], row[j]
			}
		}
	}
	return from, n
}

// over-policy

const numberForm = `(\d[\d,]*|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|fifty|a hundred|one hundred|a single)`

const unitForm = `(?:short |brief |concise |plain |full |bullet[- ]?)?(lines?|words?|characters?|chars?|sentences?|bullets?|points?|paragraphs?)\b`

var (
	atMost = rx(`\b(at most|no more than|not more than|maximum(?: of)?|max\.?|up to|within|under|fewer than|less than|below|limit(?:ed)?(?: \w+){0,3} to|not exceed(?:ing)?|no longer than)\s+` + numberForm + `\s+` + unitForm)
	orLess = rx(`\b(?:in )?` + numberForm + `\s+` + unitForm + `\s*(?:,? ?(?:at most|or fewer|or less|max(?:imum)?))`)
	// Not a limit of the whole answer: "each bullet at most ten words".
	ofParts   = rx(`\b(?:each|every|per|summary|titles?|subjects?|headings?|headers?|names?|intro\w*|commit|messages?|wrap|columns?|width|quot\w+|code|snippets?|examples?|comments?|bullets?|lines? (?:of|with|longer|should)|paragraphs? (?:of|with)|sentences? (?:of|with))\b[^.;\n]*$`)
	perPart   = rx(`^\s*(?:per\b|each\b|wide\b|long lines\b|in each\b|for each\b|of (?:code|context)\b)`)
	mayBeLong = rx(`\b(?:begin|start|open)s? with an? (?:\w+ )?summary\b`)
	numbers   = map[string]int{"one": 1, "a single": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "fifty": 50, "a hundred": 100, "one hundred": 100}
)

// A textLimit is how much of a unit an answer may have.
type textLimit struct {
	most int
	unit string // lines, words, characters, sentences, bullets, paragraphs
}

// limitsOf reads the limits of a whole answer from an output policy.
func limitsOf(policy string) (list []textLimit) {
	add := func(at []int, number, unit string, strict bool) {
		clause := policy[:at[0]]
		clause = clause[strings.LastIndexAny(clause, ".;\n")+1:]
		if ofParts.MatchString(clause) || perPart.MatchString(policy[at[1]:]) {
			return
		}
		n, ok := numbers[strings.ToLower(number)]
		if !ok {
			n, _ = strconv.Atoi(strings.ReplaceAll(number, ",", "")) // 0 for what is beyond an int
		}
		if strict {
			n--
		}
		if n > 0 {
			list = append(list, textLimit{n, unitName(unit)})
		}
	}
	for _, m := range atMost.FindAllStringSubmatchIndex(policy, -1) {
		how := strings.ToLower(policy[m[2]:m[3]])
		add(m[:2], policy[m[4]:m[5]], policy[m[6]:m[7]], slices.Contains([]string{"fewer than", "less than", "under", "below"}, how))
	}
	for _, m := range orLess.FindAllStringSubmatchIndex(policy, -1) {
		add(m[:2], policy[m[2]:m[3]], policy[m[4]:m[5]], false)
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

// count gives how much of a unit a text has.
func (l textLimit) count(text string) (n int) {
	switch l.unit {
	case "lines":
		for line := range strings.Lines(text) {
			if mark := strings.TrimSpace(line); mark != "" && !strings.HasPrefix(mark, "```") {
				n++
			}
		}
	case "words":
		return len(slices.DeleteFunc(strings.Fields(text), func(w string) bool { return !strings.ContainsFunc(w, isWordRune) }))
	case "characters":
		return utf8.RuneCountInString(strings.TrimSpace(text))
	case "sentences":
		return len(sentences(prose(text)))
	case "bullets":
		for line := range strings.Lines(prose(text)) {
			if listMark.MatchString(line) {
				n++
			}
		}
	case "paragraphs":
		for part := range strings.SplitSeq(prose(text), "\n\n") {
			if strings.TrimSpace(part) != "" {
				n++
			}
		}
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
	for _, l := range limitsOf(a.policy) {
		n := l.count(a.answer)
		if n <= l.most+l.slack() || mayBeLong.MatchString(a.policy) && hasSummary(a.answer, l) {
			continue
		}
		return fmt.Sprintf("the answer has %d %s, and the output policy allows %d", n, l.unit, l.most)
	}
	return ""
}

// hasSummary reports whether a text begins with a paragraph that keeps the limit, and
// is one: no list, no code, no heading alone.
func hasSummary(text string, l textLimit) bool {
	for part := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		part = strings.TrimSpace(part)
		if strings.HasPrefix(part, "#") || strings.HasPrefix(part, "**") && strings.HasSuffix(part, "**") {
			_, rest, more := strings.Cut(part, "\n")
			if !more {
				continue // a heading
			}
			part = rest
		}
		return len(part) < len(strings.TrimSpace(text)) && l.count(part) <= l.most && !listMark.MatchString(part) && !strings.HasPrefix(part, "```") && !strings.HasPrefix(part, "|")
	}
	return false
}
