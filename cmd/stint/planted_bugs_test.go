//go:build planted

package main

// crashImages has the numbers for a bug that only a power cut shows.
var crashImages = []string{"STINT_TEST_IMAGES=200000", "STINT_TEST_SEED=1"}

// The tests that catch most of the bugs.
const (
	rowTest   = "^TestPromise4YourEditsCount$/^"
	crashTest = "^TestPromise1CrashImages$"
)

// bugs are what a hurried change could bring, each with the tests that see it.
var bugs = []bug{
	// What is durable, and when.
	{
		name: "the directory is not synced after a rename", file: "ledger/durable/durable.go",
		old: "return fsys.SyncDir(filepath.Dir(name))", now: "return nil",
		pkg: "./ledger/durable", run: "^TestWriteFileOrder$",
	},
	{
		name: "a file is renamed before it is synced", file: "ledger/durable/durable.go",
		old: "err = sync(f)", now: "err = nil",
		pkg: "./ledger/durable", run: "^TestWriteFileOrder$",
	},
	{
		name: "two replacements of a file share a temporary file", file: "ledger/durable/durable.go",
		old: "tempMark, rand.Uint64(), tempEnd", now: "tempMark, rand.Uint64()&0, tempEnd",
		pkg: "./coordinator/api", run: "^TestRotationsAtOnce$",
	},
	{
		name: "acknowledged before it is written", file: "ledger/log.go",
		old: "took.Sync, err = l.keep(b.bytes)",
		now: "b.answer(nil)\n\tb.taken = nil\n\ttook.Sync, err = l.keep(b.bytes)",
		pkg: "./ledger", run: "^TestPromise7WhenTheDiskFailsWeStopSayingYes$",
	},
	{
		name: "nobody looks whether the journal has its name", file: "ledger/guard.go",
		old: "ours.Size() == j.size && sameFile(idOf(named), idOf(ours))", now: "(named == nil || ours.Size() == j.size)",
		pkg: "./ledger", run: "^TestPromise1ForeignHands$",
	},
	{
		name: "nobody looks whether the journal has what was written", file: "ledger/guard.go",
		old: "ours.Size() == j.size && sameFile(", now: "sameFile(",
		pkg: "./ledger", run: "^TestPromise1ForeignHands$",
	},
	{
		name: "a journal that lacks records stays so", file: "ledger/guard.go",
		old: "if len(missing.Sections) == 0 {", now: "if true {",
		pkg: "./ledger", run: "^TestForeignHandsAtStart$",
	},
	{
		name: "a line that is not complete is taken over at once", file: "ledger/log.go",
		old: "settleOpen = 3 * time.Second", now: "settleOpen = settle",
		pkg: "./ledger", run: "^TestPromise4AppendInPieces$",
	},
	{
		name: "acknowledged before the fdatasync", file: "ledger/journal.go",
		old: "err = j.file.Datasync()", now: "err = nil",
		pkg: "./ledger", run: crashTest, env: crashImages,
	},
	{
		name: "going on after a failed fdatasync", file: "ledger/journal.go",
		old: `fmt.Errorf("fdatasync %s: %w", j.path, err)`, now: `fmt.Errorf("%w: fdatasync %s: %w", errNotWritten, j.path, err)`,
		pkg: "./ledger", run: "^TestPromise7WhenTheDiskFailsWeStopSayingYes$",
	},
	{
		name: "a failed fdatasync is tried again", file: "ledger/journal.go",
		old: "err = j.file.Datasync()",
		now: "if err = j.file.Datasync(); err != nil {\n\t\terr = j.file.Datasync()\n\t}",
		pkg: "./ledger", run: "^TestPromise7WhenTheDiskFailsWeStopSayingYes$",
	},
	{
		name: "a restart builds on what is not durable", file: "ledger/journal.go",
		old: "return r.seq, j.file.Datasync()", now: "return r.seq, nil",
		pkg: "./ledger", run: "^TestPromise1WhatARestartShowsIsKept$",
	},
	{
		name: "records are put into a file that was cut when one landed there", file: "ledger/tasksfile.go",
		old: "if snap.id == t.landed.id &&", now: "if snap.id == (fileID{}) &&",
		pkg: "./ledger", run: "^TestPromise4RecordLandsInACutFile$",
	},
	{
		name: "a save of the same size is never seen", file: "ledger/tasksfile.go",
		old: "t.foreign || !is.equals(&t.shape)", now: "t.foreign",
		pkg: "./ledger", run: "^TestPromise4SaveOfTheSameSize$",
	},
	{
		name: "an append that fails cuts off what was saved", file: "ledger/tasksfile.go",
		old: "err != nil || n == 0 || fi.Size() != t.seen.size+int64(n)", now: "err != nil || n == 0 || fi == nil",
		pkg: "./ledger", run: "^TestPromise4FailedAppendCutsNoText$",
	},
	{
		name: "tasks.md alone gives the records as they stand", file: "ledger/restore.go",
		old: "cmp.Compare(a.Seq, b.Seq) })", now: "0 * cmp.Compare(a.Seq, b.Seq) })",
		pkg: "./ledger", run: "^TestPromise4RecordLandsBehindAnOldBuffer$",
	},
	{
		name: "an edit is recorded before the save is durable", file: "ledger/tasksfile.go",
		old: "return errors.Join(f.Sync(), f.Close(), t.fs.SyncDir(filepath.Dir(t.path)))", now: "return f.Close()",
		pkg: "./ledger", run: crashTest, env: crashImages,
	},

	{
		name: "what is exclusive shares a batch", file: "ledger/log.go",
		old: "if u.alone && len(b.taken) > 0 {", now: "if false {",
		pkg: "./ledger", run: "^TestExclusiveIsAloneInItsBatch$",
	},
	{
		name: "dispatch shares a batch", file: "coordinator/dispatch.go",
		old: "err := c.exclusive(context.Background(), func(tx *ledger.Tx) error {\n\t\tc.release(chosen)", now: "err := c.update(context.Background(), func(tx *ledger.Tx) error {\n\t\tc.release(chosen)",
		pkg: "./coordinator", run: "^TestNothingStartsAgainstAChangeOfItsBatch$",
	},

	// What a crash leaves behind.
	{
		name: "no repair of a torn tail", file: "ledger/journal.go",
		old: "j.setSize(r.good)", now: "j.setSize(r.size)",
		pkg: "./ledger", run: "^TestTornTailAtEveryByte$",
	},
	{
		name: "the marks of a change of several records are ignored", file: "ledger/journal.go",
		old: "\tif more > 0 {", now: "\tif false && more > 0 {",
		pkg: "./ledger", run: "^TestTornTailAtEveryByte$",
	},
	{
		name: "no look for a newline before an append", file: "ledger/tasksfile.go",
		old: "if !t.endsInN {", now: "if false {",
		pkg: "./ledger", run: rowTest + "written_by_hand$",
	},
	{
		name: "no look for a newline before a line of the transcript", file: "session/transcript.go",
		old: "if !torn {", now: "if torn || !torn {",
		pkg: "./session", run: "^TestTranscriptCutAnywhere$",
	},

	// The text.
	{
		name: "characters that break lines are not escaped", file: "ledger/escape.go",
		old: "if breaksLine(r) {\n\t\t\treturn formEscaped", now: "if false {\n\t\t\treturn formEscaped",
		pkg: "./ledger", run: "^TestPromise6NoTextBecomesARecord$",
	},
	{
		name: "a line behind an empty one is not indented", file: "ledger/escape.go",
		old: "if line != \"\" {\n\t\t\tdst = append(dst, ' ', ' ')", now: "if line != \"\" {\n\t\t\tif n := len(dst); n < 2 || dst[n-2] != '\\n' {\n\t\t\t\tdst = append(dst, ' ', ' ')\n\t\t\t}",
		pkg: "./ledger", run: "^TestPromise6NoTextBecomesARecord$",
	},

	// The lock.
	{
		name: "only a file is locked, which others may replace", file: "ledger/lock.go",
		old: "d, err := lockDir(dir)", now: "d, err := os.Open(dir)",
		pkg: "./ledger", run: "^TestOneLockWithoutItsFile$",
	},
	{
		name: "a session in use is used twice", file: "session/lock.go",
		old: "case !held:", now: "case false:",
		pkg: "./session", run: "^TestLockBusyInProcess$",
	},

	// One run at a time, one task of one key.
	{
		name: "requeued without a proof that the old run is dead", file: "coordinator/recover.go",
		old: "if c.cfg.Recover != nil {", now: "if false {",
		pkg: "./coordinator", run: "^TestEditedWhileItsMasterWasDead$",
	},
	{
		name: "nothing is killed before a requeue", file: "coordinator/agent/recover.go",
		old: "return rec.end(ctx, runDir)", now: "return nil",
		pkg: "./coordinator/agent", run: "^TestMasterAndGateDie$",
	},
	{
		name: "a process is known by its pid, without its start time", file: "coordinator/agent/recover.go",
		old: "p.start == want.start && ", now: "",
		pkg: "./coordinator/agent", run: "^TestRecoverSparesStrangers$",
	},
	{
		name: "a run has a say after a person has ended it", file: "coordinator/run.go",
		old: "return ok && t.Status == state.Running", now: "return ok && t.Status != state.Queued",
		pkg: "./coordinator", run: "^TestHandEditEndsARun$",
	},
	{
		name: "idempotency is checked outside of the lock", file: "coordinator/intake.go",
		old: `tx.Claim("key " + s.IdempotencyKey)`, now: "_ = tx",
		pkg: "./coordinator", run: "^TestIdempotency$",
	},
	{
		name: "a list and a task under one key do not see each other", file: "coordinator/sharedkey.go",
		old: `tx.Claim("key " + in.key)`, now: "_ = tx",
		pkg: "./coordinator", run: "^TestKeysNeverShareAList$",
	},
	{
		name: "a key is free again when its task is archived", file: "state/compact.go",
		old: "c.holder[key] = id // the archive comes before all records", now: "key = \"\"",
		pkg: "./state", run: "^TestArchivedTaskComesBack$",
	},

	// A person's edits.
	{
		name: "the digest of an adopted section is forgotten", file: "ledger/history.go",
		old: "h.adopted[digest] = append(h.adopted[digest], o)", now: "_ = h",
		pkg: "./ledger", run: rowTest + "a_requeue_that_is_done,_moved_to_the_end$",
	},
	{
		name: "the newest records are not put back", file: "ledger/reconcile.go",
		old: "from = p.missing + int64(p.inFile)", now: "from = p.end",
		pkg: "./ledger", run: rowTest + "a_stale_buffer$",
	},
	{
		name: "taken for deleted although something is damaged", file: "ledger/plan.go",
		old: "p.opts.Deleted == nil || p.hurt ||", now: "p.opts.Deleted == nil ||",
		pkg: "./ledger", run: rowTest + "taken_out_while_something_is_damaged$",
	},
	{
		name: "the work of a formatter is not held", file: "ledger/hold.go",
		old: "const maxReworded = 3", now: "const maxReworded = 1 << 30",
		pkg: "./ledger", run: rowTest + "a_formatter$",
	},
	{
		name: "appended although another hand has changed the file", file: "ledger/tasksfile.go",
		old: "if idOf(fi) != t.seen {\n\t\tt.foreign = true", now: "if false {\n\t\tt.foreign = true",
		pkg: "./ledger", run: "^TestNothingIsAppendedToAnothersText$/^another_size$",
	},
	{
		name: "only the inode tells whether another hand has changed the file", file: "ledger/tasksfile.go",
		old: "if idOf(fi) != t.seen {\n\t\tt.foreign = true", now: "if !sameFile(idOf(fi), t.seen) {\n\t\tt.foreign = true",
		pkg: "./ledger", run: "^TestNothingIsAppendedToAnothersText$/^another_size$",
	},
	{
		name: "a save of the same size is not seen", file: "ledger/tasksfile.go",
		old: "if idOf(fi) != t.seen {\n\t\tt.foreign = true", now: "if id := idOf(fi); !sameFile(id, t.seen) || id.size != t.seen.size {\n\t\tt.foreign = true",
		pkg: "./ledger", run: "^TestNothingIsAppendedToAnothersText$/^another_time$",
	},
	{
		name: "a copy of a section keeps its status and its run", file: "ledger/adopt.go",
		old: "return p.opts.Copied == nil || p.opts.Copied(key)", now: "return true",
		pkg: "./ledger", run: rowTest + "copied$",
	},
	{
		name: "a refused edit is applied anyway", file: "ledger/adopt.go",
		old: "p.finding(err)\n\t\treturn", now: "p.finding(err)",
		pkg: "./ledger", run: rowTest + "an_unknown_status,_then_a_known_one$",
	},
	{
		name: "an edit takes a step that the task's status forbids", file: "state/transition.go",
		old: "Done:     {Queued: anyone, Done: anyone}", now: "Done:     {Queued: anyone, Done: anyone, Canceled: anyone}",
		pkg: "./state", run: "^TestPromise4EveryStatusByHand$/^done_to_canceled$",
	},
	{
		name: "a number that a person wrote is given again", file: "ledger/reconcile.go",
		old: "l.seq = max(l.seq, p.maxSeq)", now: "_ = p.maxSeq",
		pkg: "./ledger", run: rowTest + "a_number_of_his_own$",
	},
	{
		name: "a task that a person has deleted stays in the lists", file: "state/deleted.go",
		old: "e.deleted = true\n", now: "",
		pkg: "./state", run: "^TestDeletedTaskIsInNoList$",
	},

	// Compaction and restore.
	{
		name: "sections from before a compaction are taken for new", file: "ledger/plan.go",
		old: "p.noteOld(s)", now: "p.hand(i, s)",
		pkg: "./ledger", run: "^TestPromise4SaveFromBeforeACompaction$",
	},
	{
		name: "a compaction forgets what was adopted", file: "ledger/compact.go",
		old: "adopted: adoptedIn(c.data)}", now: "adopted: nil}",
		pkg: "./ledger", run: "^TestBufferFromBeforeCompaction$",
	},
	{
		name: "a compaction does not look at what it has swapped out", file: "ledger/swap.go",
		old: "case out == c.snap.id:", now: "case out != c.snap.id || out == c.snap.id:",
		pkg: "./ledger", run: "^TestSaveInTheMomentOfTheSwap$",
	},
	{
		name: "the journal is renamed before the archive is durable", file: "ledger/archive.go",
		old: "err = f.Sync()", now: "err = nil",
		pkg: "./ledger", run: crashTest, env: crashImages,
	},
	{
		name: "the journal is renamed before the name of the archive is durable", file: "ledger/compact.go",
		old: "err = l.opts.FS.SyncDir(dir)", now: "err = nil",
		pkg: "./ledger", run: crashTest, env: crashImages,
	},
	{
		name: "a compaction does not wait for a follower", file: "ledger/follow.go",
		old: "return f.stale || f.read < size", now: "return false",
		pkg: "./ledger", run: "^TestFollowerThatLagsHoldsBackCompaction$",
	},
	{
		name: "a follower loses its place at a compaction", file: "ledger/follow.go",
		old: "f.after, f.last, f.merged, f.place = after, after, 0, after", now: "f.after, f.last, f.merged, f.place = 0, 0, 0, 0",
		pkg: "./ledger", run: "^TestFollow$",
	},
	{
		name: "a restore goes on before it cannot go back", file: "ledger/restore.go",
		old: "err := fsys.SyncDir(dir) // what decides that there is no way back must last longer than what follows", now: "var err error",
		pkg: "./ledger", run: "^TestRestoreCrash$", env: []string{"STINT_TEST_SEED=1"},
	},
	{
		name: "a restore replaces what was saved meanwhile", file: "ledger/restore.go",
		old: "if err == nil && idOf(now) != seen {", now: "if false && idOf(now) != seen {",
		pkg: "./ledger", run: "^TestRestoreSeesASave$",
	},
	{
		name: "a restore gives numbers twice", file: "ledger/restore.go",
		old: "note.Seq = before.last + 1", now: "note.Seq = 1",
		pkg: "./ledger", run: "^TestRestoreKeepsWhatWasBefore$",
	},

	// What the agents' own programs are like.
	{
		name: "a count over the whole session is taken for one run's", file: "coordinator/tally.go",
		old: "used = since(out.Thread, before)", now: "used = out.Thread",
		pkg: "./cmd/stint", run: "^TestTenTraps$/^01",
	},
	{
		name: "the sandbox is not said again", file: "coordinator/agent/codex.go",
		old: `case c.Sandbox != "inherit":`, now: `case c.Sandbox != "inherit" && turn.Session == "":`,
		pkg: "./cmd/stint", run: "^TestTenTraps$/^02",
	},
	{
		name: "another session than the one to be resumed is good enough", file: "coordinator/run.go",
		old: `(r.kept || c.cfg.ResumeMissing == "error")`, now: "r.kept",
		pkg: "./cmd/stint", run: "^TestTenTraps$/^03",
	},
	{
		name: "an agent may wait for the network for ever", file: "coordinator/agent/stream.go",
		old: "const defaultPatience = time.Minute", now: "const defaultPatience = time.Hour",
		pkg: "./cmd/stint", run: "^TestTenTraps$/^04",
	},
	{
		name: "exit code 0 without an answer is a success", file: "coordinator/agent/classify.go",
		old: `v = verdict{class: state.ClassOutputMissing, msg: "the agent ended without an answer"}`, now: "return verdict{}",
		pkg: "./cmd/stint", run: "^TestTenTraps$/^07",
	},
	{
		name: "a lost session is never replaced", file: "coordinator/judge.go",
		old: `case c.cfg.ResumeMissing != "error":`, now: "case false:",
		pkg: "./cmd/stint", run: "^TestTenTraps$/^09",
	},
	{
		name: "an agent that sleeps for a rate limit holds its worker", file: "coordinator/agent/stream.go",
		old: "case now.Sub(st.failing) >= 2*patience && ", now: "case false && ",
		pkg: "./coordinator/agent", run: "^TestLastErrorOfASilentAgent$",
	},
	{
		name: "each wait adds a message to the conversation", file: "coordinator/run.go",
		old: "Session: r.session, Fork: r.kept,", now: "Session: r.session,",
		pkg: "./coordinator", run: "^TestKeptPromptIsContinuedOnce$",
	},
	{
		name: "gemini cleans up its sessions", file: "coordinator/agent/geminisettings.go",
		old: `map[string]any{"enabled": false}`, now: `map[string]any{"enabled": true}`,
		pkg: "./cmd/stint", run: "^TestTenTraps$/^10",
	},

	// What a CLI would make of a text.
	{
		name: "claude reads what a prompt names", file: "coordinator/agent/claude.go",
		old: `json:"client_composed"`, now: `json:"composed"`,
		pkg: "./coordinator/agent", run: "^TestPromise6TextIsText$/^claude$",
	},
	{
		name: "claude reads what a skill names", file: "coordinator/agent/claude.go",
		old: `, "CLAUDE_CODE_DISABLE_FILE_MENTIONS=1")`, now: ")",
		pkg: "./coordinator/agent", run: "^TestRealClaudeSkill$",
	},
	{
		name: "gemini reads what a prompt names", file: "coordinator/agent/gemini.go",
		old: "strings.ReplaceAll(prompt, \"@\", `\\@`)", now: "prompt",
		pkg: "./coordinator/agent", run: "^TestPromise6TextIsText$/^gemini$",
	},
	{
		name: "a prompt that was escaped is not known again", file: "coordinator/conclude.go",
		old: "c.escapePrompt(t.Agent, prompt.Build(prompt.Input{Message: now.Prompt}))", now: "now.Prompt",
		pkg: "./coordinator", run: "^TestPromptIsEscaped$",
	},

	// What an evaluator may not change.
	{
		name: "that verify never passed is forgotten while the answer is judged", file: "coordinator/evaluate.go",
		old: `c.answer(t); t.Error != "" {`, now: "c.answer(t); false {",
		pkg: "./coordinator", run: "^TestEvaluationOfWhatNeverPassed$",
	},
	{
		name: "the task goes on in the session of its evaluator", file: "coordinator/evaluate.go",
		old: "out.Usage = said.Usage.Plus(said.Thread)", now: "out.Session, out.Usage = said.Session, said.Usage.Plus(said.Thread)",
		pkg: "./coordinator", run: "^TestEvaluation$",
	},
	{
		name: "a task is dead because its evaluator was cut off", file: "coordinator/recover.go",
		old: " && t.Phase != state.PhaseEvaluate", now: "",
		pkg: "./coordinator", run: "^TestCrashWhileEvaluated$",
	},
	{
		name: "an apology is a refusal, whatever was done", file: "coordinator/inspect.go",
		old: " && !a.worked() {", now: " {",
		pkg: "./coordinator", run: "^TestWorkIsNoRefusal$",
	},
	{
		name: "a test that was moved is one that was deleted", file: "coordinator/snapshot.go",
		old: "add --intent-to-add", now: "add --dry-run",
		pkg: "./coordinator", run: "^TestChangesOfFilesThatNobodyAdded$",
	},
	{
		name: "the schema is taken for the judgement", file: "coordinator/evaluate.go",
		old: `(isSaid(raw["findings"]) || isSaid(raw["lessons"]))`, now: `raw["findings"] != nil`,
		pkg: "./coordinator", run: "^TestReadJudgement$",
	},
	{
		name: "an evaluator has the tools of the user", file: "coordinator/agent/claude.go",
		old: `"--tools", "", `, now: "",
		pkg: "./coordinator/agent", run: "^TestClaudeArgs$",
	},
	{
		name: "two tasks write lessons at once", file: "memory/lessons.go",
		old: "syscall.LOCK_EX|syscall.LOCK_NB", now: "syscall.LOCK_SH|syscall.LOCK_NB",
		pkg: "./memory", run: "^TestLessonsOfManyAtOnce$",
	},
	{
		name: "a lesson is written into git's configuration", file: "memory/lessons.go",
		old: `strings.EqualFold(s, ".git")`, now: "false",
		pkg: "./memory", run: "^TestLessonsStayInTheWorkspace$",
	},
	{
		name: "git runs what a checkout names", file: "coordinator/snapshot.go",
		old: "--no-ext-diff --no-textconv --no-color", now: "--no-color",
		pkg: "./coordinator", run: "^TestGitDoesNoHarm$",
	},

	// What is found in an answer.
	{
		name: "an agent that apologises has refused, whatever it has done", file: "coordinator/inspect.go",
		old: " && !looked().MatchString(s) && !a.worked() {", now: " && !looked().MatchString(s) {",
		pkg: "./coordinator", run: "^TestWorkIsNoRefusal$",
	},
	{
		name: "tests may not go with the code that they test", file: "coordinator/weakened.go",
		old: "|| code[key] < 0", now: "",
		pkg: "./coordinator", run: "^TestVerifyWeakened$",
	},

	// What a script is told.
	{
		name: "that verify never passed is a failure like any other", file: "cmd/stint/exit.go",
		old: "return exitVerify", now: "return exitFailed",
		pkg: "./cmd/stint", run: "^TestScript$/^outcome$",
	},
	{
		name: "an answer that did not pass its check is thrown away", file: "cmd/stint/task.go",
		old: `return view.Result != ""`, now: "return false",
		pkg: "./cmd/stint", run: "^TestScript$/^outcome$",
	},
	{
		name: "the exit code is lost where the document has the end", file: "cmd/stint/task.go",
		old: "return taskEnd(&view)", now: "if o.json {\n\t\treturn nil\n\t}\n\treturn taskEnd(&view)",
		pkg: "./cmd/stint", run: "^TestScript$/^exit_codes$",
	},

	// What the notes give.
	{
		name: "words of a prompt are patterns", file: "memory/scan.go",
		old: `"-i", "-F", "--null"`, now: `"-i", "--null"`,
		pkg: "./memory", run: "^TestPromise6NoPromptIsAnOption$",
	},
	{
		name: "a link leads the search out of the workspace", file: "memory/files.go",
		old: "f, err := root.OpenFile(name, ", now: "f, err := os.OpenFile(filepath.Join(root.Name(), name), ",
		pkg: "./memory", run: "^TestSkippedNotesSayWhy$",
	},
	{
		name: "notes take more room than they may", file: "memory/memory.go",
		old: "len(kept) == s.MaxHits || size > room", now: "len(kept) == s.MaxHits",
		pkg: "./memory", run: "^TestSearchKeepsItsBounds$",
	},
	{
		name: "a lesson is kept each time that it is learnt", file: "memory/lessons.go",
		old: `l.Text == "" || known[l.ID]`, now: `l.Text == ""`,
		pkg: "./memory", run: "^TestAddLessons$",
	},

	// What an agent is told.
	{
		name: "a note may pose as the user", file: "prompt/prompt.go",
		old: `b.WriteString("> " + oneLine(h.String()) + "\n")`, now: `b.WriteString("> " + h.String() + "\n")`,
		pkg: "./prompt", run: "^TestQuotedTextStaysQuoted$",
	},
	{
		name: "what a verify command prints may pose as the user", file: "prompt/quote.go",
		old: `oneLine(strings.TrimSuffix(line, "\r"))`, now: "line",
		pkg: "./prompt", run: "^TestQuotedTextStaysQuoted$",
	},
	{
		name: "a template may pose as the user", file: "prompt/template.go",
		old: "&& ownHeading.MatchString(line) {", now: "&& false {",
		pkg: "./prompt", run: "^TestTemplate$",
	},
	{
		name: "a dry run queues the task", file: "coordinator/preview.go",
		old: "func(*ledger.Tx) error {\n\t\tif err := in.record(&ledger.Tx{}); err != nil {\n\t\t\treturn err\n\t\t}\n\t\treturn errPreview\n\t})",
		now: "func(tx *ledger.Tx) error { return in.record(tx) })\n\tif err == nil {\n\t\terr = errPreview\n\t}",
		pkg: "./coordinator", run: "^TestPreviewIsTheRun$",
	},
	{
		name: "the plan of an agent is not what it runs", file: "coordinator/agent/program.go",
		old: "Env: envNames(s.env)}", now: "Env: envNames(s.env[1:])}",
		pkg: "./coordinator/agent", run: "^TestPlan$",
	},

	// What tasks queue, and who asks.
	{
		name: "a follow-up is queued in a change of its own", file: "coordinator/conclude.go",
		old: "tx.Merge(follow)",
		now: "go func() { _ = c.update(context.Background(), func(tx *ledger.Tx) error { tx.Merge(follow); return nil }) }()",
		pkg: "./coordinator", run: "^TestNoCrashBetweenEndAndFollowUp$",
	},
	{
		name: "follow-ups have follow-ups without end", file: "coordinator/followup.go",
		old: "(own || c.depth(t.ID) < c.cfg.FollowUpDepth)", now: "(own || true)",
		pkg: "./coordinator", run: "^TestFollowUpsEnd$",
	},
	{
		name: "an agent's tasks queue further ones without end", file: "coordinator/followup.go",
		old: "case depth >= c.cfg.FollowUpDepth:", now: "case depth > c.cfg.FollowUpDepth:",
		pkg: "./coordinator", run: "^TestARunQueuesNoChains$",
	},
	{
		name: "what an agent said reads as the user's words in a follow-up", file: "coordinator/template.go",
		old: `return "\n\n" + quoted + "\n"`, now: `return text`,
		pkg: "./coordinator", run: "^TestFollowUpQuotes$",
	},
	{
		name: "what was archived is not counted", file: "state/archive.go",
		old: `s.noteParent(n, a.Parent, Trigger(a.Trigger))`, now: `s.noteParent(n, "", "")`,
		pkg: "./coordinator", run: "^TestRetryFollowsUpAgain$",
	},
	{
		name: "a missing program fails its tasks", file: "coordinator/judge.go",
		old: "c.judgeMissing(&v, t, out)", now: "_ = out",
		pkg: "./coordinator", run: "^TestMissingProgramHoldsItsAccount$",
	},
	{
		name: "an agent's key is the user's", file: "coordinator/intake.go",
		old: "added.IdempotencyKey = state.RunKey(s.IdempotencyKey, by.ID)", now: "_ = state.RunKey",
		pkg: "./coordinator", run: "^TestARunsKeysAreItsOwn$",
	},
	{
		name: "a run gets more than its task", file: "coordinator/intake.go",
		old: "in.c.capBy(added, &by)\n", now: "\n",
		pkg: "./coordinator", run: "^TestARunGetsNoMoreThanItsTask$",
	},
	{
		name: "an agent's verify command is run at once", file: "coordinator/fromrun.go",
		old: `if why := in.exceeds(s, &t); why != "" {`, now: `if why := in.exceeds(s, &t); false {`,
		pkg: "./coordinator", run: "^TestARunHasNoRights$",
	},
	{
		name: "a task that a person moves opens the session to the agent", file: "state/moved.go",
		old: `put(KeyIntake, "", now.Intake != "" &&`, now: `put(KeyIntake, "", false &&`,
		pkg: "./coordinator", run: "^TestARunIsNotLetInByAMove$",
	},
	{
		name: "a preview searches the notes for a run everywhere", file: "coordinator/preview.go",
		old: `if asks == "" || c.isOfRun(asks, t.Workspace) {`, now: `if true || asks == "" {`,
		pkg: "./coordinator", run: "^TestARunForeseesItsOwnNotes$",
	},
	{
		name: "a run gets out of its directory", file: "coordinator/fromrun.go",
		old: `hold(!isWithin(s.Workspace, t.Workspace),`, now: `hold(false,`,
		pkg: "./coordinator", run: "^TestARunHasNoRights$",
	},
	{
		name: "a run gets out of its directory by a link", file: "coordinator/fromrun.go",
		old: `case moved && !t.WorkspaceByHand`, now: `case false`,
		pkg: "./coordinator", run: "^TestARunCannotMoveItsTasks$",
	},
	{
		name: "a process is part of the run that it names", file: "coordinator/api/fromrun.go",
		old: `; run != "" || err != nil {`, now: `; err != nil {`,
		pkg: "./coordinator/api", run: "^TestPeerIsARun$",
	},
	{
		name: "a follow-up claims nothing", file: "ledger/log.go",
		old: `tx.claims = append(tx.claims, other.claims...)`, now: ``,
		pkg: "./ledger", run: "^TestSameClaimNeverSharesABatch$",
	},
	{
		name: "a caller is whoever has its pid", file: "coordinator/agent/ancestry.go",
		old: `child.start != start || child.dead`, now: `child.dead`,
		pkg: "./coordinator/agent", run: "^TestRunOfHidden$",
	},
	{
		name: "while no run lives, who has ended is the user", file: "coordinator/agent/ancestry.go",
		old: `	child, err := read(pid)`, now: "\tif len(gates) == 0 {\n\t\treturn \"\", nil\n\t}\n\tchild, err := read(pid)",
		pkg: "./coordinator/agent", run: "^TestRunOfNobodysProcess$",
	},
	{
		name: "a run whose gate ends meanwhile is the user", file: "coordinator/agent/ancestry.go",
		old: `	return gates[child.ppid], nil`, now: `	return gateRuns()[child.ppid], nil`,
		pkg: "./coordinator/agent", run: "^TestRunOfEndsMeanwhile$",
	},
	{
		name: "each client that has gone costs a look at all connections", file: "coordinator/api/tcppeer_linux.go",
		old: `f.tells.Store(true)`, now: ``,
		pkg: "./coordinator/api", run: "^TestKernelIsBelieved$",
	},
	{
		name: "a caller is noted when it asks", file: "coordinator/api/fromrun.go",
		old: `find: s.opts.RunOf(pid)}`, now: `find: func() (string, error) { return s.opts.RunOf(pid)() }}`,
		pkg: "./coordinator/api", run: "^TestPeerIsARun$",
	},
	{
		name: "a gate is not known", file: "coordinator/agent/runner.go",
		old: `noteGate(cmd.Process.Pid, s.turn.RunID)`, now: ``,
		pkg: "./coordinator/agent", run: "^TestRunOf$",
	},
	{
		name: "a gate that has ended is known still", file: "coordinator/agent/runner.go",
		old: `forgetGate(h.cmd.Process.Pid)`, now: ``,
		pkg: "./coordinator/agent", run: "^TestRunOf$",
	},
	{
		name: "a run cancels any task", file: "coordinator/api/fromrun.go",
		old: `t.Trigger != state.ByAgent || err != nil || parent.RunID != run || `, now: `err != nil || `,
		pkg: "./coordinator/api", run: "^TestRunsCancelTheirOwn$",
	},
	{
		name: "a run cancels another task than was looked at", file: "coordinator/api/fromrun.go",
		old: `return t.ID, nil`, now: `return ref, nil`,
		pkg: "./coordinator/api", run: "^TestRunsCancelTheirOwn$",
	},
	{
		name: "an agent uses up the follow-ups of the user", file: "coordinator/followup.go",
		old: `len(c.state.FollowUps(s.parent))-have`, now: `len(c.state.FollowUps(s.parent))`,
		pkg: "./coordinator", run: "^TestARunLeavesTheFollowUp$",
	},
	{
		name: "a run waits for what waits for it", file: "state/await.go",
		old: `slices.Concat(x.After, s.earlier(list[0], x), s.takers(x))`, now: `slices.Concat(s.earlier(list[0], x), s.takers(x))`,
		pkg: "./coordinator", run: "^TestARunWaitsForOthers$",
	},
	{
		name: "a retry releases what an agent asked for", file: "coordinator/commands.go",
		old: `if !t.Hold || t.Trigger != state.ByAgent`, now: `if true || t.Trigger != state.ByAgent`,
		pkg: "./coordinator", run: "^TestARunHasNoRights$",
	},

	// The verify loop.
	{
		name: "a verify command is not run at a shutdown, and not after it", file: "coordinator/loop.go",
		old: "\tcase t.Phase == \"\" && out.Class == \"\" && hasVerify(c.asEdited(t)):", now: "\tcase c.isGoing():\n\tcase t.Phase == \"\" && out.Class == \"\" && hasVerify(c.asEdited(t)):",
		pkg: "./coordinator", run: "^TestLoopBeginsNothingAtAShutdown$",
	},
	{
		name: "a round begins while its account cools down", file: "coordinator/loop.go",
		old: `s.phase == "" && (a.Hold || a.CoolUntil.After(c.cfg.Now()))`, now: "false && a.Hold",
		pkg: "./coordinator", run: "^TestLoopWaitsForItsAccount$",
	},
	{
		name: "a prompt that is changed while its agent works never reaches it", file: "state/fold.go",
		old: "\t\tt.Reworded = true\n", now: "",
		pkg: "./coordinator", run: "^TestLoopPromptIsEditedInATurn$",
	},
	{
		name: "a task that was interrupted while it was verified asks the agent again", file: "coordinator/conclude.go",
		old: "if v.reason != state.ClassInterrupted { // else the task goes on with that phase", now: "if true {",
		pkg: "./coordinator", run: "^TestLoopShutdown$",
	},
	{
		name: "the exit code of a verify command is ignored", file: "coordinator/agent/shell.go",
		old: "ExitCode: e.end.Exit, Shortage", now: "Shortage",
		pkg: "./coordinator/agent", run: "^TestVerifyCommand$",
	},
	{
		name: "what a verify command prints is searched for the agent's session", file: "coordinator/recover.go",
		old: "err == nil && t.Phase == \"\" && c.cfg.FindSession", now: "err == nil && c.cfg.FindSession",
		pkg: "./coordinator", run: "^TestLoopCrash$",
	},
	{
		name: "what a command prints after it has emptied its output is lost", file: "coordinator/agent/supervise.go",
		old: "n == 0 && t.emptied()", now: "n == 0 && false",
		pkg: "./coordinator/agent", run: "^TestVerifyCutsItsOutput$",
	},
	{
		name: "a part of an archived task makes a new one of it", file: "state/state.go",
		old: "if sec.Get(KeyStatus) == nil {", now: "if false {",
		pkg: "./state", run: "^TestArchivedTaskComesBack$",
	},
	{
		name: "an agent starts beside a verify command of the last master that may be alive", file: "coordinator/check.go",
		old: "for _, t := range c.leftovers {", now: "for _, t := range c.leftovers {\n\t\tbreak",
		pkg: "./coordinator", run: "^TestVerifyThatMayStillBeAlive$",
	},
	{
		name: "a verify command waits for the account", file: "state/task.go",
		old: "if t.Phase == PhaseVerify || t.Phase == PhaseEvaluate && t.Status == Queued {", now: "if false {",
		pkg: "./state", run: "^(TestReady|TestUnwilling)$",
	},
	{
		name: "a verify command that stint verify began outlives its master", file: "coordinator/coordinator.go",
		old: "\tc.recoverChecks(proving)\n", now: "",
		pkg: "./coordinator", run: "^TestVerifyAtAShutdown$",
	},
	{
		name: "a merged record forgets its place in the list", file: "state/compact.go",
		old: `.Add(KeyFirstSeq, strconv.FormatUint(m.first, 10))`, now: ``,
		pkg: "./state", run: "^TestPagesHaveNoGapsAndNoDuplicates$",
	},
	{
		name: "the number of a first record is believed", file: "state/state.go",
		old: `return max(n, s.entries.at(s.entries.len()-1).first+1)`, now: `return n`,
		pkg: "./state", run: "^TestFirstSeqByHand$",
	},
	{
		name: "the place of another list is taken", file: "coordinator/commands.go",
		old: `if f.Before > c.state.Seq() {`, now: `if false {`,
		pkg: "./coordinator", run: "^TestPagesOverCompaction$",
	},
	{
		name: "what was cut out is read as zeros", file: "coordinator/outputs.go",
		old: `from > off || to < off+int64(n) {`, now: `from < to && false {`,
		pkg: "./coordinator", run: "^TestOutputsStayAsTheyWere$",
	},
	{
		name: "a link in the place of collected files is followed", file: "coordinator/collected.go",
		old: `openRegular(root, filepath`, now: `root.Open(filepath`,
		pkg: "./coordinator", run: "^TestCollectedDirectoryIsReplaced$",
	},
	{
		name: "any file of a run's directory can be had", file: "coordinator/collected.go",
		old: `if err == nil && !slices.Contains(append(inputs, outputs...), name) {`, now: `if len(append(inputs, outputs...)) == 0 {`,
		pkg: "./coordinator", run: "^TestFilesAreGiven$",
	},
	{
		name: "a run searches the notes of any directory", file: "coordinator/search.go",
		old: `if q.FromRun != "" && `, now: `if false && `,
		pkg: "./coordinator", run: "^TestSearchMemory$",
	},
	{
		name: "a slash of a file's path may be escaped", file: "coordinator/api/files.go",
		old: `in.slashes = `, now: `in.slashes = false && `,
		pkg: "./coordinator/api", run: "^TestBadFilePaths$",
	},
	{
		name: "a browser may show a collected file", file: "coordinator/api/files.go",
		old: `hctx.SetHeader("Content-Security-Policy", filePolicy)`, now: ``,
		pkg: "./coordinator/api", run: "^TestFileIsServedToBeSaved$",
	},
	{
		name: "a log that has grown is the same", file: "coordinator/api/stream.go",
		old: `begin + strconv.FormatInt(content.Size(), 36)`, now: `begin + strconv.FormatInt(0, 36)`,
		pkg: "./coordinator/api", run: "^(TestLogThatGrows|TestNotModified)$",
	},
	{
		name: "a file of a run is read through a link", file: "ledger/durable/open.go",
		old: "flag&^os.O_TRUNC|NoTricks", now: "flag&^os.O_TRUNC|NoTricks&^syscall.O_NOFOLLOW",
		pkg: "./coordinator/api", run: "^TestNoLinkOfARunIsFollowed$",
	},
	{
		name: "half of a surrogate pair becomes another character", file: "coordinator/api/names.go",
		old: "coordinator.LoneSurrogate(data[i:end]) >= 0", now: "coordinator.LoneSurrogate(data[i:end]) > len(data)",
		pkg: "./coordinator/api", run: "^TestSubmitRequests$",
	},
	{
		name: "records that came during a save count as dropped", file: "ledger/plan.go",
		old: "if r.seq <= p.seen {", now: "if p.seen > 0 {",
		pkg: "./ledger", run: "^TestOldBufferIsReportedOnlyWhenSaved$",
	},

	// The page, and who is let in.
	{
		name: "a text on the page is markup", file: "coordinator/api/page.go",
		old: `"html/template"`, now: `"text/template"`,
		pkg: "./coordinator/api", run: "^TestPromise6NoTextBecomesMarkup$",
	},
	{
		name: "control characters reach the page", file: "coordinator/api/page.go",
		old: "coordinator.EscapeText(buf.String())", now: "buf.String()",
		pkg: "./coordinator/api", run: "^TestPromise6NoTextBecomesMarkup$",
	},
	{
		name: "the script makes markup of a text", file: "coordinator/api/web/app.js",
		old: "said.textContent = visible(text)", now: "said.innerHTML = visible(text)",
		pkg: "./coordinator/api", run: "^TestPageScriptWritesTextOnly$",
	},
	{
		name: "the page is shown to who has not signed in", file: "coordinator/api/page.go",
		old: "g != nil && !g.knows(r)", now: "g != nil && false",
		pkg: "./coordinator/api", run: "^TestPromise11Page$",
	},
	{
		name: "a code lets two browsers in", file: "coordinator/api/signin.go",
		old: `found.code, found.until,`, now: `_, found.until,`,
		pkg: "./coordinator/api", run: "^TestBrowserIsLetInOnce$",
	},
	{
		name: "who has no cookie yet is let in", file: "coordinator/api/signin.go",
		old: `one.code != "" || `, now: ``,
		pkg: "./coordinator/api", run: "^TestBrowserIsLetInOnce$",
	},
	{
		name: "who has the cookie can change things", file: "coordinator/api/signin.go",
		old: "(reads || equalText", now: "(reads || true || equalText",
		pkg: "./coordinator/api", run: "^TestStolenCookieChangesNothing$",
	},
	{
		name: "another user who has the token is let in", file: "coordinator/api/tcppeer.go",
		old: "found && mayCall(", now: "found || mayCall(",
		pkg: "./coordinator/api", run: "^TestPromise11OtherUsers$",
	},
	{
		name: "an agent is a person over TCP", file: "coordinator/api/fromrun.go",
		old: "s.runOfAny(c.processes())", now: "s.runOfAny(nil, nil)",
		pkg: "./coordinator/api", run: "^TestPeerIsARunOverTCP$",
	},
	{
		name: "a log over TCP loses its end", file: "coordinator/api/loopback.go",
		old: "defer w.renew() //", now: "//",
		pkg: "./coordinator/api", run: "^TestAnswersOverTCPAreWhole$",
	},
	{
		name: "a long answer over TCP is broken off", file: "coordinator/api/loopback.go",
		old: "if !w.left {", now: "if w.left {",
		pkg: "./coordinator/api", run: "^TestAnswersOverTCPAreWhole$",
	},
	{
		name: "a port that was taken is not tried again", file: "cmd/stint/serve.go",
		old: "if pause(ctx, wait) != nil {", now: "if <-ctx.Done(); true {",
		pkg: "./cmd/stint", run: "^TestHTTPIsTriedAgain$",
	},
	{
		name: "who makes a token takes the place of another one's", file: "coordinator/api/token.go",
		old: "err := os.Link(own, path)", now: "err := os.Link(own, own+\"x\"); err = errors.Join(err, os.Rename(own+\"x\", path))",
		pkg: "./coordinator/api", run: "^TestFirstTokenIsOne$",
	},
	{
		name: "a stream outlives its token", file: "coordinator/api/loopback.go",
		old: "for g.knows(r) {", now: "for g != nil {",
		pkg: "./coordinator/api", run: "^TestRotationEndsStreams$",
	},
	{
		name: "what a request shows is logged", file: "coordinator/api/loopback.go",
		old: "\tsecureHeaders(w.Header())\n\tif p :=", now: "\tg.server.opts.Log.Warn(\"request\", \"header\", r.Header)\n\tif p :=",
		pkg: "./cmd/stint", run: "^TestPromise11NoSecretIsWritten$",
	},
	{
		name: "the address of the page is on a command line", file: "cmd/stint/ui.go",
		old: "browserCommand(file)", now: "browserCommand(page.URL)",
		pkg: "./cmd/stint", run: "^TestScript$/^ui$",
	},

	// Who may ask over TCP, and how much.
	{
		name: "any Host is ours", file: "coordinator/api/loopback.go",
		old: `case !g.isHost(r.Host) || !strings.HasPrefix(r.RequestURI, "/"):`, now: `case false:`,
		pkg: "./coordinator/api", run: "^TestPromise11Host$",
	},
	{
		name: "any name of this machine is a browser's", file: "coordinator/api/loopback.go",
		old: `return named || g.hosts[host]`, now: `return named || g.hosts[host] || browserOf(host) != ""`,
		pkg: "./coordinator/api", run: "^TestPromise11Host$",
	},
	{
		name: "the token is good for a page, too", file: "coordinator/api/loopback.go",
		old: ` && r.Header["Sec-Fetch-Site"] == nil`, now: ``,
		pkg: "./cmd/stint", run: "^TestPromise11SquattedPort$",
	},
	{
		name: "a code counts under any name", file: "coordinator/api/browser.go",
		old: `one, ok := g.browsers.letIn(browserOf(in.host), `, now: `one, ok := g.browsers.letIn(g.browsers.all[0].name, `,
		pkg: "./coordinator/api", run: "^TestBrowserIsLetInOnce$",
	},
	{
		name: "a code is given out for a port that is no longer ours", file: "coordinator/api/loopback.go",
		old: "defer s.guard.Store(nil)", now: "",
		pkg: "./coordinator/api", run: "^TestBrowsersEndWithTheListener$",
	},
	{
		name: "a service worker of another user stays", file: "coordinator/api/loopback.go",
		old: "h.Set(\"Clear-Site-Data\", `\"storage\"`)", now: "h.Del(\"Clear-Site-Data\")",
		pkg: "./cmd/stint", run: "^TestPromise11SquattedPort$",
	},
	{
		name: "the open page takes another user's for ours", file: "coordinator/api/web/app.js",
		old: `if (fresh?.dataset.mark === mark) return fresh;`, now: `if (fresh) return fresh;`,
		pkg: "./cmd/stint", run: "^TestPromise11SquattedPort$",
	},
	{
		name: "the open page tells another user what is entered", file: "coordinator/api/web/app.js",
		old: `if (live && !(await ours())) throw`, now: `if (false) throw`,
		pkg: "./cmd/stint", run: "^TestPromise11SquattedPort$",
	},
	{
		name: "an address in the request line is not looked at", file: "coordinator/api/loopback.go",
		old: ` || !strings.HasPrefix(r.RequestURI, "/"):`, now: `:`,
		pkg: "./coordinator/api", run: "^TestPromise11Host$",
	},
	{
		name: "OPTIONS * passes by the guard", file: "coordinator/api/loopback.go",
		old: `srv.DisableGeneralOptionsHandler = true`, now: `srv.DisableGeneralOptionsHandler = false`,
		pkg: "./coordinator/api", run: "^TestPromise11Host$",
	},
	{
		name: "a page of any origin may ask", file: "coordinator/api/loopback.go",
		old: `case !g.sameOrigin(r):`, now: `case false:`,
		pkg: "./coordinator/api", run: "^TestPromise11Origin$",
	},
	{
		name: "a page of another port is ours", file: "coordinator/api/loopback.go",
		old: `sites[0] == "none")`, now: `sites[0] == "none" || sites[0] == "same-site")`,
		pkg: "./coordinator/api", run: "^TestPromise11Origin$",
	},
	{
		name: "a page of any origin may read", file: "coordinator/api/loopback.go",
		old: `h.Set("X-Frame-Options", "DENY")`, now: `h.Set("Access-Control-Allow-Origin", "*")`,
		pkg: "./coordinator/api", run: "^TestPromise11Origin$",
	},
	{
		name: "any token will do", file: "coordinator/api/token.go",
		old: `return err == nil && equalText(given, text)`, now: `return err == nil && (given != "" || equalText(given, text))`,
		pkg: "./coordinator/api", run: "^TestPromise11Token$",
	},
	{
		name: "the beginning of the token will do", file: "coordinator/api/token.go",
		old: `return err == nil && equalText(given, text)`, now: `return err == nil && strings.HasPrefix(text, given)`,
		pkg: "./coordinator/api", run: "^TestWrongTokens$",
	},
	{
		name: "the token counts in a URL", file: "coordinator/api/loopback.go",
		old: `if auth := r.Header.Values("Authorization"); len(auth) > 0 {`, now: "if token.isToken(r.URL.Query().Get(\"token\")) {\n\t\treturn true\n\t}\n\tif auth := r.Header.Values(\"Authorization\"); len(auth) > 0 {",
		pkg: "./coordinator/api", run: "^TestPromise11Token$",
	},
	{
		name: "the old token counts after a rotation", file: "coordinator/api/token.go",
		old: `os.SameFile(info, t.info) && info.ModTime().Equal(t.info.ModTime()) && info.Size() == t.info.Size() && info.Mode() == t.info.Mode()`, now: `info != nil`,
		pkg: "./coordinator/api", run: "^TestRotationCountsAtOnce$",
	},
	{
		name: "a cookie counts after a rotation", file: "coordinator/api/signin.go",
		old: `one.token != token`, now: `false`,
		pkg: "./coordinator/api", run: "^TestStolenCookieChangesNothing$",
	},
	{
		name: "others may read the token", file: "coordinator/api/token.go",
		old: `case info.Mode().Perm()&0o077 != 0:`, now: `case false:`,
		pkg: "./coordinator/api", run: "^TestBadTokenFiles$",
	},
	{
		name: "another user may call over the socket", file: "coordinator/api/listen.go",
		old: `if err == nil && mayCall(uid, l.uid) {`, now: `if err == nil && mayCall(uid, uid) {`,
		pkg: "./coordinator/api", run: "^TestPromise11OtherUsers$",
	},
	{
		name: "who has no token is told whether dispatch is paused", file: "coordinator/api/routes.go",
		old: `if !overTCP(r.Context()) || !s.isPublic(r) {`, now: `if true {`,
		pkg: "./coordinator/api", run: "^TestStrangersAreToldNothing$",
	},
	{
		name: "it listens on all addresses", file: "coordinator/api/loopback.go",
		old: `host == "localhost") {`, now: `host == "localhost" || host == "0.0.0.0") {`,
		pkg: "./coordinator/api", run: "^TestAddressesOfThisMachineAlone$",
	},
	{
		name: "a body over TCP has no bound", file: "coordinator/api/loopback.go",
		old: `b.left < 0 {`, now: `false {`,
		pkg: "./coordinator/api", run: "^TestBodiesOverTCP$",
	},
	{
		name: "what a form sends is taken for JSON", file: "coordinator/api/routes.go",
		old: `t == "application/json"`, now: `t != ""`,
		pkg: "./coordinator/api", run: "^TestBodiesOverTCP$",
	},
	{
		name: "any number of streams", file: "coordinator/api/loopback.go",
		old: `make(chan struct{}, maxStreams)`, now: `make(chan struct{}, 1<<20)`,
		pkg: "./coordinator/api", run: "^TestStreamsOverTCP$",
	},
	{
		name: "a stream that has ended still counts", file: "coordinator/api/loopback.go",
		old: "defer func() { <-g.streams }()\n", now: ``,
		pkg: "./coordinator/api", run: "^TestStreamsOverTCP$",
	},
	{
		name: "any number of connections", file: "coordinator/api/places.go",
		old: `if len(p.conns) >= p.most {`, now: `if false {`,
		pkg: "./coordinator/api", run: "^TestSlowClients$",
	},
	{
		name: "an idle connection keeps its place", file: "coordinator/api/places.go",
		old: `case http.StateIdle:`, now: `case http.StateHijacked:`,
		pkg: "./coordinator/api", run: "^TestIdleConnectionsYield$",
	},
	{
		name: "a request that is being answered is cut off", file: "coordinator/api/places.go",
		old: `if !since.IsZero() && (`, now: `if true && (`,
		pkg: "./coordinator/api", run: "^TestActiveRequestsAreNotCut$",
	},
	{
		name: "who reads no answer stays for ever", file: "coordinator/api/loopback.go",
		old: `srv.WriteTimeout = writeTimeout`, now: `srv.WriteTimeout = 0`,
		pkg: "./coordinator/api", run: "^TestSlowClients$",
	},
	{
		name: "who sends no header stays for ever", file: "coordinator/api/server.go",
		old: `ReadHeaderTimeout: headerTimeout,`, now: ``,
		pkg: "./coordinator/api", run: "^TestSlowClients$",
	},
	{
		name: "a wait over TCP is cut off after a minute", file: "coordinator/api/loopback.go",
		old: "if !w.left {", now: "if w.left {",
		pkg: "./coordinator/api", run: "^TestLongRequestsOverTCP$",
	},
	{
		name: "a body that breaks off is a failure of ours", file: "coordinator/api/problem.go",
		old: `if message == "cannot read request body" {`, now: `if false {`,
		pkg: "./coordinator/api", run: "^TestMalformedRequests$",
	},

	// The copy in PostgreSQL.
	{
		name: "a batch is written whatever the cursor says", file: "coordinator/postgres/write.go",
		old: "if uint64(seq) != w.at.seq || generation != w.at.generation {", now: "if generation != w.at.generation {",
		pkg: "./coordinator/postgres", run: "^TestReplayedBatch$",
	},
	{
		name: "the copy goes on from a place that its ledger does not have", file: "coordinator/postgres/session.go",
		old: "return err == nil && bytes.Equal(digest, s.at.digest), err", now: "return err == nil && bytes.Equal(digest, digest), err",
		pkg: "./coordinator/postgres", run: "^TestRebuild$",
	},
	{
		name: "a rebuild leaves rows that the ledger does not have", file: "coordinator/postgres/session.go",
		old: "if b.sweep {", now: "if b.sweep && b.tasks != nil {",
		pkg: "./coordinator/postgres", run: "^TestVerifyFindsWhatDiffers$",
	},
	{
		name: "a key that moves stops the copy", file: "coordinator/postgres/write.go",
		old: "q.Queue(freeKeys)", now: "_ = freeKeys",
		pkg: "./coordinator/postgres", run: "^TestKeyMoves$",
	},
	{
		name: "a rebuild forgets what is gone from the disk", file: "coordinator/postgres/write.go",
		old: `value = fmt.Sprintf("coalesce(excluded.%[2]s, %[1]s.%[2]s)", t.name, c)`, now: "_ = t.name",
		pkg: "./coordinator/postgres", run: "^TestFilesGone$",
	},
	{
		name: "one bad task stops the copy", file: "coordinator/postgres/session.go",
		old: "if !isRefusal(err) {", now: "if err == nil || !isRefusal(nil) {",
		pkg: "./coordinator/postgres", run: "^TestRefusedTask$",
	},
	{
		name: "two state directories share one copy", file: "coordinator/postgres/session.go",
		old: "if p.StateDir != storable(s.o.StateDir) && !s.mirror.takeOver {", now: "if p.StateDir == \"\" {",
		pkg: "./coordinator/postgres", run: "^TestHosts$",
	},
	{
		name: "a compaction during a rebuild passes tasks over", file: "coordinator/postgres/pack.go",
		old: "if p.err = p.stillThere(to); p.err == nil {", now: "if p.err == nil {",
		pkg: "./coordinator/postgres", run: "Compact",
	},
	{
		name: "a master that ends keeps what came last from the copy", file: "coordinator/postgres/mirror.go",
		old: "if end := src.Seq(); s.at.seq < end {", now: "if end := src.Seq(); s.at.seq > end {",
		pkg: "./coordinator/postgres", run: "^TestHandOver$",
	},
	{
		name: "the copy is made of a task before its record counts", file: "coordinator/postgres/pack.go",
		old: "p.s.src.Seq() < seq;", now: "p.s.src.Seq() < seq-seq;",
		pkg: "./coordinator/postgres", run: "^TestRecordBeforeItIsFolded$",
	},
	{
		name: "a copy that is whole looks as if it lacked everything", file: "coordinator/postgres/session.go",
		old: "s.mirror.isAt(s.at.seq)", now: "s.mirror.isAt(0)",
		pkg: "./coordinator/postgres", run: "^TestStatusOfAWholeCopy$",
	},
	{
		name: "an account stays held in the copy", file: "coordinator/postgres/write.go",
		old: "w.queueAccounts(&q, b.accounts)", now: "_ = b.accounts",
		pkg: "./coordinator/postgres", run: "^TestAccounts$",
	},
	{
		name: "an error shows the password of the database", file: "coordinator/postgres/target.go",
		old: `text = strings.ReplaceAll(text, spelling, "***")`, now: "_ = spelling",
		pkg: "./coordinator/postgres", run: "^TestNoPasswordIsSaid$",
	},
	{
		name: "a password on the command line is taken", file: "cmd/stint/postgres.go",
		old: "if postgres.HasPassword(text) {", now: "if text == \"\" && postgres.HasPassword(text) {",
		pkg: "./cmd/stint", run: "^TestNoPasswordOnTheCommandLine$",
	},

	// What the machine lacks.
	{
		name: "the tries of a machine that lacks something do not become rarer", file: "coordinator/shortage.go",
		old: "s.wait = min(2*s.wait, lastProbe)", now: "s.wait = min(2*s.wait, 30*time.Second)",
		pkg: "./coordinator", run: "^TestShortage$",
	},
	{
		name: "all tasks find out at once whether the machine has it again", file: "state/ready.go",
		old: "return min(free, 1)", now: "return free",
		pkg: "./state", run: "^TestShortOfSomething$",
	},
	{
		name: "an agent is a person where no descriptor is left", file: "coordinator/agent/ancestry.go",
		old: "if coordinator.ShortageOf(err) != 0 { // it could be seen", now: "if false {",
		pkg: "./coordinator/agent", run: "^TestRunOfShortOfFiles$",
	},
	{
		name: "a client gives up where no descriptor is left", file: "coordinator/api/client.go",
		old: "time.Since(begun) > shortWait", now: "time.Since(begun) >= 0",
		pkg: "./coordinator/api", run: "^TestShortageIsNoRefusal$",
	},
	{
		name: "an evaluator for which there is no process is left out", file: "coordinator/evaluate.go",
		old: "if said.Shortage != 0 {", now: "if false {",
		pkg: "./coordinator", run: "^TestShortageOfAStep$",
	},
}
