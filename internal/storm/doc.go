// Package storm runs real processes on one database while everything around them fails: processes are killed and
// paused, connections are cut, stalled and garbled, servers are killed, answers are lost. Each process records its
// calls and their answers. Afterwards the histories are checked: nothing that was acknowledged may be lost, nothing
// may have ended twice, and so on. docs/reliability.md says how to run it and lists the invariants.
//
// It contains only tests. They may use engines, the installed command, and real processes, files, signals and
// servers. The results of long runs are in docs/storm-results.md.
package storm
