//go:build !unix

package builtin

import (
	"os"
	"os/exec"
)

// Without process groups a command is killed alone.

func ownGroup(*exec.Cmd) {}

func stopGroup(p *os.Process) error { return p.Kill() }

func killGroup(p *os.Process) { _ = p.Kill() }
