//go:build unix

package storm

import (
	"slices"
	"strings"
)

// fault is something that goes wrong, and is right again when strike returns.
type fault struct {
	code   string // as in the table of faults in docs/reliability.md
	name   string
	on     string // grounds, separated by spaces; empty: all
	weight int
	strike func(s *storm) error
}

const (
	servers    = "postgres pgbouncer mysql"
	networks   = servers + " " + couch + " " + many
	couch      = "couchbase"
	many       = "ledgers"
	postgreses = "postgres pgbouncer"
)

var faults = []fault{
	{"F1", "kill a worker", "", 24, func(s *storm) error { return s.kill(s.any("worker")) }},
	{"F1", "kill a producer", "", 4, func(s *storm) error { return s.kill(s.any("producer")) }},
	{"F2", "pause a worker for longer than its lease", "", 3, func(s *storm) error { return s.pause(s.any("worker")) }},
	{"F3", "stop a worker", "", 4, func(s *storm) error { return s.stop(s.any("worker"), 1) }},
	{"F3", "stop a worker twice", "", 1, func(s *storm) error { return s.stop(s.any("worker"), 2) }},
	{"F3", "stop a worker while it starts", "", 1, func(s *storm) error { return s.stop(s.fleet.start(s.worker()), 1) }},
	{"F5", "kill the database server", networks, 3, killServer},
	{"F5", "kill backends", postgreses, 5, killBackends},
	{"F6", "cut the power of the disk", "", 2, cutPower},
	{"F7", "terminate backends", servers, 8, func(s *storm) error {
		return endSessions(s, "end of a session", "select pg_terminate_backend($1)", "kill %d")
	}},
	{"F8", "fail over to an asynchronous standby", postgreses, 2, failOver},
	{"F10", "reset all connections", networks, 3, cutNetwork},
	{"F10", "swallow everything for longer than a lease", networks, 1,
		func(s *storm) error { return s.clog(stormLease + stormLease/2) }},
	{"F10", "refuse and reset by turns", networks, 2, flap},
	{"F10", "cut a worker off for longer than its lease", networks, 2,
		func(s *storm) error { return s.cutOff(s.any("worker")) }},
	{"F11", "let nobody hear notifications", postgreses, 1, deafen},
	{"F12", "slow the network down", networks, 2, slowDown},
	{"F12", "one byte at a time", networks, 1, slice},
	{"F13", "lose answers", networks, 6, loseAnswers},
	{"F15", "make the database read-only", postgreses, 1, readOnly},
	{"F16", "set the server's clock back, and kill the leader", servers, 1, setBack},
	{"F16", "set the server's clock forward", servers, 1, setForward},
	{"F17", "start a worker whose clock is wrong", networks, 2, startWithWrongClock},
	{"F18", "take all connections", servers, 1, takeConnections},
	{"F19", "restart pgbouncer", "pgbouncer", 6, restartBouncer},
	{"F20", "cancel statements", servers, 6, func(s *storm) error {
		return endSessions(s, "cancel of a statement", "select pg_cancel_backend($1)", "kill query %d")
	}},
	{"F20", "hold the write lock", "sqlite", 2, holdWriteLock},
	{"F21", "pin the horizon", servers, 1, pinHorizon},
	{"F22", "lock a table", servers, 2, lockTable},
	{"F24", "a task ends its process", "", 4, func(s *storm) error {
		return s.enqueueDeadly([]string{doExit, doOverflow, doStarve}[s.random.IntN(3)])
	}},
	{"F24", "a task ends every process that runs it", "", 1, func(s *storm) error { return s.enqueueDeadly(doKiller) }},
	{"F24", "handlers ignore that their time is over", "", 1, func(s *storm) error { return s.enqueueOne(doDeaf) }},
	{"F29", "start a worker that looks like another", "", 2, lookAlike},
	{"F30", "kill the leader", "", 4, func(s *storm) error { return s.kill(s.leader()) }},
	{"F30", "pause the leader for longer than its term", "", 2, func(s *storm) error { return s.pause(s.leader()) }},
	{"F30", "cut the leader off for longer than its term", networks, 2, func(s *storm) error {
		return s.cutOff(s.leader())
	}},
	{"F36", "clog all connections and free them one by one", networks, 2, swizzle},
	{"F36", "two at a time", "", 3, two},
	{"F37", "let commits be late, and their answers late or lost", servers, 5, troubleCommits},
	{"F38", "let requests arrive late", networks, 4, delayRequests},
	{"F39", "leave transactions of users open", servers, 2, holdOpen},
	{"F40", "enqueue by hostile SQL", postgreses, 2, enqueueHostile},
	{"F41", "kill the object store", "", 2, killObjectStore},
	{"F41", "let the object store stall", "", 2, holdObjectStore},
	{"F41", "let the object store answer errors", "", 3, failObjectStore},
	{"F42", "kill an archiver", "", 5, func(s *storm) error { return s.kill(s.any(roleArchiver)) }},
	{"F42", "pause an archiver for longer than others wait", "", 1, func(s *storm) error {
		return s.pause(s.any(roleArchiver))
	}},
	{"F43", "spoil requests", couch, 12, spoilRequests},
	{"F44", "forget all locks", couch, 4, forgetLocks},
	{"F45", "fail over and forget what was not durable", couch, 3, failOverNode},
	{"F46", "leave the index behind", couch, 4, leaveIndexBehind},
	{"F47", "let the clock jump", couch, 1, jumpClock},
	{"F48", "kill one of several servers", many, 8, killOne},
	{"F49", "cut one of several servers off", many, 4, cutOffServer},
	{"F49", "cut a worker off from one of several servers", many, 4, cutOffFromServer},
	{"F50", "move a ledger", many, 6, moveLedger},
	{"F51", "fence a ledger and open it", many, 3, fenceLedger},
	{"F52", "split a server", many, 3, splitServer},
	{"F53", "fail one server over to an asynchronous standby", many, 2, failOverOne},
}

// findFault returns the first fault with a code.
func findFault(code string) *fault {
	for i := range faults {
		if faults[i].code == code {
			return &faults[i]
		}
	}
	panic("no fault has the code " + code)
}

func (f *fault) rages(ground string) bool {
	return f.on == "" || strings.Contains(" "+f.on+" ", " "+ground+" ")
}

// two makes two faults strike at once.
func two(s *storm) error {
	first, second := s.draw(), s.draw()
	alone := []string{"F3", "F6", "F8", "F16", "F36", "F39", "F53"} // the others would disturb what these check
	if first.name == second.name || slices.Contains(alone, first.code) || slices.Contains(alone, second.code) {
		return nil
	}
	s.log.write(event{Op: opFault, Text: first.name + " and " + second.name})
	ended := make(chan error, 1)
	go func() { ended <- first.strike(s) }()
	err := second.strike(s)
	if other := <-ended; err == nil {
		err = other
	}
	return err
}
