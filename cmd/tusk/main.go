// Command tusk is Tusk's server, worker and operator's tool in one binary.
//
// It may touch nothing but package cli, to which it hands the process: arguments,
// streams and environment. What comes back is the exit status.
package main

import (
	"os"
	_ "time/tzdata" // schedules have time zones, and an image of one file has no others

	"github.com/tuskqueue/tusk/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
