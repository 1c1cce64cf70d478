//go:build unix && !linux

package builtin

import "syscall"

// dieWithParent does nothing where the system has no such thing.
func dieWithParent(*syscall.SysProcAttr) {}
