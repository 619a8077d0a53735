// Package shared is the queue in PostgreSQL for when one machine is not enough: tasks without a host, which workers on any
// number of machines lease, run through their own ledgers, and answer.
//
// # Who may write what
//
// A row with host NULL is a shared task. Producers insert it, as `stint enqueue --shared` does, or by hand: everything
// but the prompt has a default. A worker takes it by a lease ([Queue.Lease]), with FOR UPDATE SKIP LOCKED, so no two take the same
// one; each lease counts the attempt up, and that number is the fencing token: whoever writes must name the newest
// ([Queue.Renew], [Queue.Finish], [Queue.GiveBack]), so what a worker says that has lost its lease changes nothing. A lease that was
// not renewed in time ends by the database's clock alone ([Queue.Reclaim]), and the task is queued again, or is a dead letter if
// all its attempts were lost so.
//
// How many tasks an account may run is the number of its live leases, counted under a lock; it is stored nowhere.
//
// # How a leased task runs
//
// The [Worker], a part of a master, submits each into the ledger beside it: its twin, with the ledger key sharedId. From
// there it is a task like any other, with its retries, backoffs and waits for limits, and its lease is renewed
// until it has ended; then its runs and files are written to the shared row, in one transaction with its end. A twin lives
// no longer than its master: one that is there when a master starts is canceled, and its row given back.
//
// A worker whose lease is about to end, because the database cannot be reached or the worker was stopped, ends its agent before
// that: its gate knows the end of the lease and kills by itself, also while the master hangs.
package shared
