package builtin

import "syscall"

// dieWithParent makes the system kill the command when the thread that started it ends. That is why
// runCommand locks its thread.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
