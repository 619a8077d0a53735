package state

// KeyVerifyCommand is the command that must pass after a run.
const KeyVerifyCommand = "verifyCommand"

// copied has the keys that say what a task is to do, and where, and how.
var copied = map[string]bool{
	KeyPrompt: true, KeySessionKey: true, KeyWorkspace: true, KeyAgent: true, KeyTool: true, KeyModel: true,
	KeyAccount: true, KeyResume: true, KeyPriority: true, KeyLabel: true, KeyAfter: true, KeyAfterPolicy: true,
	KeyTimeout: true, KeyMaxAttempts: true, KeyMaxLimitWait: true, KeyVerifyCommand: true,

	KeyTenantID: true, KeyQueue: true, KeyFallback: true, KeyInputFiles: true, KeyOutputSpec: true,
	KeyMaxIterations: true, KeyVerifyTimeout: true, KeyOnFailure: true, KeyOnIssue: true, "budget": true, "isolation": true,
}

// Copied reports whether a task that a person makes by copying the section of
// another keeps that field. What belongs to the other's runs is never kept, nor is
// its idempotency key.
func Copied(key string) bool { return copied[key] }
