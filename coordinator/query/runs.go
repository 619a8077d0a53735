package query

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state"
)

// Files returns the files of a task: those that came with it, and those that were collected after its last
// run. run, if not "", chooses one by its id, a unique piece of it, or its number among the agent's runs:
// then it is what lies in the directory of that one, of the files that the task names.
func (q *Query) Files(ctx context.Context, ref, run string) (task.TaskFiles, error) {
	t, err := q.Task(ctx, ref)
	if err != nil {
		return task.TaskFiles{}, err
	}
	list := task.TaskFiles{Inputs: []task.TaskFile{}, Outputs: []task.TaskFile{}}
	if run != "" {
		step, err := rundir.FindRun(&t, run)
		if err != nil {
			return list, err
		}
		keep := func(kept *[]task.TaskFile, names []string) {
			for _, name := range names {
				if f := q.lookAtCopy(step.RunID, name); !strings.HasPrefix(f.Problem, rundir.ErrNotKept.Error()) {
					*kept = append(*kept, f)
				}
			}
		}
		inputs, outputs := namesOf(&t)
		keep(&list.Inputs, inputs)
		keep(&list.Outputs, outputs)
		return list, nil
	}
	for _, f := range t.InputFiles {
		list.Inputs = append(list.Inputs, task.TaskFile{Name: path.Clean(f.Name), Size: int64(len(f.Content))})
	}
	for _, out := range t.OutputFiles {
		f := q.lookAtCopy(t.RunID, out.Path)
		f.SHA256, f.Size = out.SHA256, out.Size
		list.Outputs = append(list.Outputs, f)
	}
	return list, nil
}

// namesOf returns the names of the files that came with a task, and of those that it leaves.
func namesOf(t *state.Task) (inputs, outputs []string) {
	for _, f := range t.InputFiles {
		inputs = append(inputs, path.Clean(f.Name))
	}
	for _, f := range t.OutputFiles {
		outputs = append(outputs, f.Path)
	}
	for _, name := range t.OutputSpec {
		if name = path.Clean(name); !slices.Contains(outputs, name) {
			outputs = append(outputs, name)
		}
	}
	return inputs, outputs
}

// lookAtCopy returns what is known of a file in the directory of a run.
func (q *Query) lookAtCopy(runID, name string) task.TaskFile {
	f := task.TaskFile{Name: name, RunID: runID}
	file, fi, err := q.openCopy(runID, name)
	if err != nil {
		f.Problem = err.Error()
		return f
	}
	f.Size = fi.Size()
	_ = file.Close() // only looked at
	return f
}

func (q *Query) openCopy(runID, name string) (*os.File, fs.FileInfo, error) {
	if !rundir.IsRunID(runID) {
		return nil, nil, rundir.ErrNotKept
	}
	return rundir.OpenCollected(q.tasks.RunDir(runID), name)
}

// OpenFile returns the content of a file of a task by its name, which is one that Files gives. A
// name that came with the task and that nothing was collected under is what came.
func (q *Query) OpenFile(ctx context.Context, ref, run, name string) (task.Content, error) {
	t, err := q.Task(ctx, ref)
	if err != nil {
		return task.Content{}, err
	}
	runID, isCopy := t.RunID, slices.ContainsFunc(t.OutputFiles, func(f state.OutputFile) bool { return f.Path == name })
	if run != "" {
		step, err := rundir.FindRun(&t, run)
		if err != nil {
			return task.Content{}, err
		}
		inputs, outputs := namesOf(&t)
		runID, isCopy = step.RunID, slices.Contains(append(inputs, outputs...), name)
	}
	if isCopy {
		f, fi, err := q.openCopy(runID, name)
		if err != nil {
			return task.Content{}, noFile(&t, name, err.Error())
		}
		return task.Content{ReadSeeker: f, Modified: fi.ModTime(), Close: f.Close}, nil
	}
	for _, f := range t.InputFiles {
		if run == "" && path.Clean(f.Name) == name {
			return task.Content{ReadSeeker: strings.NewReader(f.Content), Close: func() error { return nil }}, nil
		}
	}
	return task.Content{}, noFile(&t, name, "it has no such file")
}

// noFile returns the error for when a file of a task cannot be had.
func noFile(t *state.Task, name, why string) error {
	return &task.Error{Code: task.CodeNotFound, Message: fmt.Sprintf("task %s: the file %.200q: %s", t.ID, name, why), Hint: "stint show --with-files " + t.ID}
}

// SentPrompt returns the prompt of a run of a task: run is a run's id, a unique piece of
// it, or its number among the agent's runs, from 1; "" is the agent's last one.
func (q *Query) SentPrompt(ctx context.Context, ref, run string) (task.SentPrompt, error) {
	t, err := q.Task(ctx, ref)
	if err != nil {
		return task.SentPrompt{}, err
	}
	turns := rundir.TurnsOf(&t)
	if len(turns) == 0 {
		return task.SentPrompt{}, &task.Error{Code: task.CodeNotFound, Message: "task " + t.ID + " has not run yet", Hint: "stint why " + t.ID}
	}
	step := turns[len(turns)-1]
	if run != "" {
		if step, err = rundir.FindRun(&t, run); err != nil {
			return task.SentPrompt{}, err
		}
	}
	if step.Phase == state.PhaseVerify {
		return task.SentPrompt{}, rundir.NoRun(&t, "run %s is one of its verify command, which gets no prompt", run)
	}
	p := task.SentPrompt{TaskID: t.ID, RunID: step.RunID, Phase: step.Phase, Of: len(turns), Attempt: step.Attempt}
	p.Number = 1 + slices.IndexFunc(turns, func(turn state.Step) bool { return turn.RunID == step.RunID })
	if task.HasVerify(&t) {
		p.Iteration = max(1, step.Iteration)
	}
	dir := q.tasks.RunDir(p.RunID)
	text, err := rundir.ReadOutput(dir, rundir.PromptName)
	if gone := rundir.Removed(&t, dir); gone != nil {
		return p, gone
	}
	if errors.Is(err, fs.ErrNotExist) {
		return p, &task.Error{Code: task.CodeNotFound, Message: fmt.Sprintf("the prompt of run %s of task %s is not there: its file was removed", p.RunID, t.ID), Hint: "stint show " + t.ID}
	}
	if err != nil {
		return p, err
	}
	sum := sha256.Sum256(text)
	p.SHA256, p.Prompt = hex.EncodeToString(sum[:]), string(text)
	p.Memory = rundir.ReadMemory(dir)
	return p, nil
}
