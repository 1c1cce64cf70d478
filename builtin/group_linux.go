package builtin

import "syscall"

// dieWithParent has the system kill the command when the thread that started it
// ends, which is why runCommand keeps its thread.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
