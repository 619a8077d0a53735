package memory

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"stint/ledger/lazy"
)

// maxTerms is how many terms a search has: a line's terms are the bits of a word.
const maxTerms = 64

// maxQuery is how much of a prompt is looked at, in bytes: its beginning and end say what it is about.
const maxQuery = 64 << 10

// How much the kinds of terms count.
const (
	kindName = 1.6 // an identifier or path, whole
	kindWord = 1.0
	kindPart = 0.9 // of an identifier or path
	kindPair = 0.4 // of characters of a script without blanks: a word is two or more
)

// termsOf returns what a prompt is searched by, what counts most first.
func termsOf(text string) []Term {
	if len(text) > maxQuery {
		text = strings.ToValidUTF8(text[:maxQuery/2]+"\n"+text[len(text)-maxQuery/2:], " ")
	}
	q := &query{at: map[string]int{}}
	for _, token := range strings.FieldsFunc(text, isGap) {
		q.token(strings.Trim(token, wordMarks))
	}
	terms := q.terms
	if len(terms) > maxTerms { // its beginning and its end say what it is about
		terms = fromBothEnds(terms)
	}
	terms = byTurns(terms, maxTerms)
	slices.SortStableFunc(terms, func(a, b Term) int { return cmp.Compare(b.kind, a.kind) })
	return terms
}

// wordMarks may stand within an identifier or a path.
const wordMarks = "._-/:@#+'"

// isGap reports whether a character stands between tokens.
func isGap(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) && !strings.ContainsRune(wordMarks, r)
}

// A query collects terms.
type query struct {
	terms []Term
	at    map[string]int
}

// add adds a term; the second time it counts as the weightier of both.
func (q *query) add(text string, kind float64) {
	text = strings.ToLower(text)
	i, known := q.at[text]
	if !known {
		i = len(q.terms)
		q.at[text] = i
		q.terms = append(q.terms, Term{Text: text})
	}
	q.terms[i].kind = max(q.terms[i].kind, kind)
}

// fromBothEnds returns the first, the last, the second …
func fromBothEnds(list []Term) (turned []Term) {
	for len(list) > 1 {
		turned = append(turned, list[0], list[len(list)-1])
		list = list[1 : len(list)-1]
	}
	return append(turned, list...)
}

// groupOf says which kinds of terms take turns with others.
var groupOf = map[float64]int{kindName: 0, kindWord: 1, kindPart: 1, kindPair: 2}

// byTurns returns n terms: a name, a word and a pair by turns.
func byTurns(terms []Term, n int) (list []Term) {
	var groups [3][]Term
	for _, t := range terms {
		g := groupOf[t.kind]
		groups[g] = append(groups[g], t)
	}
	for n = min(n, len(terms)); len(list) < n; {
		for g, left := range groups {
			if len(left) > 0 && len(list) < n {
				list = append(list, left[0])
				groups[g] = left[1:]
			}
		}
	}
	return list
}

// inFile is the name of a file with a line and column behind it.
var inFile = lazy.Regexp(`(\.[a-z]{1,4})(:[0-9]+)+$`)

// token takes a piece of text without blanks apart.
func (q *query) token(token string) {
	token = inFile().ReplaceAllString(token, "$1")
	parts := splitToken(token)
	if len(parts) > 1 && len(token) <= 128 && isASCII(token) && !strings.Contains(token, "'") {
		q.add(token, kindName)
	}
	for _, p := range parts {
		switch {
		case isDense(p):
			q.pairs(p)
		case len(parts) > 1:
			q.word(p, kindPart)
		default:
			q.word(p, kindWord)
		}
	}
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// splitToken splits at marks, at the humps of camelCase, and where a script with blanks meets one without.
func splitToken(token string) (parts []string) {
	begin, runes := 0, []rune(token)
	cut := func(i int) {
		if i > begin {
			parts = append(parts, string(runes[begin:i]))
		}
		begin = i
	}
	for i, r := range runes {
		switch {
		case strings.ContainsRune(wordMarks, r):
			cut(i)
			begin = i + 1
		case i == begin:
		case dense(r) != dense(runes[i-1]),
			unicode.IsUpper(r) && unicode.IsLower(runes[i-1]),
			unicode.IsUpper(r) && i+1 < len(runes) && unicode.IsLower(runes[i+1]) && unicode.IsUpper(runes[i-1]):
			cut(i)
		}
	}
	cut(len(runes))
	return parts
}

// dense reports whether a character is of a script that is written without blanks,
// or, as in Korean, with endings that hardly leave a word as it is.
func dense(r rune) bool {
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) || r == 'ー'
}

func isDense(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return dense(r)
}

// pairs adds each pair of neighbours.
func (q *query) pairs(s string) {
	runes := []rune(s)
	if len(runes) == 1 && !unicode.Is(unicode.Hiragana, runes[0]) {
		q.add(s, kindPair)
	}
	for i := range len(runes) - 1 {
		q.add(string(runes[i:i+2]), kindPair)
	}
}

// word adds a word without its ending, if it says something.
func (q *query) word(s string, kind float64) {
	s = strings.ToLower(s)
	n := utf8.RuneCountInString(s)
	if stopWords()[s] || n < 2 || n > 64 {
		return
	}
	if n == 2 && isASCII(s) && kind == kindPart {
		return
	}
	q.add(stem(s), kind)
}

// stem takes the commonest endings of English off, and of a longer word of another
// language its last letters; what is left is the beginning of all its forms.
func stem(s string) string {
	if !isASCII(s) {
		n := utf8.RuneCountInString(s)
		return string([]rune(s)[:n-min(2, max(0, n-4))])
	}
	if strings.ContainsAny(s, "0123456789") || strings.HasSuffix(s, "is") || strings.HasSuffix(s, "us") || strings.HasSuffix(s, "ss") {
		return s // redis, status, access
	}
	for _, ending := range endings {
		if ending == "y" && strings.ContainsRune("aeiou", rune(s[len(s)-2])) {
			break // deploy, deploying
		}
		if base, ok := strings.CutSuffix(s, ending); ok && len(base) >= 4 {
			return undouble(base)
		}
	}
	return s
}

var endings = []string{"ations", "ation", "ions", "ion", "ments", "ment", "ness", "ings", "ing", "ies", "ied", "ers", "ed", "es", "er", "ly", "s", "e", "y"}

// undouble makes runn of running run.
func undouble(s string) string {
	if n := len(s); n >= 4 && s[n-1] == s[n-2] && !strings.ContainsRune("aeiouls", rune(s[n-1])) {
		return s[:n-1]
	}
	return s
}

//go:embed stopwords.txt
var stopWordList string

// stopWords say nothing about what a text is about: the commonest words of English,
// German, French and Spanish, and what prompts say to agents.
var stopWords = lazy.Value(func() map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(stopWordList) {
		m[w] = true
	}
	return m
})
