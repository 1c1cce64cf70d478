// Package storm lets real processes work on one database while everything around
// them fails: processes are killed and paused, connections cut, stalled and
// mangled, servers killed, answers lost. Each process writes down what it asked
// and what it was answered; afterwards the histories are checked: nothing that was
// acknowledged may be lost, nothing may have ended twice, and so on.
// docs/reliability.md says how to run it and has the list.
//
// It has tests alone. They may touch engines, the whole command as it is
// installed, real processes, real files, real signals, real servers. What they
// find goes into the test's result, and of long runs into docs/storm-results.md.
package storm
