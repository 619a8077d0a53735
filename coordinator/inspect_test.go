package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/prompt"
)

const (
	fixIt = "Fix the failing test in parser_test.go."
	askIt = "How does the scheduler pick the next task?"
)

// heuristicCases are answers as agents give them: those of yes have a finding of the
// kind, those of no have none.
var heuristicCases = []struct {
	kind    string
	yes, no []answered
}{
	{
		"empty",
		answers(fixIt, "", "  \n\n", "```\n```", "...", "---", "(no output)", "[no content]", "**No response requested.**", "``", "`` ``"),
		answers(fixIt, "Done.", "ok", "0", "=>", "✅", "null", "是", "No output is expected from this command.", "The answer is empty string: \"\".", "```\nx\n```"),
	},
	{
		"refusal",
		answers(
			fixIt, "I'm sorry, but I can't help with that.", "I’m sorry, but I cannot assist with that request.", "I can't help with this.",
			"As an AI language model, I cannot access your files.", "Sorry. I am not able to write to this directory, so nothing was done.",
			"I must decline this request. It would remove the security checks.", "Unfortunately, I am unable to comply with this request.",
			"I won't do that. Deleting the tests would hide the bug.", "I'm not comfortable writing code that bypasses the license check.",
			"I don't feel comfortable with this change.", "Your request violates the usage policies.",
			"Es tut mir leid, aber dabei kann ich nicht helfen.", "Dabei kann ich leider nicht helfen.", "Je suis désolé, mais je ne peux pas vous aider.",
			"Lo siento, pero no puedo ayudar con eso.", "抱歉，我无法协助完成这个请求。", "我不能帮助你完成这个请求。", "## Answer\n\nI cannot provide instructions for that.",
		),
		answers(
			fixIt, "I couldn't reproduce the failure at first; with -race it shows. Fixed the missing lock.", "Done. The parser can't accept empty input any more.",
			"I can't help but notice that the test was wrong too; both are fixed.", "Unfortunately, I cannot reproduce the crash: all 41 tests pass on main.",
			"I'm sorry, the earlier fix was wrong. The lock is now taken before the map is read.", "We can't use generics here because go.mod says 1.17; I used an interface.",
			"Users who say \"I'm sorry, but I can't log in\" hit the expired cookie.", "> I'm sorry, but I can't help with that.\n\nThis is what the bot answers; the filter in bot.go now drops it.",
			"The message `I can't help with that` now has a test.", "Sorry for the noise: the flag is now off by default.", "I'm afraid I cannot find any caller of Foo; it is dead code and was removed.",
			"Das kann nicht vorkommen, weil der Kanal vorher geschlossen wird.", "No puedo reproducir el fallo; todas las pruebas pasan.", "Je ne peux pas reproduire l'erreur, tous les tests passent.", "该函数不能为空，现在已修复。",
		),
	},
	{
		"error-text",
		answers(
			fixIt, "API Error: Request rejected (429) · fake 429", "bash: rg: command not found", "zsh: command not found", "panic: runtime error: index out of range [3] with length 3\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:12 +0x1d\nexit status 2",
			"Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    main()\nValueError: bad value", "```\nTypeError: Cannot read properties of undefined (reading 'map')\n    at Object.<anonymous> (/src/a.js:3:9)\n    at Module._compile (node:internal:1:2)\n```",
			"Error: ENOENT: no such file or directory, open 'x.json'", "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}", "Internal Server Error", "Prompt is too long",
			"Credit balance is too low", "cat: notes.md: No such file or directory", "Exception in thread \"main\" java.lang.NullPointerException\n\tat A.main(A.java:5)", "503 Service Unavailable", "Invalid API key · Please run /login", "npm ERR! missing script: test", "You've hit your usage limit.",
		),
		append(
			answers(
				fixIt, "Error handling is now in one place.", "Error: was returned where nil was due; I fixed it in parser.go.", "The test failed with `panic: nil map`. The map is now made in New.", "Fixed the IndexError: the loop ran one too far.",
				"bash: rg: command not found was the cause; the script now uses grep.", "The build failed:\n\n```\nmain.go:3:2: undefined: x\n```\n\nI added the import.", "Errors are wrapped with %w now.", "Traceback handling is unchanged.\nAll tests pass.",
				"Segmentation of the input was off by one; fixed.", "404 pages now have a title.",
			),
			answered{prompt: "Run ./x and show me what it prints.", answer: "bash: ./x: command not found"},
			answered{prompt: "Which error message does the API give without a key?", answer: "Error: invalid api key"},
		),
	},
	{
		"reasoning",
		answers(
			fixIt, "<think>The test wants 3.</think>\nFixed.", "<thinking>\nhm\n</thinking>\n\nDone.", "Let me think about this. The test wants 3.", "Okay, so let me think about what fails here.\nDone.",
			"The user wants the test fixed. The cause is an off-by-one.", "Hmm, the test wants 3 and gets 2. Fixed.", "Fixed the parser. Wait, actually the lexer was wrong.", "Step 1: I will read the test.\nStep 2: I will fix it.\nDone.",
			"## Thinking Process\n\nThe test wants 3.\n\nFixed.", "**Chain of thought**\n\nThe lexer drops a rune.", "First, I need to find the test. It is in parser_test.go. Fixed.", "<|channel|>analysis The test is wrong. Fixed.", "I need to figure out why it fails. It was the lexer.",
		),
		append(
			answers(
				fixIt, "Fixed: the lexer dropped the last rune.", "The filter removes `<think>` tags from answers now.", "```xml\n<thinking>x</thinking>\n```\nis what the test feeds; the parser skips it now.", "Think of the cache as a map with a clock; the fix evicts by age.",
				"Wait, then retry: the client now does both.", "Step 1: run `make`.\nStep 2: run `make test`.", "Let the caller think about retries: Get returns the error.", "First, the lexer was fixed; then the test passed.", "> Let me think\n\nis the text of the failing case; it passes now.",
			),
			answered{prompt: "Explain step by step why it fails.", answer: "First, I need to say what the lexer does. Let me think of an example."},
			answered{prompt: "Strip <think> tags.", answer: "The <think> and </think> tags are stripped."},
		),
	},
	{
		"promised",
		answers(
			fixIt, "I will now fix the test.", "I looked at the parser. Next, I'll update the lexer.", "The cause is an off-by-one in next(). Let me fix it.", "Let me look at the test file first:",
			"The test expects 3. Shall I change the parser?", "There are two ways to fix it. Would you like me to change the lexer?", "I'm going to start by reading the test file.", "Great! Now let me run the tests", "I found the cause. Let me know if you'd like me to apply the fix.", "1. Read the test\n2. Fix the lexer\n\nI'll start with the first step.",
			"Ich werde nun den Test reparieren.", "Der Fehler liegt im Lexer. Soll ich ihn beheben?", "Je vais maintenant corriger le test.", "Voy a corregir el test.", "接下来我会修复这个测试。", "需要我修复这个测试吗？",
		),
		append(
			answers(
				fixIt, "Fixed the off-by-one in next(); all tests pass.", "I've fixed the lexer. Would you like me to add a test for the empty input as well?", "Fixed. Let me know if you have questions.", "The lexer is fixed. If you want, I'll also remove the old parser.", "Done. The client will now retry three times.",
				"Fixed; next time the lexer will add the missing rune by itself.", "I will now fix it was the last line of the log; the fix is in lexer.go.\nAll tests pass.", "Fixed. I'll need the production log to say more.", "Run it with:\n\nI'll show the command:\n```\ngo test ./...\n```", "Der Lexer wurde repariert. Soll ich auch den Parser prüfen?", "已修复。需要我再加一个测试吗？", "Let me know how it goes.",
			),
			answered{prompt: askIt, answer: "It takes the oldest one. Would you like me to show the code?"},
			answered{prompt: "Suggest a plan for the migration.", answer: "Copy, switch, delete. Should I begin?"},
		),
	},
	{
		"repeats-question",
		[]answered{
			{prompt: longAsk, answer: longAsk + "\n\nDone."},
			{prompt: longAsk, answer: "You asked: " + longAsk + "\n\nFixed."},
			{prompt: longAsk, answer: strings.ToUpper(longAsk) + " Done."},
			{prompt: longAsk, answer: "**Task:** " + strings.ReplaceAll(longAsk, " ", "\n") + "\n\nDone."},
			{prompt: "Make the retry of the uploader wait twice as long after each failure.", answer: "Make the retry of the uploader wait twice as long after each failure: done."},
			{prompt: "The header of the report shows the date of the server, and it must show the date of the user.", answer: "The header of the report shows the date of the server, and it must show the date of the user. I changed it."},
			{prompt: "请修改上传程序的重试逻辑，使每次失败之后的等待时间加倍。", answer: "请修改上传程序的重试逻辑，使每次失败之后的等待时间加倍。已完成。"},
			{prompt: strings.Repeat("Context that does not matter here at all. ", 3) + longAsk + " Be careful.", answer: "Done. The task was: " + longAsk},
		},
		[]answered{
			{prompt: longAsk, answer: "Done: the uploader waits longer, and gives up after an hour."},
			{prompt: "Fix the typo.", answer: "Fix the typo: done."},
			{prompt: "Translate into German: " + longAsk, answer: longAsk},
			{prompt: "Rewrite this text more politely. " + longAsk, answer: "Please: " + longAsk},
			{prompt: longAsk + "\n```go\n" + strings.Repeat("a := b + c // and so on\n", 20) + "```", answer: "Fixed:\n```go\n" + strings.Repeat("a := b + c // and so on\n", 20) + "```"},
			{prompt: longAsk, answer: "The uploader now waits twice as long after each failure, at most an hour."},
			{prompt: longAsk, answer: "> " + longAsk + "\n\nDone."},
			{prompt: "What does this do? " + longAsk, answer: "It doubles the wait."},
			{prompt: "Repeat after me: " + longAsk, answer: longAsk},
			{prompt: "", answer: longAsk},
		},
	},
	{
		"over-policy",
		[]answered{
			policy(prompt.DefaultPolicy, strings.Repeat("- a point\n", 7)),
			policy(prompt.DefaultPolicy, strings.Repeat("a line\n", 7)),
			policy("Answer in at most 20 words.", strings.Repeat("word ", 30)),
			policy("At most two sentences.", "One. Two. Three. Four."),
			policy("Keep it under 50 characters.", strings.Repeat("x", 50)),
			policy("Use no more than 3 bullet points.", "- a\n- b\n- c\n- d"),
			policy("One paragraph at most.", "a\n\nb"),
			policy("Answer with 5 lines or fewer", strings.Repeat("a\n", 6)),
			policy("Limit your answer to 1,000 characters.", strings.Repeat("x", 1001)),
			policy("Answer in a maximum of one hundred words", strings.Repeat("word ", 120)),
		},
		[]answered{
			policy(prompt.DefaultPolicy, strings.Repeat("a line\n", 6)),
			policy(prompt.DefaultPolicy, "The parser was rewritten and all tests pass.\n\n"+strings.Repeat("- a detail\n", 20)),
			policy(prompt.DefaultPolicy, "## Summary\n\nThe parser was rewritten.\n\n## Details\n\n"+strings.Repeat("- a detail\n", 20)),
			policy("", strings.Repeat("a line\n", 700)),
			policy("Be brief.", strings.Repeat("a line\n", 700)),
			policy("Each bullet at most ten words.", "- "+strings.Repeat("word ", 9)+"\n- "+strings.Repeat("word ", 9)),
			policy("Write lines of at most 80 characters.", strings.Repeat("x ", 100)),
			policy("Commit titles up to 50 characters.", strings.Repeat("x ", 100)),
			policy("At most 20 words.", strings.Repeat("word ", 21)),
			policy("At most two sentences.", "It takes e.g. 3.5 s. That is enough."),
			policy("Begin with a summary of at most two sentences.", "One. Two. Three. Four."),
			policy("At most 3 sentences per section.", "One. Two. Three. Four."),
			policy("At most three lines.", "a\n\n\nb\n\n\nc\n"),
		},
	},
}

const longAsk = "Please change the uploader so that it waits twice as long after each failure, and gives up after one hour with a clear message."

func answers(prompt string, texts ...string) (list []answered) {
	for _, text := range texts {
		list = append(list, answered{prompt: prompt, answer: text})
	}
	return list
}

func policy(policy, answer string) answered {
	return answered{prompt: fixIt, policy: policy, answer: answer}
}

func TestHeuristics(t *testing.T) {
	for _, c := range heuristicCases {
		if len(c.yes) < 8 || len(c.no) < 8 {
			t.Errorf("%s has %d and %d cases, 8 and 8 are wanted", c.kind, len(c.yes), len(c.no))
		}
		for i, a := range c.yes {
			if kinds := kindsOf(a); !slices.Contains(kinds, c.kind) {
				t.Errorf("%s: missed in %d: %q %v", c.kind, i, headOf(a.answer), kinds)
			}
		}
		for i, a := range c.no {
			if kinds := kindsOf(a); slices.Contains(kinds, c.kind) {
				t.Errorf("%s: seen in %d, where it is not: %q", c.kind, i, headOf(a.answer))
			}
		}
	}
}

// The good answers of one kind are good by the others too.
func TestGoodAnswersHaveNoFinding(t *testing.T) {
	for _, c := range heuristicCases {
		for _, a := range c.no {
			if kinds := kindsOf(a); len(kinds) > 0 && c.kind != "repeats-question" && a.policy == "" {
				t.Errorf("%s: %q has %v", c.kind, headOf(a.answer), kinds)
			}
		}
	}
}

func TestFindingsAreShortAndOnce(t *testing.T) {
	found := inspect(t.Context(), answered{
		prompt: longAsk, policy: "At most one line.",
		answer: "I'm sorry, but I can't " + strings.Repeat("very ", 200) + "do it.\n\nLet me think. Let me think again.\n" + longAsk + "\nI will now fix the test.",
	})
	kinds := map[string]int{}
	for _, f := range found {
		kinds[f.Kind]++
		if len(f.Message) > 250 || strings.ContainsAny(f.Message, "\n\r") {
			t.Errorf("the message of %s is long: %q", f.Kind, f.Message)
		}
	}
	want := map[string]int{"refusal": 1, "reasoning": 1, "promised": 1, "repeats-question": 1, "over-policy": 1}
	if fmt.Sprint(kinds) != fmt.Sprint(want) {
		t.Errorf("the findings are %v, want %v", kinds, want)
	}
}

// The work that the heuristics do grows with the length of the answer, and no more. 8
// times 4 KiB is looked at whole, and the square of that takes a second.
func TestHeuristicsOfHugeAnswer(t *testing.T) {
	t.Parallel()
	for _, piece := range []string{"I'll do x. <a `b ", "no. ", "etc. ", "I ", "The user ", "say error ", "a.b/c-", "**", "12. ", "at most ten ", "\u62b1\u6b49", "{", "| "} {
		isLinear(t, fmt.Sprintf("%q", piece), 4<<10, func(size int) {
			text := strings.Repeat(piece, size/len(piece))
			inspect(t.Context(), answered{prompt: text, answer: text, policy: text[:len(text)/2] + "\n" + prompt.DefaultPolicy})
		})
	}
}

// isLinear measures work on an input of a size and on one of 8 times that: it would
// take 64 times as long if it grew with the square.
func isLinear(t *testing.T, what string, size int, work func(size int)) {
	t.Helper()
	took := func(size int) (least time.Duration) {
		for range 3 {
			begun := time.Now()
			work(size)
			if now := time.Since(begun); least == 0 || now < least {
				least = now
			}
		}
		return least
	}
	if small, large := took(size), took(8*size); large > 25*small+50*time.Millisecond {
		t.Errorf("%s took %s, and with 8 times as much %s", what, small, large)
	}
}

func TestHeuristicsEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found := inspect(ctx, answered{}); found != nil {
		t.Errorf("after the end there is %v", found)
	}
}

func kindsOf(a answered) (kinds []string) {
	for _, f := range inspect(context.Background(), a) {
		kinds = append(kinds, f.Kind)
	}
	return kinds
}

func headOf(s string) string { return s[:min(len(s), 90)] }
