// The names by which the packages beside the coordinator still know what is in task.

package coordinator

import (
	"stint/coordinator/admission"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
)

type AccountMetrics = task.AccountMetrics

type Agent = task.Agent

var AtTask = task.AtTask

var BadCursor = task.BadCursor

type Change = task.Change

var CheckKey = task.CheckKey

var CheckPrompt = task.CheckPrompt

var CheckSessionKey = task.CheckSessionKey

type Code = task.Code

const CodeAgentMissing = task.CodeAgentMissing

const CodeAmbiguous = task.CodeAmbiguous

const CodeBusy = task.CodeBusy

const CodeChanged = task.CodeChanged

const CodeConflict = task.CodeConflict

const CodeForbidden = task.CodeForbidden

const CodeFull = task.CodeFull

const CodeInvalid = task.CodeInvalid

const CodeNotFound = task.CodeNotFound

const CodeShortage = task.CodeShortage

const CodeStopped = task.CodeStopped

const CodeTooMany = task.CodeTooMany

const CodeUnauthorized = task.CodeUnauthorized

const CodeUnavailable = task.CodeUnavailable

type Config = task.Config

type Content = task.Content

type Counted = task.Counted

var EditableFields = task.EditableFields

var EmptyKey = task.EmptyKey

type Ending = task.Ending

var ErrCanceled = task.ErrCanceled

var ErrLongList = task.ErrLongList

var ErrShutdown = task.ErrShutdown

var ErrTimeout = task.ErrTimeout

type Error = task.Error

var EscapeText = task.EscapeText

type Event = task.Event

type Finding = task.Finding

const GoOn = task.GoOn

type Health = task.Health

type Histogram = task.Histogram

type Image = task.Image

var IsHarmful = task.IsHarmful

var LoneSurrogate = task.LoneSurrogate

const MaxBatch = task.MaxBatch

const MaxIterations = task.MaxIterations

const MaxPrompt = task.MaxPrompt

type Metrics = task.Metrics

const MirrorConnecting = task.MirrorConnecting

const MirrorFailing = task.MirrorFailing

const MirrorFollowing = task.MirrorFollowing

const MirrorRebuilding = task.MirrorRebuilding

type MirrorState = task.MirrorState

type MirrorStatus = task.MirrorStatus

var NeedsEscape = task.NeedsEscape

var NewHistogram = task.NewHistogram

const Other = task.Other

type Outcome = task.Outcome

var ParseSpecs = task.ParseSpecs

type Patch = task.Patch

var PatchOf = task.PatchOf

type Plan = task.Plan

type Planner = task.Planner

type PromptEscaper = task.PromptEscaper

var RenameSpecs = task.RenameSpecs

type Retry = task.Retry

const RetryAttempt = task.RetryAttempt

const RetryInterrupted = task.RetryInterrupted

const RetrySession = task.RetrySession

type RunLimits = task.RunLimits

type SentPrompt = task.SentPrompt

const SessionLater = task.SessionLater

const SessionNew = task.SessionNew

const SessionResume = task.SessionResume

type Shell = task.Shell

type Shortage = task.Shortage

type Spender = task.Spender

type TakeOver = task.TakeOver

type TaskFile = task.TaskFile

type TaskFiles = task.TaskFiles

type TaskPreview = task.TaskPreview

type TaskRun = task.TaskRun

type TaskSpec = task.TaskSpec

type Turn = task.Turn

type UsageQuery = task.UsageQuery

type UsageRow = task.UsageRow

type VerifyResult = task.VerifyResult

type VerifyRun = task.VerifyRun

type WorkspaceSettings = task.WorkspaceSettings

type CheckResult = task.CheckResult

type Place = task.Place

type MemoryQuery = task.MemoryQuery

type MemoryResult = task.MemoryResult

var ErrFromRun = task.ErrFromRun

var ShortageOf = task.ShortageOf

var ReadArchived = task.ReadArchived

var ErrNotKept = rundir.ErrNotKept

var IsRunID = rundir.IsRunID

var OpenCollected = rundir.OpenCollected

var OpenOutput = rundir.OpenOutput

var OpenOutputs = rundir.OpenOutputs

type Outputs = rundir.Outputs

var ReadOutput = rundir.ReadOutput

var EndLimit = task.EndLimit

var CheckTemplate = admission.CheckTemplate
