//go:build unix && !linux

package builtin

import "syscall"

// dieWithParent does nothing, because the system has no parent death signal.
func dieWithParent(*syscall.SysProcAttr) {}
