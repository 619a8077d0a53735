package memory

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// The corpus of the retrieval test: the notes of an invented shop, as people and agents write them, and
// prompts to which one line of them is the answer. All of it is made here from a seed. A note and the prompt
// for it are written apart, so they share some words, some word forms and some names, and no more.

// A question is a prompt with the place of its answer.
type question struct {
	stratum string // such as "prose en": kind of prompt and language of the notes
	prompt  string
	path    string
	line    int
}

// A corpus is a workspace's notes and the questions to them.
type corpus struct {
	files     map[string]string
	questions []question
}

// Prompts of several sentences about the business and about code; short ones, of a few
// words, an identifier or a message; and some with a log before or behind them.
var strata = []string{"prose en", "prose zh", "code en", "code zh", "short en", "short zh", "logs en", "logs zh"}

const questionsEach = 50 // of a stratum; of the last four, half are about code

// An aspect is something that notes say of a part of the shop, or of its code. In the texts about a part, {C}
// is the part, {P} a person, {T} a time, {N} a number, {H} a host; in a prompt {Q} is the part, as another
// person calls it. In those about code, {I} is an identifier, {F} a file, {K} a command, {E} an error
// message, {S} a setting; in a prompt {J} is the identifier as another one writes it, {G} the end of the
// file's path, {L} a line of a log with the error. All aspects are in the notes; those that are held out are
// asked about in another run than the others, and no weight was ever chosen by them.
type aspect struct{ Notes, Prompts, Short []string }

// A part has the name that the notes use, and those that prompts use.
type part struct {
	Name    string
	Prompts []string
}

// vocabulary is what a language's notes and prompts are made of: testdata/corpus.json.
type vocabulary struct {
	Parts                 []part
	Prose, HeldOutProse   []aspect
	Noise, Filler, People []string
	Code, HeldOutCode     []aspect
}

// languages reads the vocabularies, by language.
func languages() map[string]vocabulary {
	var all map[string]vocabulary
	text, err := os.ReadFile(filepath.Join("testdata", "corpus.json"))
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		panic(err)
	}
	return all
}

var (
	codeVerbs = strings.Fields("parse load merge flush encode rotate claim verify split resolve drain publish")
	codeNouns = strings.Fields("token ledger batch order cursor header bundle ticket shard digest lease quota invoice route frame")
	codeTails = strings.Fields("store pool queue cache writer table worker index")
	logged    = []string{"request served", "cache hit", "backup finished", "queue drained", "connection reset by peer, retrying", "threshold not reached", "index refreshed", "password accepted", "nightly batch scheduled", "rows migrated", "certificate loaded", "mail sent"}
)

// A writer makes a corpus.
type writer struct {
	*rand.Rand
	words   map[string]vocabulary
	lines   map[string][]string // by file
	heldOut bool
	out     corpus
}

// newCorpus makes notes, and questions either about the aspects that are held out or about the others.
func newCorpus(seed uint64, heldOut bool) corpus {
	w := &writer{Rand: rand.New(rand.NewPCG(seed, 5)), words: languages(), lines: map[string][]string{}, heldOut: heldOut}
	w.out.files = map[string]string{}
	w.prose("en")
	w.prose("zh")
	w.code("en")
	w.code("zh")
	for name, lines := range w.lines {
		w.out.files[name] = strings.Join(lines, "\n") + "\n"
	}
	return w.out
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// fill puts values into a text.
func (w *writer) fill(text string, names []string, more ...string) string {
	pairs := append(more,
		"{P}", pick(w.Rand, names), "{T}", fmt.Sprintf("%02d:%02d", w.IntN(24), 5*w.IntN(12)),
		"{N}", fmt.Sprint(pick(w.Rand, []int{2019, 2021, 2023, 14, 30, 45, 60, 90, 250})), "{H}", fmt.Sprintf("host-%d.example", w.IntN(40)))
	return strings.NewReplacer(pairs...).Replace(text)
}

// note adds a line and returns where it stands.
func (w *writer) note(file, text string) int {
	w.lines[file] = append(w.lines[file], text)
	return len(w.lines[file])
}

// bullet returns a text as people write it: with a mark, a date, a full stop, or not.
func (w *writer) bullet(text string) string {
	if w.IntN(2) == 0 {
		text = title(text)
	}
	switch w.IntN(4) {
	case 0:
		return "- " + text
	case 1:
		return fmt.Sprintf("- 202%d-%02d-%02d %s", 3+w.IntN(4), 1+w.IntN(11), 1+w.IntN(28), text)
	case 2:
		return "* " + text + "."
	}
	return text + "."
}

// prompt puts noise around what is asked.
func (w *writer) prompt(ask string, noise []string, parts []part) string {
	list := []string{ask}
	for range 2 + w.IntN(3) {
		other := pick(w.Rand, pick(w.Rand, parts).Prompts)
		list = append(list, strings.ReplaceAll(pick(w.Rand, noise), "{O}", other))
	}
	w.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return strings.Join(list, " ")
}

// prose writes a file for every few parts: a section for each with all that is to be
// known of it. One of four lines leaves the part to its heading.
func (w *writer) prose(lang string) {
	v := w.words[lang]
	var long, short, logs []question
	aspects := slices.Concat(v.Prose, v.HeldOutProse)
	pronoun := map[string]string{"en": "this", "zh": "它"}[lang]
	for i, p := range v.Parts {
		file := fmt.Sprintf("memory/%s-%d.md", lang, i/4)
		w.note(file, "")
		w.note(file, "## "+p.Name)
		for _, k := range w.Perm(len(aspects)) {
			a, called := aspects[k], p.Name
			for range w.IntN(3) {
				w.note(file, w.bullet(w.fill(pick(w.Rand, v.Filler), v.People, "{C}", pick(w.Rand, v.Parts).Name)))
			}
			if w.IntN(4) == 0 {
				called = pronoun
			}
			line := w.note(file, w.bullet(w.fill(pick(w.Rand, a.Notes), v.People, "{C}", called)))
			if w.heldOut != (k >= len(v.Prose)) {
				continue
			}
			ask := func(texts []string) string {
				return w.fill(pick(w.Rand, texts), v.People, "{C}", p.Name, "{Q}", pick(w.Rand, p.Prompts))
			}
			long = append(long, question{"prose " + lang, w.prompt(ask(a.Prompts), v.Noise, v.Parts), file, line})
			short = append(short, question{"short " + lang, ask(a.Short), file, line})
			logs = append(logs, question{"logs " + lang, w.withLog(w.prompt(ask(a.Prompts), v.Noise, v.Parts), ""), file, line})
		}
	}
	w.choose(long, questionsEach)
	w.choose(short, questionsEach/2)
	w.choose(logs, questionsEach/2)
}

// choose takes some of the questions.
func (w *writer) choose(list []question, n int) {
	w.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	w.out.questions = append(w.out.questions, list[:n]...)
}

// withLog puts a log of eighty lines before or behind a prompt. One line of it is that
// of the failure, if there is one.
func (w *writer) withLog(prompt, failure string) string {
	var list []string
	for range 80 {
		service := strings.ReplaceAll(strings.TrimPrefix(pick(w.Rand, w.words["en"].Parts).Name, "the "), " ", "-")
		at := fmt.Sprintf("2026-11-22T03:%02d:%02d.%03dZ", w.IntN(60), w.IntN(60), w.IntN(1000))
		switch w.IntN(4) {
		case 0:
			list = append(list, fmt.Sprintf("\t/src/internal/%s/%s_%s.go:%d +0x%x", pick(w.Rand, codeNouns), pick(w.Rand, codeVerbs), pick(w.Rand, codeTails), w.IntN(900), w.IntN(4096)))
		default:
			list = append(list, fmt.Sprintf("%s INFO 10.0.%d.%d:%d [worker-%d] %s: %s id=%08x", at, w.IntN(9), w.IntN(255), 1024+w.IntN(9000), w.IntN(8), service, pick(w.Rand, logged), w.Uint32()))
		}
	}
	if failure != "" {
		list[20+w.IntN(40)] = failure
	}
	if text := strings.Join(list, "\n"); w.IntN(2) == 0 {
		return prompt + "\n\n" + text + "\n"
	} else {
		return text + "\n\n" + prompt
	}
}

// code writes lines about names that are alike: each verb with each noun.
func (w *writer) code(lang string) {
	v, people := w.words[lang], w.words["en"].People
	var long, short, logs []question
	aspects := slices.Concat(v.Code, v.HeldOutCode)
	for i, verb := range codeVerbs {
		file := fmt.Sprintf("memory/code-%s-%d.md", lang, i/3)
		if i == 0 {
			file = "MEMORY.md"
		}
		for _, noun := range codeNouns {
			tail := pick(w.Rand, codeTails)
			path := fmt.Sprintf("internal/%s/%s_%s.go", noun, verb, tail)
			failure := pick(w.Rand, []string{"%s %s: no %s", "cannot %s %s: %s is closed", "%s: bad %s in %s"})
			failure = fmt.Sprintf(failure, verb, noun, tail)
			values := func(identifier, path, failure string) []string {
				return []string{
					"{I}", identifier, "{J}", identifier, "{F}", path, "{G}", path, "{E}", failure, "{L}", failure,
					"{K}", "make " + verb + "-" + noun, "{S}", strings.ToUpper(noun + "_" + tail + "_" + verb),
				}
			}
			written := verb + title(noun) + title(tail)
			k := w.IntN(len(aspects))
			a := aspects[k]
			line := w.note(file, w.bullet(w.fill(pick(w.Rand, a.Notes), people, values(written, path, failure)...)))
			if w.IntN(3) == 0 {
				w.note(file, w.bullet(w.fill(pick(w.Rand, v.Filler), people, "{C}", "`"+noun+title(tail)+"`")))
			}
			if w.heldOut != (k >= len(v.Code)) {
				continue
			}
			called := pick(w.Rand, []string{written, title(written), verb + "_" + noun + "_" + tail, verb + " " + noun + " " + tail})
			where := pick(w.Rand, []string{path, filepath.Base(path)})
			report := fmt.Sprintf("E1122 03:12:45 main.go:%d] %s (attempt %d)", 10+w.IntN(500), failure, 1+w.IntN(5))
			ask := func(texts []string, failure string) string {
				return w.fill(pick(w.Rand, texts), people, values(called, where, failure)...)
			}
			long = append(long, question{"code " + lang, w.prompt(ask(a.Prompts, report), v.Noise, v.Parts), file, line})
			short = append(short, question{"short " + lang, ask(a.Short, failure), file, line})
			logs = append(logs, question{"logs " + lang, w.withLog(ask(a.Prompts, "main.go"), report), file, line})
		}
	}
	w.choose(long, questionsEach)
	w.choose(short, questionsEach/2)
	w.choose(logs, questionsEach/2)
}

func title(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[size:]
}

// write makes a workspace of the corpus.
func (c *corpus) write(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "memory"), 0o755))
	for name, text := range c.files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}
