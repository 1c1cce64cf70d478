//go:build unix

package builtin

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes the command the first of a new process group.
func ownGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(c.SysProcAttr)
}

// stopGroup asks the group to end, and the caller kills what has not.
func stopGroup(p *os.Process) error {
	err := syscall.Kill(-p.Pid, syscall.SIGTERM)
	if err == syscall.ESRCH {
		return os.ErrProcessDone
	}
	return err
}

// killGroup ends what is left of the group. As long as something is, the number
// of the group is no other process's.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
