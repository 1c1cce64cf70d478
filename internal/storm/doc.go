// Package storm kills processes at random while they work on one database, and
// counts afterwards: nothing that was acknowledged may be lost, and nothing may
// have ended twice.
//
// It has tests alone. They may touch the whole command as it is installed: real
// processes of package cli, real files, real signals. What they find goes nowhere
// but into the test's result.
package storm
