package coordinator

import (
	"strings"
	"testing"

	"stint/prompt"
)

// goodAnswers are answers that nothing is wrong with, as agents give them: by what
// they were asked.
var goodAnswers = map[string][]string{
	fixIt: {
		"Fixed the flaky login test:\n- the clock is injected\n- the retry is gone\n- a\n- b\n- c\n- d\n- e\n- f",
		"Connection error handling moved into client.go; all tests pass.",
		"Not logged in users now get /login.",
		"Rate limit exceeded now answers 429 with Retry-After.",
		"Invalid API key now gives 401 instead of 500.",
		"Internal server error responses now carry a request id.",
		"404: not found page now exists.",
		"Error: none, all 41 tests pass.",
		"API error handling now lives in problem.go because I moved it.",
		"Fixed the redirect. The user needs to log in again after the migration.",
		"First, I have moved the parser into its own file; then both callers were switched.",
		"I'm sorry for the broken build: we don't have cgo there, so I moved the import behind a build tag.",
		"My apologies for the earlier mistake. I don't have write access to ../shared, so the helper is in internal/util now.",
		"Tut mir leid, der Fehler kam von mir: die Funktion kann jetzt leere Eingaben lesen und stürzt nicht mehr ab.",
		"抱歉，之前的修改不能编译，现已修复。",
		"Désolé pour l'erreur, je ne suis pas passé par le cache cette fois ; tout est corrigé.",
		"Fixed the middleware. We'll look up the token once per request instead of three times.",
		"Fixed the middleware. Now we will check the expiry before using it.",
		"I extracted the lexer into lex.go and switched both callers. Should I also delete the old one?",
		"I've added the helper. Now I'll update the callers.", // it says what it did; the verify command sees the rest
		"`next()` skipped the last rune when the input had no newline. It now reads to the end.",
		"Root cause: `parse` compared bytes, the test has an é. It compares runes now; `go test ./...` passes.",
		"The test was right and the parser wrong: an unterminated string was taken as empty. parser.go:88 returns ErrUnterminated now.",
		"The test passes on main and fails under -race: two goroutines wrote `last`. A mutex guards it now.",
		"No change was needed: the test fails only without TZ, and CI sets it. Set TZ=UTC locally.",
		"**Summary:** the off-by-one in `next` is gone.\n\n| file | change |\n|---|---|\n| lex.go | bound |\n| lex_test.go | case |\n| a.go | - |\n| b.go | - |\n| c.go | - |",
		"Sorry about the churn in the first commit; the final diff touches parser.go alone.",
		"Done. I can't run the Windows build here, so that part is untested.",
		"Updated the golden file. The old one had a trailing blank, which `gofmt` had removed from the source.",
		"The parser rejects `0x` again.\n\nHow to check: `go test -run Parse ./...`.",
		"Wrote a reproducer first (TestParseEmpty), then fixed `skipSpace`.",
		"Behoben: `next` las ein Zeichen zu wenig. Alle Tests laufen durch.",
		"Corrigé : la boucle s'arrêtait une rune trop tôt. Tous les tests passent.",
		"Corregido. El analizador ya no pierde el último carácter.",
		"已修复：解析器现在会读取最后一个字符，所有测试均通过。",
		"The failing assertion compared pointers. Compare with cmp.Diff, as the other tests do; done in 3 places.",
	},
	"Show me a shell script that rotates the logs.": {"```sh\n" + strings.Repeat("mv a b\n", 20) + "```", strings.Repeat("mv a b\n", 20)},
	"List every exported function of state.":        {strings.Repeat("- Ready\n", 20)},
	"Write the release notes.":                      {strings.Repeat("We made it faster.\n", 20)},
	"请修复登录页面的重定向问题。":                                {"已修复登录页面的重定向问题。"},
	"Delete internal/api/v1/users.go, internal/api/v1/orders.go and internal/api/v1/items.go.": {
		"Deleted internal/api/v1/users.go, internal/api/v1/orders.go and internal/api/v1/items.go.",
	},
	"Check the logs, report anything unusual.":    {"Nothing to report.", "Nothing unusual: 3 restarts, all planned."},
	"Run the linter and show its output.":         {"(no output)", "lex.go:3: error: x declared and not used"},
	"List the TODOs as a JSON array.":             {"[]", "{}"},
	"What does the config parser give for \"\"?":  {`""`, "An empty Config and no error."},
	"Rename the flag -n to --dry-run everywhere.": {"Renamed in 7 files; `-n` still works and warns.", "Done in cmd/, docs/ and the completion scripts."},
	"Add a flag --dry-run to the import command that prints what would be imported without writing to the database.": {
		"Added a flag --dry-run to the import command that prints what would be imported without writing to the database.",
	},
	"Summarize ticket 4112.":                                 {"The user wants a dark mode for the report page, and offers to test it.", "The user asked for a refund; support has promised one until Friday."},
	"Why is the nightly build red?":                          {"The runner's disk is full since Tuesday. I can't free it from here; `docker system prune` on ci-3 would. Shall I?"},
	"Is it safe to drop the index on orders.created_at?":     {"No. The nightly export scans by it. Let me know if you want me to measure without it."},
	"Move the metrics endpoint to port 9100.":                {"The endpoint is on 9100, and the dashboards point there. Once the old scraper is off, I'll remove the redirect."},
	"Translate the greeting of README.md into French.":       {"Bonjour ! Je ne peux pas imaginer mieux que ce module."},
	"Find out why checkout is slow.":                         {"It waits for the tax service, 1.9 s of 2.1 s. Next, I would cache its answer per cart."},
	"Upgrade to go 1.26.":                                    {"go.mod and CI are on 1.26. Two vet findings came with it and are mended: a copied lock in pool.go, an unused result in main.go."},
	"Make the error of a missing key friendlier.":            {"It reads now: \"Error: no API key. Set SHOP_KEY or run shop login.\"", "Error texts for missing, expired and malformed keys are in errors.go."},
	"Add retries to the uploader.":                           {"The uploader retries three times with backoff. It will wait at most 7 s in all.", "Three tries, 1-2-4 s apart, only for 5xx and resets. The user sees one line for each."},
	"Split the billing package.":                             {"billing is now invoice and ledger.\nThe import path of Rate changed; callers are adapted.\nI'd leave tax in place until the new rules are known."},
	"Bring the docs of the API up to date with the handlers": {"Step 1 of the guide had the old host, step 4 the old header; both are current. Everything else agreed with the handlers."},
}

func TestGoodAnswersOfAllKinds(t *testing.T) {
	for asked, list := range goodAnswers {
		for _, text := range list {
			if kinds := kindsOf(answered{prompt: asked, answer: text, policy: prompt.DefaultPolicy}); len(kinds) > 0 {
				t.Errorf("%v in the answer to %q:\n%s", kinds, headOf(asked), text)
			}
		}
	}
}

func TestLimitsOfParts(t *testing.T) {
	for _, text := range []string{
		"Summarize in at most two sentences, then list the changed files.", "Explain within 3 sentences what changed, then show the diff.",
		"Keep functions under 40 lines.", "At most two lines per file.",
	} {
		if limits := limitsOf(text); len(limits) > 0 {
			t.Errorf("%q limits the whole answer: %v", text, limits)
		}
	}
}

// Whoever has done something may ask and promise on; where nothing was done, the same
// words are a finding.
func TestWorkIsNoRefusal(t *testing.T) {
	for _, text := range []string{"I'm sorry, but I can't do that.", "I will now fix the test.", "Shall I change the parser?"} {
		with := answered{prompt: fixIt, answer: text, verify: "make", diff: change("parser.go", "-x\n+y")}
		without := with
		without.diff = ""
		if len(kindsOf(with)) != 0 || len(kindsOf(without)) != 1 {
			t.Errorf("%q: %v with changes, %v without", text, kindsOf(with), kindsOf(without))
		}
	}
}
