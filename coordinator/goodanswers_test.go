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
	"Fix the flaky test TestUpload.": {
		"TestUpload raced with the janitor goroutine. The janitor is now stopped in t.Cleanup. 500 runs with -race, no failure.",
		"The flake comes from the port: two tests pick the same. They listen on :0 now.",
		"I couldn't make it fail in 2,000 runs, so I left the code alone and added logging to the one suspicious branch.",
	},
	"Upgrade the dependency sqlx to v2.": {
		"sqlx is at v2.1.0. `Get` takes a context now, so 14 call sites changed. Two of them had none to pass and use context.TODO().",
		"There is no v2 of sqlx; the newest is v1.4.0, which go.mod has already. Nothing to do.",
	},
	"Write a unit test for ParseDuration.": {
		"parse_test.go has 9 cases: units, signs, overflow, empty input. One found a bug: \"1.5h\" gave 1h; mended in the same commit.",
	},
	"Why does make fail on macOS?": {
		"`sed -i` needs an argument there. Use `sed -i ''` or perl.",
		"Because `date -d` is GNU only. I would replace it with a small Go helper; shall I?",
	},
	"Remove the deprecated endpoint /v1/users.": {
		"Removed the handler, its route, its tests and the page in docs/. Clients get 410 from the catch-all.",
	},
	"Add a --json flag to `shop orders`.": {
		"`shop orders --json` prints one object a line. The help and the golden file are updated.",
		"Added. Field names follow the API: id, total_cents, placed_at. After the release I'd drop the undocumented --raw.",
	},
	"Make the build faster.": {
		"From 4m10s to 1m35s: the cache key no longer has the commit in it, and lint runs beside the tests.",
	},
	"Refactor the config loader.": {
		"The loader is split into read, merge and check. No behaviour changed; the 41 tests pass unchanged.",
		"config.go went from 612 to 340 lines.\n\nWhat moved:\n- parsing to parse.go\n- defaults to defaults.go\n- checks to check.go\n\nWhat went:\n- the reflection\n- two globals\n- an init()",
	},
	"Check the links in docs/.": {
		"All 212 links answer 200, but for two: docs/faq.md:14 (404) and docs/setup.md:3 (certificate expired).",
		"404 Not Found: docs/faq.md:14, docs/setup.md:3. The other 210 are fine.",
	},
	"Investigate the crash in report #88.": {
		"panic: assignment to entry in nil map, at store.go:51: New() forgets to make the map when the file is empty. A test and the fix are in.",
		"The user had an empty data.json. New() returns a store without a map then.",
	},
	"Format the repository.": {
		"gofumpt changed 12 files, all whitespace.",
		"No file needed it.",
	},
	"Bump the version to 2.4.0 and tag it.": {
		"Version 2.4.0 is in version.go and CHANGELOG.md. I can't push tags from this sandbox; run `git push origin v2.4.0`.",
		"Done: v2.4.0.",
	},
	"Port the script to Python.": {
		"report.py replaces report.sh. It gives the same output on the three sample months (diffed). Python 3.9 is enough.",
	},
	"Answer the question in issue 12.": {
		"Yes: set `idle_exit` to 0. The docs say so in the third paragraph of Configuration.",
	},
	"Use the new logger everywhere.": {
		"37 call sites switched. Errors in the hot path are logged once a minute only, as before. I'm not sure about cmd/legacy, which nobody builds; it is unchanged.",
		"Everything but vendor/ uses slog now. Let me know if the key names should follow the old ones.",
	},
	"Tighten the file permissions of the cache.": {
		"Cache files are 0600 and directories 0700. Old ones are corrected at start. Permission denied: none of the tests needs more.",
	},
	"Make login errors consistent.": {
		"Unauthorized requests get 401 with a JSON body, forbidden ones 403. The texts are in one table, errors.go.",
	},
	"Update the docs for the new flag.": {
		"README.md, docs/flags.md and the man page describe --since. The example in the README was wrong before: it used seconds.",
	},
	"Vereinheitliche die Fehlermeldungen.": {
		"Alle Meldungen beginnen jetzt klein und nennen die Datei. Ich habe 23 Stellen geändert; die Tests sind grün.",
		"Erledigt. Eine Ausnahme: die Meldung beim Start kann nicht geändert werden, weil Skripte sie lesen.",
	},
	"Corrige le test qui échoue.": {
		"Le test comparait des flottants à l'égalité. Il compare maintenant à 1e-9 près, et passe.",
	},
	"修复登录测试。": {
		"原因是时区：测试使用本地时间，服务器使用 UTC。现在两边都用 UTC，测试通过。",
	},
	"Delete the unused assets.": {
		"47 files, 3.1 MB. logo-old.svg looks unused but is in the mail template, so it stays.",
	},
	"Set up CI for pull requests.": {
		"CI runs on each pull request: vet, test -race, lint. First run: https://ci.example.org/1, green, 3m.",
		"The workflow is in .github/workflows/ci.yml. It will run on the next push; I can't trigger it from here.",
	},
	"Get the coverage of the parser above 90%.": {
		"Coverage of parser/ is 93.4% (was 71.2%). The rest is error paths that only a broken reader reaches.",
	},
	"Find the owner of billing.": {
		"Nobody since March: CODEOWNERS names ana, who left. The last ten commits are from ben.",
	},
	"Rename Foo to Bar.": {
		"Bar it is, in 19 files. The JSON key stays \"foo\" so that old files still load.",
	},
	"Describe what each package does.": {
		"cmd: the command line.\nstore: files.\nsync: the copy to S3.\nhttp: the API.\nauth: tokens.\nui: pages.\nmetrics: counters.\ntestdata: samples.\nThat is all of them.",
	},
	"Sort the imports.": {
		"Sorted with goimports; nothing else touched. Should anything look odd in the diff of gen.go: it is generated, and I left it out.",
	},
	"Fix the typo in the error message.": {
		"Error: \"recieved\" is \"received\" now, in two places.",
	},
	"Fix the N+1 query in the order list.": {
		"One query instead of 1+n: a JOIN on items. 20 orders took 340 ms, and take 12 ms.",
	},
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
