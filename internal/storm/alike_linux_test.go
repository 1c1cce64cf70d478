package storm

import (
	"os"
	"os/exec"
	"syscall"
)

// imitate gives a process the id and the host name of other processes. Only root can do that.
func imitate(cmd *exec.Cmd) {
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS}
	}
}
