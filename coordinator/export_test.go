package coordinator

import "stint/ledger/durable"

// OpenUnwatched is Open without the watch of tasks.md, whose waiting for the kernel
// would stop the clock of a test's bubble.
func OpenUnwatched(cfg Config) (*Coordinator, error) {
	c := newCoordinator(cfg)
	c.unwatched = true
	return c.open()
}

// OpenOn is OpenUnwatched with the ledger on a file system of the test's.
func OpenOn(cfg Config, fs durable.FS) (*Coordinator, error) {
	c := newCoordinator(cfg)
	c.unwatched, c.fs = true, fs
	return c.open()
}

// NativeFields reads the native sessions that a journal names.
var NativeFields = nativeFields

// ReadPatch puts a patch into a spec.
func ReadPatch(data []byte, s *TaskSpec) error {
	_, err := readPatch(data, s)
	return err
}
