//go:build unix

package builtin

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes the command the first process of a new process group.
func ownGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(c.SysProcAttr)
}

// stopGroup sends SIGTERM to the group. The caller kills what remains.
func stopGroup(p *os.Process) error {
	err := syscall.Kill(-p.Pid, syscall.SIGTERM)
	if err == syscall.ESRCH {
		return os.ErrProcessDone
	}
	return err
}

// killGroup kills what is left of the group. While any of it is left, no other process gets the
// number of the group.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
