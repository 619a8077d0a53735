package coordinator

// OpenUnwatched is Open without the watch of tasks.md, whose waiting for the kernel
// would stop the clock of a test's bubble.
func OpenUnwatched(cfg Config) (*Coordinator, error) {
	c := newCoordinator(cfg)
	c.unwatched = true
	return c.open()
}
