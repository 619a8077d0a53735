// Package statedir works on a state directory without a master: it checks and restores the
// ledger, compacts it, lists its archive, accepts tasks under the lock, and reads a copy as
// of an earlier record. What only reads needs no lock: a master may be at work.
package statedir
