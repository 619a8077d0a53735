package coordinator

import (
	"path"
	"slices"
	"strings"
)

// What a prompt lets an attempt do without. Who asks for tests to go is not told that
// they are gone. Words are looked at where they tell somebody to do something: a test of
// a merge sort is not to be merged, and "do not skip tests" permits nothing.

const (
	removing = `remove|delete|drop|skip|disable|exclude|retire|prune|get rid of|throw away`
	changing = `ignore|merge|combine|consolidate|unify|rewrite|simplify|refactor|replace|rename|move|split|port|migrate|convert|turn|mark|reduce|trim|clean up|tidy up`
	gerunds  = `removing|deleting|dropping|skipping|disabling|excluding|merging|combining|consolidating|rewriting|simplifying|replacing`
	done     = `removed|deleted|dropped|skipped|disabled|excluded|ignored|retired|merged|combined|consolidated|rewritten|simplified|replaced`
)

var (
	// asks has 1 where a clause begins with the verb, and 2 where the verb removes.
	asks = caseless(`(?:(?:(^|[,:()\]]\s*| [–—-] |\b(?:and|or|then|also|please) )|\b(?:to|can|may|should|must|could|will|you|we|let's) )` +
		`(?:just |now |first |also |please |\pL+ly )?(?:(` + removing + `)|` + changing + `)|\b(?:by|consider|start|try) (?:` + gerunds + `))\b` +
		`(?: (?:all|any|some|most|many|both|half|one|two) of)?`)
	asksOtherwise = caseless(`\bmake (?:\w+ ){0,4}tests? (?:(?:in|of|for) (?:\S+ ){1,3}?)?table[- ]driven\b|\buse table[- ]driven tests\b|` +
		`\b(?:tests?|test cases|specs?|suites?)(?: (?:of|for|in|from|on|with|under)(?: [^ ,]+){1,4}?)? (?:can|may|should|must|could|to) (?:\w+ )?(?:be (?:\w+ )?(?:` + done + `)\b|go(?: away)?(?:$|[,.!]))`)
	asksElsewhere = caseless(`\b(?:entfernen?|löschen?|supprime[rz]?|elimin(?:a|e|ar|en))\b|删除|删掉|移除`)

	forbids = caseless(`\b(?:not|never|no|none|nobody|nothing|nor|neither|cannot|(?:do|does|is|are|must|should|may|wo|would|need|ca)n't|dont|without|avoid to|instead of|rather than|forbid\w*|prohibit\w*|tempt\w*|` +
		`nicht|kein\w*|ohne|nie|niemals|ne|pas|sans|aucune?|sin eliminar|nunca|ninguna?)\b|不|别|勿|禁止`)
	// isFact is a negation that forbids nothing.
	isFact = caseless(`\b(?:no longer|nicht mehr)\b|不再|\b(?:that|which) (?:is|are|was|were|has|have)(?: not|n't)\b|\b(?:is|are)(?: not|n't) (?:\w+ )?(?:needed|used|necessary|useful|relevant)\b`)

	// What a verb is about ends before the next phrase, but not before another of its kind.
	objectEnd = caseless(`[,;:(]| [–—-] |\b(?:and|or|in|from|of|for|to|into|by|with|on|at|under|below|before|after|out|that|which|whose|where|when|while|if|unless|until|so|as|because|since|than|via|marked|tagged|named|called|needing|requiring|using|covering|inside|within|between|among|across|during|through|against|over|around|except|excluding|besides|but|like|keeping)\b`)
	another   = caseless(`(?:,|,? and|,? or) ((?:its|their|the|all|any|every|our|my|both|these|those)\b|\S*[./]\w)`)
	aTest     = caseless(`\b(?:tests?|specs?|suites?|pruebas?|testfälle)\b|测试|用例`)
	theTests  = caseless(`(?:\b(?:tests?|specs?)/?(?: (?:cases?|files?|suites?|functions?|methods?|code|director(?:y|ies)|folders?|packages?|class(?:es)?))?|\bsuites?|\b(?-i:Test[A-Z_]\w*)|\btest_\w+(?:\.py)?|_test\.\w+|\.(?:test|spec)\.\w+)` +
		`\s*(?:$|[.!?]|(?:too|again|altogether|entirely|completely)\b)`)
	testItself = caseless(`^ (?:it|them|those)(?:\s*$|[,.!?]| (?:if|when|too|altogether|entirely)\b)`)

	codeSpan  = exactly("`([^`\n]+)`")
	wrapped   = exactly(`\r?\n[ \t]*(\p{Ll})`)
	clauseEnd = caseless(`[;；]|\bbut\b`)
	nameWord  = exactly(`\p{Lu}?[\p{Ll}\d]{3,}`)
	anyName   = caseless(`^(?:the|all|any|its|our|your|their|this|that|these|those|every|some|both|old|new|unused|not|files?|code|functions?|methods?)$`)
)

// permits gives what a prompt lets an attempt do without: tests, whichever they are, or
// those that are named after certain things.
func permits(prompt string) (tests bool, things []string) {
	const most = 100 // each is compared with each test that is gone
	for _, clause := range clauses(prompt) {
		all, some := clausePermits(clause)
		if all {
			return true, nil
		}
		things = append(things, some[:min(len(some), most-len(things))]...)
	}
	return false, things
}

func clausePermits(clause string) (tests bool, things []string) {
	const mostObject = 200
	no, test := firstIn(clause, forbids), firstIn(clause, aTest)
	if m := asksOtherwise().FindStringIndex(clause); m != nil && m[1] <= no {
		return true, nil
	}
	if no == len(clause) && test < no && asksElsewhere().MatchString(clause) {
		return true, nil
	}
	for _, m := range asks().FindAllStringSubmatchIndex(clause, -1) {
		if m[1] > no {
			break
		}
		object := clause[m[1]:min(m[1]+mostObject, no)]
		removes, itself := m[4] >= 0, testItself().MatchString(object)
		object = objectEnd().Split(another().ReplaceAllString(object, " $1"), 2)[0]
		switch {
		case theTests().MatchString(object) && (removes || no == len(clause)), removes && itself && test < m[0]:
			return true, nil
		case removes && m[2] >= 0:
			for _, word := range strings.Fields(object) {
				things = append(things, nameWords(path.Base(word))...)
			}
		}
	}
	return false, things
}

// firstIn gives where a pattern is in a text first; its length if it is not.
func firstIn(text string, p pattern) int {
	if m := p().FindStringIndex(text); m != nil {
		return m[0]
	}
	return len(text)
}

// clauses takes a prompt apart, without its code and quotations. The items of a list
// have the line above the list before them: "Do not:" is said of each.
func clauses(text string) (list []string) {
	const mostHead = 100
	head := ""
	for line := range strings.Lines(wrapped().ReplaceAllString(prose(codeSpan().ReplaceAllString(text, "$1")), " $1")) {
		bare, item := strings.Trim(line, "#*_ \t\r\n"), listMark().MatchString(line)
		if bare == "" {
			continue
		}
		if !item {
			head = ""
		}
		for _, s := range sentences(line) {
			for _, clause := range clauseEnd().Split(isFact().ReplaceAllString(s, " that "), -1) {
				list = append(list, head+strings.TrimSpace(clause))
			}
		}
		if !item && len(bare) <= mostHead && (strings.HasPrefix(line, "#") || strings.HasSuffix(bare, ":")) {
			head = strings.TrimSuffix(bare, ":") + ": "
		}
	}
	return list
}

// nameWords gives the words of a name, or of a file's, that tell something.
func nameWords(name string) (words []string) {
	for _, word := range nameWord().FindAllString(codeName().ReplaceAllString(name, ""), -1) {
		if word = strings.ToLower(word); !aTest().MatchString(word) && !anyName().MatchString(word) {
			words = append(words, word)
		}
	}
	return words
}

// isNamed reports whether a test, or its file, is named after one of things.
func isNamed(test string, things []string) bool {
	return slices.ContainsFunc(nameWords(test), func(word string) bool {
		return slices.ContainsFunc(things, func(thing string) bool {
			return strings.HasPrefix(word, thing) || strings.HasPrefix(thing, word)
		})
	})
}
