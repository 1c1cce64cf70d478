// Command tusk is Tusk's server, worker and operator's tool in one binary.
//
// It may use only package cli. It passes cli the process's arguments, streams and
// environment, and exits with the status that cli returns.
package main

import (
	"os"
	_ "time/tzdata" // for the time zones of schedules, which an image with only this file lacks

	"github.com/tuskqueue/tusk/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
