//go:build !unix

package builtin

import (
	"os"
	"os/exec"
)

// Without process groups, only the command itself is killed.

func ownGroup(*exec.Cmd) {}

func stopGroup(p *os.Process) error { return p.Kill() }

func killGroup(p *os.Process) { _ = p.Kill() }
