// Package storm runs real processes on one database while everything around them fails: processes are killed and
// paused, connections are cut, stalled and garbled, servers are killed, answers are lost. Each process records what
// it asked and what it was answered. Afterwards the histories are checked: nothing that was acknowledged may be lost,
// nothing may have ended twice, and so on. docs/reliability.md says how to run it and lists the invariants.
//
// It contains only tests. They may use engines, the whole command as installed, and real processes, files, signals
// and servers. Their findings go into the test's result, and those of long runs into docs/storm-results.md.
package storm
